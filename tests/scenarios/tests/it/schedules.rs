//! How long the snapshots of a schedule stay.

use std::{cell::Cell, time::Duration};

use api::vm::{Phase, VMSnapshot, VMSnapshotSchedule, VirtualMachine};
use controllers::Clock;
use jiff::{SignedDuration, Timestamp};
use scenarios::Bed;
use serde_json::{Value, json};

use crate::{manifest, prepared, with_machine};

/// A bed with a machine, a schedule that is not due for long, and a snapshot of it that is to go in an hour.
async fn taken(suspend: bool) -> Bed {
    let bed = with_machine().await;
    let schedule = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshotSchedule",
        "metadata": { "name": "seldom" },
        "spec": {
            "vmRef": { "name": "web-server" }, "schedule": "0 0 1 1 *",
            "retention": { "maxAgeHours": 1 }, "suspend": suspend,
        },
    });
    bed.try_apply(&schedule).await.unwrap();
    bed.try_apply(&snapshot("taken")).await.unwrap();
    bed.until_ready::<VMSnapshotSchedule>("seldom").await;
    bed.until_ready::<VMSnapshot>("taken").await;
    bed
}

/// A snapshot of that schedule.
fn snapshot(name: &str) -> Value {
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
        "metadata": { "name": name, "labels": { "infra.virtrigaud.io/schedule": "seldom" } },
        "spec": { "vmRef": { "name": "web-server" }, "deletionPolicy": "Delete" },
    })
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_goes_when_it_is_too_old_though_no_other_is_due() {
    for suspended in [false, true] {
        let bed = taken(suspended).await;
        bed.sleep(Duration::from_mins(50)).await;
        bed.try_apply(&snapshot("newest")).await.unwrap();
        bed.until_ready::<VMSnapshot>("newest").await;
        assert_eq!(bed.names::<VMSnapshot>().await, ["newest", "taken"]);
        bed.sleep(Duration::from_mins(15)).await;
        assert_eq!(bed.names::<VMSnapshot>().await, ["newest"]);
        assert_eq!(bed.snapshots("web-server").await, ["newest"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_good_snapshot_stays_however_old_it_is() {
    let bed = taken(true).await;
    bed.sleep(Duration::from_hours(48)).await;
    assert_eq!(bed.names::<VMSnapshot>().await, ["taken"]);
    assert_eq!(bed.snapshots("web-server").await, ["taken"]);
}

thread_local! {
    /// What the controllers' machine takes for the time.
    static SHOWN: Cell<Option<Clock>> = const { Cell::new(None) };
}

#[tokio::test(start_paused = true)]
async fn a_schedule_keeps_to_a_clock_that_is_set_right_while_it_runs() {
    let mut bed = with_machine().await;
    let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
    let right = Clock::starting_at(now);
    let ahead = now + SignedDuration::from_hours(27);
    SHOWN.set(Some(Clock::starting_at(ahead)));
    bed.crash_operator().await;
    bed.set_clock(Clock::reading(|| SHOWN.get().unwrap().now()));
    bed.start_operator();
    let schedule = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshotSchedule",
        "metadata": { "name": "daily" },
        "spec": {
            "vmRef": { "name": "web-server" }, "schedule": "0 3,4 * * *",
            "retention": { "maxAgeHours": 24 },
        },
    });
    bed.try_apply(&schedule).await.unwrap();
    bed.sleep(Duration::from_hours(1)).await;
    let first = "daily-web-server-202601020400";
    bed.until_ready::<VMSnapshot>(first).await;
    bed.sleep(Duration::from_mins(10)).await;
    assert_eq!(
        bed.names::<VMSnapshot>().await,
        [first],
        "the last one stays"
    );
    SHOWN.set(Some(right));
    bed.sleep(Duration::from_hours(2)).await;
    let next = "daily-web-server-202601010300";
    bed.until_ready::<VMSnapshot>(next).await;
    assert_eq!(bed.names::<VMSnapshot>().await, [next, first]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_schedule_stays_when_the_operator_starts_again() {
    let mut bed = taken(false).await;
    bed.crash_operator().await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.names::<VMSnapshot>().await, ["taken"]);
    assert_eq!(bed.snapshots("web-server").await, ["taken"]);
    bed.until_ready::<VMSnapshot>("taken").await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_schedule_stays_when_its_machine_goes_back_to_it() {
    let bed = taken(false).await;
    let to = json!({ "snapshot": { "revertToRef": { "name": "taken" } } });
    bed.change::<VirtualMachine>("web-server", to).await;
    bed.until("web-server", "set back", |vm: &VirtualMachine| {
        let status = vm.status.as_ref();
        status.is_some_and(|status| status.reverted_to.as_deref() == Some("taken"))
    })
    .await;
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.names::<VMSnapshot>().await, ["taken"]);
    assert_eq!(bed.snapshots("web-server").await, ["taken"]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_schedule_goes_when_its_guest_has_gone() {
    let bed = taken(false).await;
    bed.delete::<VirtualMachine>("web-server").await;
    bed.until_gone::<VMSnapshot>("taken").await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_of_a_machine_that_is_not_there_says_so_until_it_comes() {
    let bed = prepared().await;
    let schedule = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshotSchedule",
        "metadata": { "name": "hourly" },
        "spec": { "vmRef": { "name": "web-server" }, "schedule": "0 * * * *" },
    });
    bed.try_apply(&schedule).await.unwrap();
    bed.until_reason::<VMSnapshotSchedule>("hourly", "Ready", "MachineNotFound")
        .await;
    bed.sleep(Duration::from_mins(150)).await;
    let status = bed
        .get::<VMSnapshotSchedule>("hourly")
        .await
        .status
        .unwrap();
    assert_eq!(status.last_schedule_time, None, "nothing was taken");
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.until_ready::<VMSnapshotSchedule>("hourly").await;
    bed.sleep(Duration::from_hours(1)).await;
    assert_eq!(bed.names::<VMSnapshot>().await.len(), 1);
}

/// A machine whose disks have no snapshots.
async fn without_snapshots() -> Bed {
    let bed = prepared().await;
    let busy = pve_sim::Action::die("snapshot feature is not available");
    let route = "POST /nodes/{node}/qemu/{vmid}/snapshot";
    bed.pve()
        .control()
        .inject(pve_sim::Fault::every(route, busy));
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_could_not_be_taken_is_not_taken_later_by_itself() {
    let mut bed = without_snapshots().await;
    bed.apply(manifest!("snapshot-memory")).await;
    let failed = |snapshot: &VMSnapshot| {
        let status = snapshot.status.as_ref();
        status.is_some_and(|status| status.phase == Some(Phase::Failed))
    };
    bed.until("before-upgrade", "Failed", failed).await;
    let route = "POST /nodes/{node}/qemu/{vmid}/snapshot";
    let tried = bed.count(route);
    bed.pve().control().clear();
    bed.change::<VirtualMachine>("web-server", json!({ "tags": ["new"] }))
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.crash_operator().await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(10)).await;
    assert_eq!(bed.count(route), tried);
    bed.until("before-upgrade", "Failed still", failed).await;
    bed.delete::<VMSnapshot>("before-upgrade").await;
}

#[tokio::test(start_paused = true)]
async fn of_the_snapshots_of_a_schedule_that_fail_the_last_one_stays() {
    let bed = without_snapshots().await;
    let schedule = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshotSchedule",
        "metadata": { "name": "hourly" },
        "spec": { "vmRef": { "name": "web-server" }, "schedule": "0 * * * *" },
    });
    bed.try_apply(&schedule).await.unwrap();
    bed.sleep(Duration::from_hours(5)).await;
    assert_eq!(bed.names::<VMSnapshot>().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn snapshots_that_cannot_be_taken_yet_do_not_pile_up() {
    let bed = with_machine().await;
    let away = pve_sim::Action::DropRequest;
    let route = "POST /nodes/{node}/qemu/{vmid}/snapshot";
    bed.pve()
        .control()
        .inject(pve_sim::Fault::every(route, away));
    let schedule = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshotSchedule",
        "metadata": { "name": "often" },
        "spec": { "vmRef": { "name": "web-server" }, "schedule": "* * * * *" },
    });
    bed.try_apply(&schedule).await.unwrap();
    bed.sleep(Duration::from_mins(30)).await;
    let waiting = bed.names::<VMSnapshot>().await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    assert!(bed.story("often").await.contains("is not taken yet"));
    bed.pve().control().clear();
    bed.until_ready::<VMSnapshot>(&waiting[0]).await;
    bed.sleep(Duration::from_mins(2)).await;
    assert!(bed.names::<VMSnapshot>().await.len() > 1);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_let_go_keeps_the_snapshots_of_its_schedule() {
    let bed = taken(false).await;
    let stays = json!({ "deletionPolicy": "Orphan" });
    bed.change::<VirtualMachine>("web-server", stays).await;
    let guest = bed.guest("web-server").await;
    bed.delete::<VirtualMachine>("web-server").await;
    bed.until_gone::<VMSnapshot>("taken").await;
    assert_eq!(bed.guest("web-server").await.vmid, guest.vmid);
    assert_eq!(bed.snapshots("web-server").await, ["taken"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_skipped_is_told_once_for_all_machines() {
    let bed = prepared().await;
    for name in ["one", "two"] {
        let machine = manifest!("machine").replace("name: web-server", &format!("name: {name}"));
        bed.apply(&machine).await;
    }
    for name in ["one", "two"] {
        bed.until_ready::<VirtualMachine>(name).await;
    }
    let route = "POST /nodes/{node}/qemu/{vmid}/snapshot";
    let away = pve_sim::Fault::every(route, pve_sim::Action::DropRequest);
    bed.pve().control().inject(away);
    let schedule = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshotSchedule",
        "metadata": { "name": "often" }, "spec": { "selector": {}, "schedule": "* * * * *" },
    });
    bed.try_apply(&schedule).await.unwrap();
    bed.sleep(Duration::from_mins(10)).await;
    bed.until_reason::<VMSnapshotSchedule>("often", "Ready", "Skipped")
        .await;
    let story = bed.story("often").await;
    let told = story.lines().filter(|line| line.contains("Skipped"));
    assert_eq!(told.count(), 1, "{story}");
    assert!(
        story.contains("of one:") && story.contains("nor of 1 other"),
        "{story}"
    );
}

/// A bed with a machine, and a schedule that keeps so many snapshots of it.
async fn hourly(keep: u32) -> Bed {
    let bed = with_machine().await;
    let schedule = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshotSchedule",
        "metadata": { "name": "hourly" },
        "spec": {
            "vmRef": { "name": "web-server" }, "schedule": "0 * * * *",
            "retention": { "maxCount": keep },
        },
    });
    bed.try_apply(&schedule).await.unwrap();
    bed.until_ready::<VMSnapshotSchedule>("hourly").await;
    bed
}

#[tokio::test(start_paused = true)]
async fn a_schedule_takes_snapshots_and_keeps_the_newest() {
    let bed = hourly(2).await;
    bed.sleep(Duration::from_mins(250)).await;
    let names = bed.names::<VMSnapshot>().await;
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_forgets_what_went_with_its_machine() {
    let bed = hourly(5).await;
    bed.sleep(Duration::from_mins(130)).await;
    let before = bed.names::<VMSnapshot>().await;
    assert_eq!(before.len(), 2, "{before:?}");
    bed.delete::<VirtualMachine>("web-server").await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(70)).await;
    let after = bed.names::<VMSnapshot>().await;
    assert!(after.iter().all(|it| !before.contains(it)), "{after:?}");
    assert!(!after.is_empty());
}
