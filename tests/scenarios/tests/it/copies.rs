//! Machines that a VMClone or VMRestore makes: of what, on which cluster, and under which name.

use std::time::Duration;

use api::vm::{
    Phase, Provider, VMBackup, VMClone, VMRestore, VMSnapshot, VirtualMachine, condition,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use pve_sim::Latency;
use scenarios::Bed;
use serde_json::{Value, json};

use crate::{manifest, prepare, prepared, with_machine};

/// The documented machine, which names no Provider.
fn without_provider() -> Value {
    let mut machine = scenarios::documents(manifest!("machine")).remove(0);
    let spec = machine["spec"].as_object_mut().unwrap();
    spec.remove("providerRef");
    machine
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_made_on_the_cluster_of_its_source_though_another_has_joined_since() {
    let bed = Bed::builder().clusters(2).start().await;
    prepare(&bed).await;
    bed.try_apply(&without_provider()).await.unwrap();
    bed.until_ready::<VirtualMachine>("web-server").await;
    let other = manifest!("provider-token")
        .replace("proxmox-prod", "other")
        .replace("pve.example", "pve-1.example");
    bed.apply(&other).await;
    bed.until_ready::<Provider>("other").await;
    let clone = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMClone",
        "metadata": { "name": "copy" }, "spec": { "sourceVMRef": { "name": "web-server" } },
    });
    bed.try_apply(&clone).await.unwrap();
    bed.until_ready::<VMClone>("copy").await;
    let made = bed.guests_of(0).await;
    assert!(made.iter().any(|guest| guest.name == "copy"), "{made:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restore_or_copy_whose_name_is_taken_goes_on_when_it_is_free() {
    let bed = with_machine().await;
    let of = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": kind,
            "metadata": { "name": name }, "spec": spec,
        })
    };
    for taken in ["restored", "copied"] {
        let mut taker = without_provider();
        taker["metadata"]["name"] = json!(taken);
        bed.try_apply(&taker).await.unwrap();
        bed.until_ready::<VirtualMachine>(taken).await;
    }
    let machine = json!({ "name": "web-server" });
    let backup = json!({ "vmRef": machine, "storage": "nfs" });
    bed.try_apply(&of("VMBackup", "nightly", backup))
        .await
        .unwrap();
    bed.until_ready::<VMBackup>("nightly").await;
    let restore = json!({ "backupRef": { "name": "nightly" }, "targetName": "restored" });
    bed.try_apply(&of("VMRestore", "again", restore))
        .await
        .unwrap();
    let clone = json!({ "sourceVMRef": machine, "target": { "name": "copied" } });
    bed.try_apply(&of("VMClone", "copy", clone)).await.unwrap();
    bed.until_reason::<VMRestore>("again", "Ready", "NameTaken")
        .await;
    bed.until_reason::<VMClone>("copy", "Ready", "NameTaken")
        .await;
    let machines = bed.api::<VirtualMachine>();
    for taken in ["restored", "copied"] {
        let how = DeleteParams::default();
        machines.delete(taken, &how).await.unwrap();
    }
    bed.until_ready::<VMRestore>("again").await;
    bed.until_ready::<VMClone>("copy").await;
}

/// PVE's own cloud-init tells a guest its addresses at every start, and a copy has what its source is told.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_machine_with_a_fixed_address_does_not_take_it() {
    let bed = prepared().await;
    let mut machine = scenarios::documents(manifest!("machine")).remove(0);
    machine["spec"]["userData"] = json!({ "cloudInit": { "mode": "Native", "user": "ubuntu" } });
    let fixed = json!({ "address": "192.168.1.50/24", "gateway": "192.168.1.1" });
    machine["spec"]["networks"] = json!([{ "name": "lan", "staticIP": fixed }]);
    bed.try_apply(&machine).await.unwrap();
    bed.until_ready::<VirtualMachine>("web-server").await;
    let address = bed.guest("web-server").await.key("ipconfig0").to_owned();
    assert!(address.contains("192.168.1.50"), "{address}");
    let copy = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMClone", "metadata": { "name": "copy" },
        "spec": { "sourceVMRef": { "name": "web-server" }, "linkedClone": false },
    });
    bed.try_apply(&copy).await.unwrap();
    bed.until_ready::<VMClone>("copy").await;
    let address = bed.guest("copy").await.key("ipconfig0").to_owned();
    assert_eq!(address, "ip=dhcp");
}

#[tokio::test(start_paused = true)]
async fn a_clone_becomes_a_machine_of_its_own() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VirtualMachine
metadata: { name: template-vm }
spec:
  classRef: { name: small }
  imageRef: { name: ubuntu-22 }
  networks: [{ name: lan }]
  userData: { cloudInit: { inline: '#cloud-config' } }
",
    )
    .await;
    bed.until_ready::<VirtualMachine>("template-vm").await;
    bed.apply(manifest!("clone")).await;
    let clone: VMClone = bed.until_ready("web-clone").await;
    let status = clone.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Succeeded));
    // PVE links to templates only, and says so rather than failing.
    assert_eq!(status.linked, Some(false));
    let (first, second) = (bed.guest("template-vm").await, bed.guest("web-clone").await);
    assert_ne!(first.vmid, second.vmid);
    assert_ne!(
        first.key("net0"),
        second.key("net0"),
        "a copy has addresses of its own"
    );
    let serial = |guest: &scenarios::Guest| {
        let mut items = guest.key("smbios1").split(',').map(str::to_owned);
        items.find(|item| item.starts_with("serial="))
    };
    assert!(serial(&second).is_some(), "{second:?}");
    assert_ne!(
        serial(&first),
        serial(&second),
        "a copy is an instance of its own"
    );
    bed.delete::<VMClone>("web-clone").await;
    assert!(bed.guest("web-clone").await.running);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_begun_gets_ready_though_its_source_goes() {
    let mut bed = Bed::builder().latency(Latency::real()).start().await;
    prepare(&bed).await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClone
metadata: { name: web-copy }
spec: { sourceVMRef: { name: web-server } }
",
    )
    .await;
    bed.until("web-copy", "being copied", |vm: &VirtualMachine| {
        let status = vm.status.as_ref();
        let step = status.and_then(|status| status.current_step.as_ref());
        step.is_some_and(|step| step.task.is_some())
    })
    .await;
    bed.crash_operator().await;
    let machines = bed.api::<VirtualMachine>();
    let let_go = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    machines
        .patch("web-server", &PatchParams::default(), &let_go)
        .await
        .unwrap();
    machines
        .delete("web-server", &DeleteParams::default())
        .await
        .unwrap();
    bed.start_operator();
    bed.until_ready::<VirtualMachine>("web-copy").await;
    assert!(bed.guest("web-copy").await.running);
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_snapshot_waits_for_it_and_is_told_when_it_is_anothers() {
    let bed = with_machine().await;
    let clone = |of: &str| {
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMClone",
            "metadata": { "name": format!("copy-of-{of}") },
            "spec": { "sourceVMRef": { "name": "web-server" }, "snapshotRef": { "name": of } },
        })
    };
    let snapshot = |name: &str, of: &str| {
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
            "metadata": { "name": name }, "spec": { "vmRef": { "name": of } },
        })
    };
    bed.try_apply(&clone("mine")).await.unwrap();
    bed.until_reason::<VirtualMachine>("copy-of-mine", "Ready", "WaitingForSource")
        .await;
    bed.try_apply(&snapshot("mine", "web-server"))
        .await
        .unwrap();
    bed.until_ready::<VMSnapshot>("mine").await;
    bed.sleep(Duration::from_secs(5)).await;
    let copy: VirtualMachine = bed.get("copy-of-mine").await;
    assert!(copy.status.unwrap().vmid.is_some(), "it is begun at once");
    // Its storage copies nothing but what is there now.
    bed.until_reason::<VirtualMachine>("copy-of-mine", "Ready", "Unsupported")
        .await;

    bed.try_apply(&snapshot("theirs", "another")).await.unwrap();
    bed.try_apply(&clone("theirs")).await.unwrap();
    let told: VirtualMachine = bed
        .until_reason("copy-of-theirs", "Ready", "InvalidSpec")
        .await;
    let status = told.status.unwrap();
    let ready = condition(&status.conditions, "Ready").unwrap();
    assert!(
        ready.message.contains("spec.cloneFrom.snapshotRef"),
        "{ready:?}"
    );
}
