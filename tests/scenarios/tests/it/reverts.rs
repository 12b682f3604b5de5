//! Going back to a snapshot, as declared state.

use std::time::Duration;

use api::vm::{VMSnapshot, VirtualMachine, condition};
use scenarios::Bed;
use serde_json::{Value, json};

use crate::prepared;

const ROLLBACK: &str = "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback";

fn machine(storage: &str) -> Value {
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": { "name": "web" },
        "spec": {
            "classRef": { "name": "small" }, "imageRef": { "name": "ubuntu-22" },
            "disks": [
                { "name": "root", "size": "40Gi" },
                { "name": "data", "size": "2Gi", "storage": storage },
            ],
        },
    })
}

async fn snapshot(bed: &Bed, name: &str) {
    let snapshot = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
        "metadata": { "name": name }, "spec": { "vmRef": { "name": "web" } },
    });
    bed.try_apply(&snapshot).await.unwrap();
    bed.until_ready::<VMSnapshot>(name).await;
}

async fn go_back(bed: &Bed, to: Option<&str>) {
    let to = to.map(|name| json!({ "revertToRef": { "name": name } }));
    bed.change::<VirtualMachine>("web", json!({ "snapshot": to }))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_not_ready_until_it_is_back_and_goes_back_once_for_each_wish() {
    let bed = prepared().await;
    bed.try_apply(&machine("local-lvm")).await.unwrap();
    bed.until_ready::<VirtualMachine>("web").await;
    snapshot(&bed, "before").await;
    for times in 1..3 {
        go_back(&bed, Some("before")).await;
        bed.until_ready::<VirtualMachine>("web").await;
        assert_eq!(bed.count(ROLLBACK), times, "it is back when it is ready");
        bed.sleep(Duration::from_mins(5)).await;
        assert_eq!(bed.count(ROLLBACK), times, "once is enough");
        go_back(&bed, None).await;
        bed.until_ready::<VirtualMachine>("web").await;
    }
    // Where it went back to may go.
    go_back(&bed, Some("before")).await;
    bed.until_ready::<VirtualMachine>("web").await;
    bed.delete::<VMSnapshot>("before").await;
    bed.sleep(Duration::from_mins(5)).await;
    bed.until_ready::<VirtualMachine>("web").await;
    // Another one of that name is not what was wished for.
    let times = bed.count(ROLLBACK);
    snapshot(&bed, "before").await;
    bed.sleep(Duration::from_mins(5)).await;
    assert_eq!(bed.count(ROLLBACK), times, "nobody asked for it");
    bed.until_ready::<VirtualMachine>("web").await;
    // Whoever asks anew means the new one.
    go_back(&bed, None).await;
    bed.until_ready::<VirtualMachine>("web").await;
    go_back(&bed, Some("before")).await;
    bed.until_ready::<VirtualMachine>("web").await;
    assert_eq!(bed.count(ROLLBACK), times + 1);
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_was_not_fulfilled_does_not_pass_to_another_snapshot_of_that_name() {
    let bed = prepared().await;
    bed.try_apply(&machine("tank")).await.unwrap();
    bed.until_ready::<VirtualMachine>("web").await;
    for name in ["first", "second"] {
        snapshot(&bed, name).await;
        bed.sleep(Duration::from_secs(5)).await;
    }
    go_back(&bed, Some("first")).await;
    bed.until_reason::<VMSnapshot>("first", "Ready", "InUse")
        .await;
    let times = bed.count(ROLLBACK);
    bed.delete::<VMSnapshot>("first").await;
    bed.until_reason::<VirtualMachine>("web", "Ready", "SnapshotNotFound")
        .await;
    snapshot(&bed, "first").await;
    bed.sleep(Duration::from_mins(5)).await;
    assert_eq!(bed.count(ROLLBACK), times);
    let another = |machine: &VirtualMachine| {
        let status = machine.status.clone().unwrap_or_default();
        let ready = condition(&status.conditions, "Ready").cloned();
        ready.is_some_and(|it| it.status == "False" && it.message.contains("another one"))
    };
    bed.until("web", "told that it is another", another).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_named_like_an_earlier_one_is_not_back_where_that_one_was() {
    let bed = prepared().await;
    bed.try_apply(&machine("local-lvm")).await.unwrap();
    bed.until_ready::<VirtualMachine>("web").await;
    snapshot(&bed, "before").await;
    go_back(&bed, Some("before")).await;
    bed.until_ready::<VirtualMachine>("web").await;
    bed.delete::<VirtualMachine>("web").await;
    let mut again = machine("local-lvm");
    again["spec"]["snapshot"] = json!({ "revertToRef": { "name": "before" } });
    bed.try_apply(&again).await.unwrap();
    bed.until_reason::<VirtualMachine>("web", "Ready", "RevertFailed")
        .await;
    let status = bed.get::<VirtualMachine>("web").await.status.unwrap();
    assert_eq!(status.reverted_to, None);
}

/// Takes a machine's guest over by another object of its name.
async fn take_over_again(bed: &Bed, wish: Option<&str>) {
    let vmid = bed.guest("web").await.vmid;
    bed.delete::<VirtualMachine>("web").await;
    let mut again = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": { "name": "web" },
        "spec": { "adopt": { "vmid": vmid } },
    });
    if let Some(name) = wish {
        again["spec"]["snapshot"] = json!({ "revertToRef": { "name": name } });
    }
    bed.try_apply(&again).await.unwrap();
    bed.until_ready::<VirtualMachine>("web").await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_taken_over_again_goes_back_for_the_wishes_of_its_new_object() {
    let bed = prepared().await;
    let mut orphaned = machine("local-lvm");
    orphaned["spec"]["deletionPolicy"] = json!("Orphan");
    bed.try_apply(&orphaned).await.unwrap();
    bed.until_ready::<VirtualMachine>("web").await;
    snapshot(&bed, "before").await;
    for name in ["none", "before"] {
        // Wishes that count more changes of the spec than the next object has.
        go_back(&bed, Some(name)).await;
    }
    bed.until_ready::<VirtualMachine>("web").await;
    for times in 1..3 {
        assert_eq!(bed.count(ROLLBACK), times);
        take_over_again(&bed, None).await;
        bed.until_ready::<VMSnapshot>("before").await;
        go_back(&bed, Some("before")).await;
        bed.until_ready::<VirtualMachine>("web").await;
        assert_eq!(
            bed.count(ROLLBACK),
            times + 1,
            "it is back when it is ready"
        );
    }
    // What is written down of an object says what was wished for long ago.
    take_over_again(&bed, Some("before")).await;
    bed.sleep(Duration::from_mins(5)).await;
    assert_eq!(bed.count(ROLLBACK), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_way_of_going_back_is_named_and_waited_for() {
    let bed = prepared().await;
    bed.try_apply(&machine("tank")).await.unwrap();
    bed.until_ready::<VirtualMachine>("web").await;
    for name in ["first", "second"] {
        snapshot(&bed, name).await;
        bed.sleep(Duration::from_secs(5)).await;
    }
    go_back(&bed, Some("first")).await;
    let held_up = |machine: &VirtualMachine| {
        let status = machine.status.clone().unwrap_or_default();
        let ready = condition(&status.conditions, "Ready").cloned();
        ready.is_some_and(|it| it.reason == "Reverting" && it.message.contains("(second)"))
    };
    bed.until("web", "held up", held_up).await;
    bed.until_reason::<VMSnapshot>("first", "Ready", "InUse")
        .await;
    bed.sleep(Duration::from_mins(30)).await;
    assert_eq!(bed.count(ROLLBACK), 1, "it is in vain until one goes");
    assert!(bed.guest("web").await.running);
    bed.delete::<VMSnapshot>("second").await;
    bed.until_ready::<VirtualMachine>("web").await;
    let status = bed.get::<VirtualMachine>("web").await.status.unwrap();
    assert_eq!(status.reverted_to.as_deref(), Some("first"));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_not_there_is_said_to_be_missing() {
    let bed = prepared().await;
    bed.try_apply(&machine("local-lvm")).await.unwrap();
    bed.until_ready::<VirtualMachine>("web").await;
    go_back(&bed, Some("never")).await;
    bed.until_reason::<VirtualMachine>("web", "Ready", "SnapshotNotFound")
        .await;
    go_back(&bed, None).await;
    bed.until_ready::<VirtualMachine>("web").await;
}
