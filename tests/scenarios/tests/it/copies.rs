//! Machines that a VMClone or VMRestore makes: on which cluster, and under which name.

use api::vm::{Provider, VMBackup, VMClone, VMRestore, VirtualMachine};
use kube::api::DeleteParams;
use scenarios::Bed;
use serde_json::{Value, json};

use crate::{manifest, prepare, prepared};

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
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
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
