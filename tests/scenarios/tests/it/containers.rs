//! Containers through the same door as machines.

use std::time::Duration;

use api::vm::{Container, GuestRef, Phase, VMBackup, VMMigration, VMRestore, VMSnapshot};
use pve_sim::{Action, Fault};
use serde_json::json;

use crate::prepared;

#[tokio::test(start_paused = true)]
async fn a_container_comes_and_goes() {
    let bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    assert!(bed.guest("cache").await.running);
    bed.delete::<Container>("cache").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_container_is_snapshotted_taken_back_and_backed_up() {
    let bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMSnapshot
metadata: { name: before }
spec: { vmRef: { kind: Container, name: cache } }
",
    )
    .await;
    bed.until_ready::<VMSnapshot>("before").await;
    bed.change::<Container>("cache", json!({ "tags": ["after"] }))
        .await;
    bed.until_ready::<Container>("cache").await;
    let revert = json!({ "tags": null, "snapshot": { "revertToRef": { "name": "before" } } });
    bed.change::<Container>("cache", revert).await;
    bed.until("cache", "set back", |container: &Container| {
        let status = container.status.as_ref();
        status.is_some_and(|status| status.reverted_to.as_deref() == Some("before"))
    })
    .await;
    bed.until_ready::<Container>("cache").await;
    bed.sleep(Duration::from_mins(1)).await;
    let guest = bed.guest("cache").await;
    assert!(guest.running);
    assert_eq!(guest.key("tags"), "", "what came later is undone");
    bed.delete::<VMSnapshot>("before").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { kind: Container, name: cache }, storage: local, deletionPolicy: Delete }
",
    )
    .await;
    bed.until_ready::<VMBackup>("nightly").await;
    bed.delete::<VMBackup>("nightly").await;
    bed.delete::<Container>("cache").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_container_follows_its_node_and_leaves_one_in_maintenance() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    let made: Container = bed.until_ready("cache").await;
    let first = made.status.unwrap().node.unwrap();
    let nodes = bed.pve().nodes();
    let second = nodes.into_iter().find(|node| *node != first).unwrap();
    bed.change::<Container>("cache", json!({ "node": second }))
        .await;
    bed.until_reason::<Container>("cache", "Ready", "Migrating")
        .await;
    bed.until_ready::<Container>("cache").await;
    assert_eq!(bed.guest("cache").await.node, second);
    bed.change::<Container>("cache", json!({ "node": null }))
        .await;
    bed.until_ready::<Container>("cache").await;
    bed.pve().maintain_node(&second, true);
    bed.until("cache", "elsewhere", |container: &Container| {
        let node = container.status.as_ref().and_then(|it| it.node.as_ref());
        node.is_some_and(|node| *node != second)
    })
    .await;
    bed.until_ready::<Container>("cache").await;
    assert!(bed.guest("cache").await.running);
    bed.sleep(Duration::from_mins(2)).await;
    assert_eq!(bed.names::<VMMigration>().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_container_is_backed_up_and_restored_with_what_it_had() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.change::<Container>("cache", json!({ "memory": "768Mi" }))
        .await;
    bed.until_ready::<Container>("cache").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { kind: Container, name: cache }, storage: nfs, deletionPolicy: Delete }
",
    )
    .await;
    bed.until_ready::<VMBackup>("nightly").await;
    let before = bed.guest("cache").await;
    bed.delete::<Container>("cache").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMRestore
metadata: { name: again }
spec: { backupRef: { name: nightly }, targetName: cache-restored, start: true }
",
    )
    .await;
    let restore: VMRestore = bed.until_ready("again").await;
    let target = restore.status.unwrap().target_ref.unwrap();
    assert_eq!(target, GuestRef::container("cache-restored"));
    let restored = bed.guest("cache-restored").await;
    assert!(restored.running);
    assert_eq!(restored.key("memory"), before.key("memory"));
    assert_eq!(restored.key("unprivileged"), before.key("unprivileged"));
    assert_ne!(restored.key("net0"), before.key("net0"));
    bed.delete::<VMBackup>("nightly").await;
    bed.until_ready::<Container>("cache-restored").await;
    assert_eq!(bed.backups("nfs").await, Vec::<String>::new());
}

/// As Proxmox VE before 8.1 answers, which knows of no container what addresses it has.
#[tokio::test(start_paused = true)]
async fn a_start_says_nothing_new_of_containers_that_nobody_can_ask() {
    let mut bed = prepared().await;
    let unknown = Action::Error {
        status: 501,
        message: "Method 'GET /nodes/pve1/lxc/100/interfaces' not implemented".to_owned(),
    };
    let asking = "GET /nodes/{node}/lxc/{vmid}/interfaces";
    bed.pve().control().inject(Fault::every(asking, unknown));
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.pve().control().reset_counts();
    assert_eq!(bed.writes_of_a_restart().await, Vec::<String>::new());
    assert_eq!(bed.count(asking), 1, "it was asked again");
}

/// What it is made with is missing for a while, and it runs all the same.
#[tokio::test(start_paused = true)]
async fn a_container_that_runs_does_not_turn_pending_for_want_of_its_policy() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.change::<Container>("cache", json!({ "placementRef": { "name": "later" } }))
        .await;
    let waits: Container = bed
        .until_reason("cache", "Ready", "PlacementPolicyNotFound")
        .await;
    assert_eq!(waits.status.unwrap().phase, Some(Phase::Running));
}

#[tokio::test(start_paused = true)]
async fn a_container_says_what_waits_for_its_restart() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.change::<Container>("cache", json!({ "features": ["nesting=1"] }))
        .await;
    let waits: Container = bed
        .until_reason("cache", "RestartRequired", "PendingChanges")
        .await;
    let conditions = waits.status.unwrap().conditions;
    let message = &api::vm::condition(&conditions, "RestartRequired")
        .unwrap()
        .message;
    assert!(message.contains("features"), "{message}");
    for on in [false, true] {
        bed.change::<Container>("cache", json!({ "powerState": on }))
            .await;
        bed.until_ready::<Container>("cache").await;
    }
    bed.until_reason::<Container>("cache", "RestartRequired", "NothingPending")
        .await;
}
