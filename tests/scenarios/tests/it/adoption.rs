//! Taking over machines that exist.

use api::vm::VirtualMachine;
use pve::{CreateQemu, GuestConfig, NodeName, Vmid, api::guest::ConfigView};
use scenarios::Bed;
use serde_json::{Value, json};

use crate::prepared;

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
