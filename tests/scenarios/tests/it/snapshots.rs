//! Snapshots, which are taken, gone back to and removed.

use std::time::Duration;

use api::vm::{Phase, VMSnapshot, VirtualMachine, condition};
use serde_json::json;

use crate::{manifest, with_machine};

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_memory_is_taken_gone_back_to_and_removed() {
    let bed = with_machine().await;
    bed.apply(manifest!("snapshot-memory")).await;
    let snapshot: VMSnapshot = bed.until_ready("before-upgrade").await;
    let status = snapshot.status.unwrap();
    assert_eq!(status.snapshot_name.as_deref(), Some("before-upgrade"));
    assert_eq!(status.memory, Some(true));

    bed.change::<VirtualMachine>("web-server", json!({ "tags": ["after"] }))
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let revert = json!({ "snapshot": { "revertToRef": { "name": "before-upgrade" } } });
    bed.change::<VirtualMachine>("web-server", revert).await;
    bed.until("web-server", "set back", |vm: &VirtualMachine| {
        vm.status
            .as_ref()
            .is_some_and(|status| status.reverted_to.as_deref() == Some("before-upgrade"))
    })
    .await;
    bed.delete::<VMSnapshot>("before-upgrade").await;
    bed.delete::<VirtualMachine>("web-server").await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_lists_those_that_build_on_it() {
    let bed = with_machine().await;
    for name in ["first", "second"] {
        let taken = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
            "metadata": { "name": name }, "spec": { "vmRef": { "name": "web-server" } },
        });
        bed.try_apply(&taken).await.unwrap();
        bed.until_ready::<VMSnapshot>(name).await;
    }
    let children = |snapshot: &VMSnapshot| snapshot.status.clone().unwrap_or_default().children;
    let has_one = |first: &VMSnapshot| children(first) == ["second"];
    bed.until("first", "built upon", has_one).await;
    bed.delete::<VMSnapshot>("second").await;
    let has_none = |first: &VMSnapshot| children(first).is_empty();
    bed.until("first", "left", has_none).await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_says_that_it_went_with_its_machine_also_when_there_is_a_new_one_of_that_name() {
    let bed = with_machine().await;
    bed.apply(manifest!("snapshot-memory")).await;
    bed.until_ready::<VMSnapshot>("before-upgrade").await;
    bed.delete::<VirtualMachine>("web-server").await;
    let is_lost = |snapshot: &VMSnapshot| {
        let status = snapshot.status.clone().unwrap_or_default();
        let ready = condition(&status.conditions, "Ready").cloned();
        status.phase == Some(Phase::Failed) && ready.is_some_and(|it| it.reason == "GuestLost")
    };
    bed.until("before-upgrade", "lost", is_lost).await;

    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(1)).await;
    bed.until("before-upgrade", "still lost", is_lost).await;
    bed.delete::<VMSnapshot>("before-upgrade").await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_says_that_it_went_with_a_guest_that_somebody_destroyed() {
    let mut bed = with_machine().await;
    bed.apply(manifest!("snapshot-memory")).await;
    bed.until_ready::<VMSnapshot>("before-upgrade").await;
    bed.sleep(Duration::from_mins(1)).await;
    let free = "GET /cluster/nextid";
    let asked = bed.count(free);
    bed.sleep(Duration::from_mins(30)).await;
    assert_eq!(bed.count(free), asked, "what is kept costs nothing");
    bed.destroy("web-server").await;
    bed.until_reason::<VMSnapshot>("before-upgrade", "Ready", "GuestLost")
        .await;
    let asked = bed.count(free);
    bed.crash_operator().await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(30)).await;
    bed.until_reason::<VMSnapshot>("before-upgrade", "Ready", "GuestLost")
        .await;
    assert!(bed.count(free) <= asked + 2, "nor what is lost");
    bed.delete::<VMSnapshot>("before-upgrade").await;
}
