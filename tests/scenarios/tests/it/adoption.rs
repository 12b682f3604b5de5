//! Taking over machines that exist.

use std::time::Duration;

use api::vm::{VMClone, VirtualMachine, condition};
use kube::api::DeleteParams;
use pve::{CreateQemu, GuestConfig, NodeName, Vmid, api::guest::ConfigView};
use scenarios::Bed;
use serde_json::{Value, json};

use crate::{manifest, prepared, with_machine};

const VMID: u32 = 4711;
const CARD: &str = "e1000=BC:24:11:00:00:99,bridge=vmbr0,firewall=1,rate=3,tag=5";

/// A machine somebody made by hand, and left off.
async fn by_hand(bed: &Bed) -> pve::Qemu {
    let config = GuestConfig::new()
        .with("name", "old-server")
        .with("sockets", 2)
        .with("cores", 2)
        .with("memory", 2048)
        .with("tags", "theirs")
        .with("net0", CARD);
    let root = bed.root();
    let node = root.node(&NodeName::new("pve2").unwrap());
    let vmid = Vmid::new(VMID).unwrap();
    let task = node.create_qemu(&CreateQemu::new(vmid, config)).await;
    root.wait(&task.unwrap()).await.unwrap();
    node.qemu(vmid)
}

fn adopter(spec: &Value) -> Value {
    let mut machine = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VirtualMachine",
        "metadata": { "name": "old", "labels": { "app": "shop" } },
        "spec": { "providerRef": { "name": "proxmox-prod" } },
    });
    for (key, value) in spec.as_object().unwrap() {
        machine["spec"][key] = value.clone();
    }
    machine
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_taken_over_keeps_what_its_object_does_not_say() {
    let bed = prepared().await;
    let guest = by_hand(&bed).await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMPlacementPolicy
metadata: { name: apart }
spec: { antiAffinity: [{ key: app, operator: In, values: [shop] }] }
",
    )
    .await;
    let spec = json!({
        "adopt": { "vmid": VMID }, "cpus": 4, "memory": "2Gi", "networks": [{ "name": "lan" }],
    });
    bed.apply(&adopter(&spec).to_string()).await;
    bed.until_ready::<VirtualMachine>("old").await;
    let config = guest.config(ConfigView::Next).await.unwrap();
    assert!(fleet::mark::is_marked(config.description().unwrap()));
    assert_eq!(sorted(config.get("net0").unwrap()), sorted(CARD));
    assert_eq!(config.get("sockets"), Some("2"));
    assert_eq!(config.get("cores"), Some("2"));
    assert_eq!(config.get("tags"), Some("app-shop;theirs"));
    assert!(!guest.status().await.unwrap().is_running(), "it was off");

    bed.change::<VirtualMachine>("old", json!({ "powerState": true }))
        .await;
    bed.until("old", "on", |vm: &VirtualMachine| {
        let status = vm.status.as_ref();
        status.is_some_and(|status| status.power_state.as_deref() == Some("On"))
    })
    .await;
}

fn sorted(card: &str) -> String {
    let mut items: Vec<&str> = card.split(',').collect();
    items.sort_unstable();
    items.join(",")
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_over_stays_so_and_what_is_looked_at_must_exist() {
    let bed = prepared().await;
    let guest = by_hand(&bed).await;
    let observe = json!({ "managementPolicy": "Observe", "cpus": 1, "memory": "1Gi" });
    let refused = bed.try_apply(&adopter(&observe)).await.unwrap_err();
    assert!(refused.to_string().contains("adopt.vmid"), "{refused}");

    for field in ["node", "snapshot"] {
        let mut moved = json!({ "managementPolicy": "Observe", "adopt": { "vmid": VMID } });
        moved[field] = if field == "node" {
            json!("pve1")
        } else {
            json!({})
        };
        let refused = bed.try_apply(&adopter(&moved)).await.unwrap_err();
        assert!(refused.to_string().contains("changes nothing"), "{refused}");
    }

    let adopt = adopter(&json!({ "adopt": { "vmid": VMID } }));
    bed.try_apply(&adopt).await.unwrap();
    bed.until_ready::<VirtualMachine>("old").await;
    let without = adopter(&json!({ "cpus": 4, "memory": "2Gi" }));
    let refused = bed.try_apply(&without).await.unwrap_err();
    assert!(
        refused.to_string().contains("cannot be taken out"),
        "{refused}"
    );
    bed.delete::<VirtualMachine>("old").await;
    assert!(guest.config(ConfigView::Next).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_only_looked_at_shows_its_addresses_and_how_its_power_differs() {
    let bed = with_machine().await;
    let vmid = bed.guest("web-server").await.vmid;
    bed.change::<VirtualMachine>("web-server", json!({ "deletionPolicy": "Orphan" }))
        .await;
    bed.delete::<VirtualMachine>("web-server").await;

    let spec =
        json!({ "adopt": { "vmid": vmid }, "managementPolicy": "Observe", "powerState": "Off" });
    bed.apply(&adopter(&spec).to_string()).await;
    let has_addresses =
        |vm: &VirtualMachine| vm.status.as_ref().is_some_and(|it| !it.ips.is_empty());
    let seen = bed.until("old", "seen with addresses", has_addresses).await;
    let status = seen.status.unwrap();
    assert_eq!(status.drift, ["power"]);
    let ready = condition(&status.conditions, "Ready").unwrap();
    assert_eq!(
        (&*ready.status, &*ready.message),
        ("True", "the guest runs")
    );
    assert!(
        bed.guest("web-server").await.running,
        "nothing is done to it"
    );
    let before = bed.pve().control().total();
    bed.sleep(Duration::from_mins(10)).await;
    assert!(bed.pve().control().total() - before < 200);

    let mut restart = adopter(&spec);
    restart["spec"]["restarts"] = json!(1);
    let refused = bed.try_apply(&restart).await.unwrap_err().to_string();
    assert!(refused.contains("restarts can have no effect"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_template_can_be_looked_at_and_its_copies_share_its_disks() {
    let bed = prepared().await;
    let mut template = adopter(&json!({ "adopt": { "vmid": 9000 } }));
    template["metadata"]["name"] = json!("template-vm");
    bed.try_apply(&template).await.unwrap();
    bed.until_reason::<VirtualMachine>("template-vm", "Ready", "InvalidSpec")
        .await;
    let told = bed.story("template-vm").await;
    assert!(told.contains("managementPolicy Observe"), "{told}");
    template["spec"]["managementPolicy"] = json!("Observe");
    bed.try_apply(&template).await.unwrap();
    bed.until_ready::<VirtualMachine>("template-vm").await;

    bed.apply(manifest!("clone")).await;
    let clone: VMClone = bed.until_ready("web-clone").await;
    assert_eq!(clone.status.unwrap().linked, Some(true));
    let disk = bed.guest("web-clone").await.key("scsi0").to_owned();
    assert!(disk.contains("base-9000"), "{disk}");

    // How it was made cannot be changed any more.
    let mut made = serde_json::to_value(bed.get::<VirtualMachine>("web-clone").await).unwrap();
    made["spec"]["linkedClone"] = json!(false);
    for managed in [
        "managedFields",
        "resourceVersion",
        "uid",
        "creationTimestamp",
        "generation",
    ] {
        made["metadata"].as_object_mut().unwrap().remove(managed);
    }
    made.as_object_mut().unwrap().remove("status");
    let refused = bed.try_apply(&made).await.unwrap_err().to_string();
    assert!(
        refused.contains("linkedClone is used when the machine is made"),
        "{refused}"
    );
}

/// Takes over a guest that was there from the start.
fn of_somebody(policy: &str) -> Value {
    adopter(&json!({ "adopt": { "vmid": 100 }, "managementPolicy": policy }))
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_somebody_looks_at_is_nobody_elses_not_even_after_a_start() {
    let mut bed = prepared().await;
    let before = bed.foreign().await;
    let adopter =
        |policy: &str| adopter(&json!({ "adopt": { "vmid": 100 }, "managementPolicy": policy }));
    bed.try_apply(&adopter("Observe")).await.unwrap();
    bed.until_ready::<VirtualMachine>("old").await;
    bed.crash_operator().await;
    // This one is looked at first.
    let mut thief = of_somebody("Manage");
    thief["metadata"]["name"] = json!("a-thief");
    bed.try_apply(&thief).await.unwrap();
    bed.start_operator();
    bed.sleep(Duration::from_mins(2)).await;
    let thief: VirtualMachine = bed.get("a-thief").await;
    let status = thief.status.unwrap();
    let ready = condition(&status.conditions, "Ready").unwrap();
    assert_eq!((ready.reason.as_str(), status.vmid), ("InUse", None));
    assert_eq!(bed.foreign().await, before);
}

#[tokio::test(start_paused = true)]
async fn who_was_refused_a_guest_leaves_it_alone_also_when_it_is_deleted_while_nobody_looks() {
    let mut bed = prepared().await;
    let before = bed.foreign().await;
    bed.try_apply(&of_somebody("Observe")).await.unwrap();
    bed.until_ready::<VirtualMachine>("old").await;
    let mut thief = of_somebody("Manage");
    thief["metadata"]["name"] = json!("a-thief");
    thief["spec"]["deletionPolicy"] = json!("Delete");
    bed.try_apply(&thief).await.unwrap();
    bed.until_reason::<VirtualMachine>("a-thief", "Ready", "InUse")
        .await;
    bed.crash_operator().await;
    let machines = bed.api::<VirtualMachine>();
    let delete = DeleteParams::default();
    machines.delete("a-thief", &delete).await.unwrap();
    bed.start_operator();
    bed.until_gone::<VirtualMachine>("a-thief").await;
    assert_eq!(bed.foreign().await, before);
    bed.until_ready::<VirtualMachine>("old").await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_not_made_for_its_object_outlives_it() {
    let bed = prepared().await;
    let before = bed.foreign().await;
    for policy in ["Observe", "Manage"] {
        bed.try_apply(&of_somebody(policy)).await.unwrap();
        bed.until_ready::<VirtualMachine>("old").await;
        bed.delete::<VirtualMachine>("old").await;
        bed.until_gone::<VirtualMachine>("old").await;
        assert_eq!(bed.foreign().await, before, "{policy}");
    }
}
