//! Machines move: as declared, on request, and off nodes in maintenance.

use std::time::Duration;

use api::vm::{Container, Phase, VMMigration, VirtualMachine, condition};
use scenarios::{Bed, Guest};
use serde_json::json;

use crate::{manifest, prepared, with_machine};

/// A node of the simulated cluster other than this one.
fn beside(bed: &Bed, node: &str) -> String {
    let mut nodes = bed.pve().nodes().into_iter();
    nodes.find(|other| other != node).unwrap()
}

/// Asks for a move of the machine, to a node or away from where it is.
async fn ask(bed: &Bed, target: Option<&str>) {
    let migration = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMMigration",
        "metadata": { "name": "move" },
        "spec": {
            "vmRef": { "name": "web-server" }, "targetNode": target, "withLocalDisks": true,
        },
    });
    bed.try_apply(&migration).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_running_machine_moves_to_another_node() {
    let bed = with_machine().await;
    let before = bed.guest("web-server").await.node;
    let target = beside(&bed, &before);
    ask(&bed, Some(&target)).await;
    bed.until_ready::<VMMigration>("move").await;
    let guest = bed.guest("web-server").await;
    assert_eq!(guest.node, target);
    assert!(guest.running);
    bed.until("web-server", "on its new node", |vm: &VirtualMachine| {
        vm.status
            .as_ref()
            .is_some_and(|status| status.node.as_ref() == Some(&target))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_move_waits_for_the_policy_that_says_where_to() {
    let bed = with_machine().await;
    let before = bed.guest("web-server").await.node;
    let nodes = bed.pve().nodes();
    let target = nodes.iter().rfind(|node| **node != before).unwrap();
    bed.change::<VirtualMachine>("web-server", json!({ "placementRef": { "name": "here" } }))
        .await;
    ask(&bed, None).await;
    bed.until_reason::<VMMigration>("move", "Ready", "PlacementPolicyNotFound")
        .await;
    assert_eq!(bed.guest("web-server").await.node, before);
    bed.apply(&format!(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMPlacementPolicy
metadata: {{ name: here }}
spec: {{ nodeSelector: [{target}] }}
"
    ))
    .await;
    bed.until_ready::<VMMigration>("move").await;
    assert_eq!(bed.guest("web-server").await.node, *target);
}

#[tokio::test(start_paused = true)]
async fn a_machine_follows_the_node_its_spec_names() {
    let bed = with_machine().await;
    let before = bed.guest("web-server").await;
    let target = beside(&bed, &before.node);
    bed.change::<VirtualMachine>("web-server", json!({ "node": target }))
        .await;
    bed.until_reason::<VirtualMachine>("web-server", "Ready", "Migrating")
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let after = bed.guest("web-server").await;
    assert_eq!((after.node, after.vmid), (target, before.vmid));
    assert!(after.running);
    bed.sleep(Duration::from_mins(2)).await;
    assert_eq!(
        bed.names::<VMMigration>().await,
        Vec::<String>::new(),
        "the move is cleared away"
    );
}

#[tokio::test(start_paused = true)]
async fn a_move_that_cannot_be_is_said_by_the_machine() {
    let bed = with_machine().await;
    let before = bed.guest("web-server").await;
    bed.change::<VirtualMachine>("web-server", json!({ "node": "nowhere" }))
        .await;
    bed.sleep(Duration::from_mins(5)).await;
    let machine: VirtualMachine = bed.get("web-server").await;
    let status = machine.status.unwrap();
    let ready = condition(&status.conditions, "Ready").unwrap();
    assert_eq!(ready.status, "False");
    assert!(ready.message.contains("nowhere"), "{}", ready.message);
    assert_eq!(bed.guest("web-server").await, before);
}

#[tokio::test(start_paused = true)]
async fn a_node_in_maintenance_is_left_by_the_machines_that_run_on_it() {
    let bed = prepared().await;
    for name in ["web-1", "web-2", "idle"] {
        let named = manifest!("machine").replace("name: web-server", &format!("name: {name}"));
        bed.apply(&named).await;
        bed.until_ready::<VirtualMachine>(name).await;
    }
    bed.change::<VirtualMachine>("idle", json!({ "powerState": "Off" }))
        .await;
    let off: VirtualMachine = bed.until_ready("idle").await;
    let machine: VirtualMachine = bed.get("web-1").await;
    let node = machine.status.unwrap().node.unwrap();
    bed.change::<VirtualMachine>("web-2", json!({ "node": node }))
        .await;
    let there = |machine: &VirtualMachine| {
        let status = machine.status.as_ref();
        status.and_then(|status| status.node.as_ref()) == Some(&node)
    };
    bed.until("web-2", "there", there).await;
    bed.until_ready::<VirtualMachine>("web-2").await;
    bed.sleep(Duration::from_mins(1)).await;

    bed.pve().maintain_node(&node, true);
    let elsewhere = |machine: &VirtualMachine| !there(machine);
    bed.until("web-1", "elsewhere", elsewhere).await;
    assert!(bed.guest("web-1").await.running);
    assert_ne!(bed.guest("web-1").await.node, node);
    bed.sleep(Duration::from_mins(2)).await;
    let pinned: VirtualMachine = bed.get("web-2").await;
    assert!(there(&pinned), "who is pinned there stays");
    let off_now: VirtualMachine = bed.get("idle").await;
    assert_eq!(off_now.status.unwrap().node, off.status.unwrap().node);
    bed.until_ready::<VirtualMachine>("web-1").await;
    assert_eq!(bed.names::<VMMigration>().await, Vec::<String>::new());

    // Nobody goes back by itself.
    bed.pve().maintain_node(&node, false);
    bed.sleep(Duration::from_mins(2)).await;
    let after: VirtualMachine = bed.get("web-1").await;
    assert!(!there(&after));
}

/// A machine with a disc in its drive that is on its node alone, so that it cannot leave.
async fn held_by_a_disc(bed: &Bed) -> Guest {
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(1)).await;
    let guest = bed.guest("web-server").await;
    let node = bed
        .root()
        .node(&pve::NodeName::new(guest.node.as_str()).unwrap());
    let disc = pve::api::storage::upload::Upload::iso("tools.iso", 4);
    let local = node.storage(&pve::StorageId::new("local").unwrap());
    local.upload_bytes(&disc, "disc".into()).await.unwrap();
    bed.sleep(Duration::from_mins(1)).await;
    let drive = "local:iso/tools.iso,media=cdrom";
    // A new drive takes a restart.
    for (power, drive) in [("Off", Some(drive)), ("On", None)] {
        bed.change::<VirtualMachine>("web-server", json!({ "powerState": power }))
            .await;
        bed.until_ready::<VirtualMachine>("web-server").await;
        if let Some(drive) = drive {
            bed.configure(&guest, "ide0", drive).await;
        }
    }
    guest
}

#[tokio::test(start_paused = true)]
async fn a_move_that_failed_is_not_begun_again_by_a_restart() {
    let mut bed = prepared().await;
    let guest = held_by_a_disc(&bed).await;
    let target = beside(&bed, &guest.node);
    ask(&bed, Some(&target)).await;
    let failed = |it: &VMMigration| {
        let status = it.status.as_ref();
        status.is_some_and(|status| status.phase == Some(Phase::Failed))
    };
    bed.until("move", "failed", failed).await;
    bed.configure(&guest, "ide0", "none,media=cdrom").await;
    let tried = bed.count("POST /nodes/{node}/qemu/{vmid}/migrate");
    bed.crash_operator().await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(15)).await;
    assert_eq!(bed.count("POST /nodes/{node}/qemu/{vmid}/migrate"), tried);
    assert!(failed(&bed.get("move").await));
    assert_eq!(bed.guest("web-server").await.node, guest.node);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_could_not_leave_a_node_tries_again() {
    let bed = prepared().await;
    let guest = held_by_a_disc(&bed).await;
    bed.pve().maintain_node(&guest.node, true);
    bed.sleep(Duration::from_mins(5)).await;
    let names = bed.names::<VMMigration>().await;
    let failed: VMMigration = bed.get(&names[0]).await;
    assert_eq!(failed.status.unwrap().phase, Some(Phase::Failed));
    bed.configure(&guest, "ide0", "none,media=cdrom").await;
    bed.sleep(Duration::from_mins(15)).await;
    assert_ne!(bed.guest("web-server").await.node, guest.node);
}

#[tokio::test(start_paused = true)]
async fn a_move_that_still_waits_is_taken_back_when_the_maintenance_ends() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMPlacementPolicy
metadata: { name: here-only }
spec: { nodeSelector: [pve2] }
",
    )
    .await;
    let placed = format!(
        "{}  placementRef: {{ name: here-only }}\n",
        manifest!("machine")
    );
    bed.apply(&placed).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.pve().maintain_node("pve2", true);
    bed.sleep(Duration::from_mins(2)).await;
    let waiting = bed.names::<VMMigration>().await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    bed.pve().maintain_node("pve2", false);
    bed.sleep(Duration::from_mins(2)).await;
    assert_eq!(bed.names::<VMMigration>().await, Vec::<String>::new());
    assert_eq!(bed.guest("web-server").await.node, "pve2");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_leave_a_node_is_stopped_for_it_once() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.sleep(Duration::from_mins(1)).await;
    let migrate = "POST /nodes/{node}/lxc/{vmid}/migrate";
    let exit = "command 'rsync' failed: exit code 23".to_owned();
    let fault = pve_sim::Fault::every(migrate, pve_sim::Action::FailTask { exit });
    bed.pve().control().inject(fault);
    let guest = bed.guest("cache").await;
    bed.pve().maintain_node(&guest.node, true);
    bed.sleep(Duration::from_hours(1)).await;
    assert_eq!(bed.count(migrate), 1);
    let names = bed.names::<VMMigration>().await;
    bed.until_reason::<VMMigration>(&names[0], "Ready", "GaveUp")
        .await;
    // Whoever has put it right says so.
    bed.pve().control().clear();
    bed.delete::<VMMigration>(&names[0]).await;
    bed.sleep(Duration::from_mins(5)).await;
    assert_ne!(bed.guest("cache").await.node, guest.node);
}
