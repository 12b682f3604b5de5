//! Snapshots, and going back to them.

use std::time::Duration;

use fleet::{
    ActionProgress, ActionRecord, Outcome,
    intent::{SnapshotIntent, SnapshotWish},
};
use pve_sim::{Action, Fault};

use super::{TEMPLATE, settled};
use crate::harness::{Bench, cluster_name, machine, owner};

pub(super) fn snapshot(guest: pve::Vmid, wish: SnapshotWish) -> SnapshotIntent {
    SnapshotIntent {
        owner: owner("snap"),
        cluster: cluster_name(),
        guest,
        guest_owner: Some(owner("web")),
        guest_keeper: None,
        likeness: fleet::record::Likeness::default(),
        name: "before-upgrade".to_owned(),
        description: "Pre-maintenance snapshot".to_owned(),
        memory: true,
        wish,
    }
}

/// Its first-boot image waits in the drive for as long as it is off; there is no memory that would want it back.
#[tokio::test(start_paused = true)]
async fn a_machine_that_was_never_started_can_be_snapshotted() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut off = machine("web", TEMPLATE);
    off.power = fleet::intent::Power::Off;
    let owner = bench.want(off);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    let mut record = ActionRecord::default();
    let intent = snapshot(vmid, SnapshotWish::Present);
    let made = drive!(bench, snapshot, intent, record);
    assert_eq!(made.outcome, Outcome::Settled, "{}", bench.stories());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_begun_before_a_crash_is_removed_when_it_is_there() {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    let noted = ActionRecord::default();
    let noted = bench.fleet.snapshot(&intent, &noted).await;
    assert_eq!(noted.outcome, Outcome::Persist);
    assert!(noted.record.subject.is_some(), "{noted:?}");
    let begun = bench.fleet.snapshot(&intent, &noted.record).await;
    assert!(
        matches!(begun.outcome, Outcome::Working { .. }),
        "{begun:?}"
    );
    // What it returned is never stored.
    bench.restart();
    bench.ready().await;
    let mut record = noted.record;
    let intent = snapshot(identity.vmid, SnapshotWish::Absent);
    let removed = drive!(bench, snapshot, intent, record);
    assert_eq!(removed.outcome, Outcome::Gone);
    bench.run_for(Duration::from_mins(1)).await;
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let left = qemu.snapshots().await.unwrap();
    assert!(
        left.iter().all(|left| left.name != "before-upgrade"),
        "{left:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_memory_is_made_once_reverted_to_and_removed() {
    let (mut bench, identity) = settled().await;
    let mut record = ActionRecord::default();
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    let made = drive!(bench, snapshot, intent, record);
    assert_eq!(made.outcome, Outcome::Settled);
    assert_eq!(made.facts.memory, Some(true));
    // A record that was lost does not make a second one.
    let mut lost = ActionRecord::default();
    assert_eq!(
        drive!(bench, snapshot, intent, lost).outcome,
        Outcome::Settled
    );
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let names: Vec<String> = qemu
        .snapshots()
        .await
        .unwrap()
        .into_iter()
        .map(|snapshot| snapshot.name)
        .collect();
    assert_eq!(
        names
            .iter()
            .filter(|name| *name == "before-upgrade")
            .count(),
        1
    );

    let back = snapshot(
        identity.vmid,
        SnapshotWish::Reverted {
            generation: 1,
            start: true,
        },
    );
    let reverted = drive!(bench, snapshot, back, record);
    assert_eq!(reverted.outcome, Outcome::Settled);
    assert_eq!(reverted.record.reverted, 1);
    bench.run_for(Duration::from_mins(2)).await;
    assert!(qemu.status().await.unwrap().is_running());

    let gone = snapshot(identity.vmid, SnapshotWish::Absent);
    assert_eq!(drive!(bench, snapshot, gone, record).outcome, Outcome::Gone);
    assert!(
        qemu.snapshots()
            .await
            .unwrap()
            .iter()
            .all(|s| s.name != "before-upgrade")
    );
}

/// How often a guest was taken back to a snapshot.
async fn reverts(bench: &Bench, identity: &fleet::Identity) -> usize {
    let filter = pve::task::TaskFilter {
        vmid: Some(identity.vmid),
        kind: Some("qmrollback".to_owned()),
        source: pve::task::Source::All,
        ..pve::task::TaskFilter::default()
    };
    let node = bench.client().node(&identity.node);
    node.tasks(&filter).await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_revert_whose_answer_is_lost_is_not_done_twice() {
    let (mut bench, identity) = settled().await;
    let mut record = ActionRecord::default();
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    drive!(bench, snapshot, intent, record);
    for (generation, lost) in [
        (1, pve_sim::Action::DropAnswer),
        (2, pve_sim::Action::DropRequest),
    ] {
        let before = reverts(&bench, &identity).await;
        let fault = pve_sim::Fault::once("POST *", lost);
        bench.cluster().control().inject(fault);
        let start = true;
        let wish = SnapshotWish::Reverted { generation, start };
        let reverted = drive!(bench, snapshot, snapshot(identity.vmid, wish), record);
        assert_eq!(reverted.outcome, Outcome::Settled);
        assert_eq!(reverted.record.reverted, generation);
        assert_eq!(reverts(&bench, &identity).await, before + 1);
    }
    // Who starts anew with the record that was stored before the call finds its own work, too.
    let wish = SnapshotWish::Reverted {
        generation: 3,
        start: true,
    };
    let intent = snapshot(identity.vmid, wish);
    let prepared = bench.fleet.snapshot(&intent, &record).await;
    assert_eq!(prepared.outcome, Outcome::Persist);
    let mut stored = prepared.record.clone();
    let sent = bench.fleet.snapshot(&intent, &stored).await;
    assert!(matches!(sent.outcome, Outcome::Working { .. }), "{sent:?}");
    bench.restart();
    bench.ready().await;
    let before = reverts(&bench, &identity).await;
    let reverted = drive!(bench, snapshot, intent, stored);
    assert_eq!(reverted.record.reverted, 3);
    assert_eq!(reverts(&bench, &identity).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_revert_is_found_on_the_node_it_was_sent_to_when_its_guest_was_moved_since() {
    let (mut bench, identity) = settled().await;
    let mut record = ActionRecord::default();
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    drive!(bench, snapshot, intent, record);
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    // Nothing about the guest itself tells whether it was taken back.
    let without = pve::ConfigChange::delete(["vmgenid"]);
    qemu.configure(&without).await.unwrap();
    let wish = SnapshotWish::Reverted {
        generation: 1,
        start: true,
    };
    let intent = snapshot(identity.vmid, wish);
    let mut stored = bench.fleet.snapshot(&intent, &record).await.record;
    let sent = bench.fleet.snapshot(&intent, &stored).await;
    assert!(matches!(sent.outcome, Outcome::Working { .. }), "{sent:?}");
    bench.restart();
    bench.run_for(Duration::from_mins(1)).await;
    let other = fleet::NodeName::new(bench.other_than(&identity.node)).unwrap();
    let there = pve::api::guest::migrate::MigrateQemu::online(other.clone());
    qemu.migrate(&there).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let reverted = drive!(bench, snapshot, intent, stored);
    assert_eq!(reverted.record.reverted, 1, "{:?}", reverted.outcome);
    let moved = fleet::Identity {
        node: other,
        ..identity.clone()
    };
    assert_eq!(bench.inventory().await.of(&owner("web")).len(), 1);
    assert_eq!(reverts(&bench, &identity).await, 1);
    assert_eq!(reverts(&bench, &moved).await, 0);
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_revert_is_not_taken_for_ours() {
    let (mut bench, identity) = settled().await;
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let theirs = pve::SnapshotName::new("theirs".to_owned()).unwrap();
    let taken = pve::api::guest::snapshot::CreateSnapshot::new(theirs.clone());
    qemu.snapshot(&taken).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let mut record = ActionRecord::default();
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    drive!(bench, snapshot, intent, record);
    let wish = SnapshotWish::Reverted {
        generation: 1,
        start: true,
    };
    let intent = snapshot(identity.vmid, wish);
    record = bench.fleet.snapshot(&intent, &record).await.record;
    assert!(record.reverting.is_some());
    qemu.rollback(&theirs, false).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let reverted = drive!(bench, snapshot, intent, record);
    assert_eq!(reverted.record.reverted, 1);
    assert_eq!(reverts(&bench, &identity).await, 2);
    let now = qemu.config(pve::api::guest::ConfigView::Next).await;
    assert_eq!(now.unwrap().get("parent"), Some("before-upgrade"));
}

/// The same task as PVE would call one it has thrown the log of away.
fn forgotten(record: &ActionRecord) -> ActionRecord {
    let mut record = record.clone();
    for task in &mut record.in_flight {
        let mut parts: Vec<String> = task
            .upid
            .to_string()
            .split(':')
            .map(str::to_owned)
            .collect();
        "00000001".clone_into(&mut parts[2]);
        task.upid = parts.join(":").parse().unwrap();
    }
    record
}

#[tokio::test(start_paused = true)]
async fn a_revert_that_pve_has_forgotten_is_done_again_only_if_the_guest_was_not_taken_back() {
    let (mut bench, identity) = settled().await;
    let mut record = ActionRecord::default();
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    drive!(bench, snapshot, intent, record);
    let wish = SnapshotWish::Reverted {
        generation: 1,
        start: true,
    };
    let intent = snapshot(identity.vmid, wish);
    let prepared = bench.fleet.snapshot(&intent, &record).await.record;
    let sent = bench.fleet.snapshot(&intent, &prepared).await.record;
    assert_eq!(sent.in_flight.len(), 1);
    bench.restart();
    bench.run_for(Duration::from_mins(1)).await;
    assert_eq!(reverts(&bench, &identity).await, 1);
    let mut stored = forgotten(&sent);
    let reverted = drive!(bench, snapshot, intent, stored);
    assert_eq!(reverted.record.reverted, 1);
    assert_eq!(
        reverts(&bench, &identity).await,
        1,
        "what was written since stays"
    );

    // Another snapshot was taken since: the guest goes on from that one, so nothing was undone yet.
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let later = pve::SnapshotName::new("later".to_owned()).unwrap();
    let taken = pve::api::guest::snapshot::CreateSnapshot::new(later);
    qemu.snapshot(&taken).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let wish = SnapshotWish::Reverted {
        generation: 2,
        start: true,
    };
    let intent = snapshot(identity.vmid, wish);
    let mut stored = forgotten(&sent);
    stored.reverted = 1;
    let reverted = drive!(bench, snapshot, intent, stored);
    assert_eq!(reverted.record.reverted, 2);
    assert_eq!(reverts(&bench, &identity).await, 2);
}

/// A guest that goes on from the snapshot already says nothing by that; its generation does, and without one nothing is guessed.
#[tokio::test(start_paused = true)]
async fn a_forgotten_revert_of_a_guest_that_goes_on_from_the_snapshot_already_is_not_taken_as_done()
{
    let (mut bench, identity) = settled().await;
    let mut record = ActionRecord::default();
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    drive!(bench, snapshot, intent, record);
    let back = |generation| {
        let start = true;
        snapshot(identity.vmid, SnapshotWish::Reverted { generation, start })
    };
    let prepared = bench.fleet.snapshot(&back(1), &record).await.record;
    let sent = bench.fleet.snapshot(&back(1), &prepared).await.record;
    record = sent.clone();
    drive!(bench, snapshot, back(1), record);
    assert_eq!(reverts(&bench, &identity).await, 1);
    bench.run_for(Duration::from_mins(2)).await;

    // The next one was sent and never carried out: it is the same generation of the guest still.
    let prepared = bench.fleet.snapshot(&back(2), &record).await.record;
    let mut stored = prepared.clone();
    stored.in_flight = forgotten(&sent).in_flight;
    let reverted = drive!(bench, snapshot, back(2), stored);
    assert_eq!(reverted.record.reverted, 2);
    assert_eq!(reverts(&bench, &identity).await, 2);
    bench.run_for(Duration::from_mins(2)).await;

    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let without = pve::ConfigChange::delete(["vmgenid"]);
    qemu.configure(&without).await.unwrap();
    let taken = qemu.snapshots().await.unwrap();
    assert!(taken.iter().any(|one| one.name == "before-upgrade"));
    let mut stored = bench
        .fleet
        .snapshot(&back(3), &reverted.record)
        .await
        .record;
    stored.in_flight = forgotten(&sent).in_flight;
    let unknown = drive!(bench, snapshot, back(3), stored);
    assert!(
        matches!(
            unknown.outcome,
            Outcome::Failed {
                why: fleet::Failure::Uncertain,
                ..
            }
        ),
        "{:?}",
        unknown.outcome
    );
    assert_eq!(reverts(&bench, &identity).await, 2);
    // Who has looked asks again, and gets it.
    let reverted = drive!(bench, snapshot, back(4), stored);
    assert_eq!(reverted.record.reverted, 4);
    assert_eq!(reverts(&bench, &identity).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_new_description_reaches_the_snapshot_and_costs_nothing_otherwise() {
    let (mut bench, identity) = settled().await;
    let mut record = ActionRecord::default();
    let mut intent = snapshot(identity.vmid, SnapshotWish::Present);
    drive!(bench, snapshot, intent, record);
    let quiet = bench.own_requests();
    drive!(bench, snapshot, intent, record);
    assert_eq!(bench.own_requests(), quiet);
    "Before the second try".clone_into(&mut intent.description);
    drive!(bench, snapshot, intent, record);
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let list = qemu.snapshots().await.unwrap();
    let found = list.iter().find(|one| one.name == intent.name).unwrap();
    let text = found.description.as_deref().unwrap();
    assert!(text.starts_with("Before the second try"), "{text}");
    assert_eq!(fleet::mark::owner_of(text), Some(owner("snap")));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_guest_that_is_not_the_one_meant_is_refused() {
    let (mut bench, _) = settled().await;
    let foreign = pve::Vmid::new(100).unwrap();
    let mut record = ActionRecord::default();
    let intent = snapshot(foreign, SnapshotWish::Present);
    let refused = drive!(bench, snapshot, intent, record);
    assert!(
        matches!(refused.outcome, Outcome::Failed { .. }),
        "{:?}",
        refused.outcome
    );
}

/// The same where everything takes its time.
async fn on_a_real_host() -> (Bench, fleet::Identity) {
    let mut bench = Bench::life_like(3);
    bench.ready().await;
    let web = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_mins(10)).await;
    let identity = bench.record(&web).identity.clone().unwrap();
    (bench, identity)
}

/// PVE lists a snapshot from the moment it is begun.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_not_complete_is_not_taken_for_one() {
    let (mut bench, identity) = on_a_real_host().await;
    let route = "POST /nodes/{node}/qemu/{vmid}/snapshot";
    let lost = Fault::once(route, Action::DropAnswer);
    bench.cluster().control().inject(lost);
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    let (mut record, mut unfinished) = (ActionRecord::default(), 0);
    for _ in 0..3000 {
        let progress = bench.fleet.snapshot(&intent, &record).await;
        record = progress.record;
        let list = qemu.snapshots().await.unwrap();
        let made = list.iter().find(|it| it.name == intent.name);
        let complete = made.is_some_and(|it| it.snapstate.is_none());
        unfinished += usize::from(made.is_some() && !complete);
        if progress.outcome == Outcome::Settled {
            assert!(complete, "{made:?}");
            assert!(unfinished > 0, "it was never seen while it was made");
            return;
        }
        bench.run_for(Duration::from_millis(10)).await;
    }
    panic!("not taken: {record:?}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_died_half_way_is_removed_and_taken_anew() {
    let (mut bench, identity) = on_a_real_host().await;
    let node = identity.node.to_string();
    bench.answer_from(if node == "pve1" { "pve2" } else { "pve1" });
    bench.run_for(Duration::from_mins(1)).await;
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    let mut record = ActionRecord::default();
    loop {
        record = bench.fleet.snapshot(&intent, &record).await.record;
        let list = qemu.snapshots().await.unwrap();
        if list.iter().any(|it| it.snapstate.is_some()) {
            break;
        }
    }
    bench.cluster().kill_node(&node);
    bench.run_for(Duration::from_mins(2)).await;
    bench.cluster().revive_node(&node);
    bench.run_for(Duration::from_mins(2)).await;
    // What `qm unlock` does.
    let unlock = pve::ConfigChange {
        delete: vec!["lock".to_owned()],
        ..pve::ConfigChange::set(pve::GuestConfig::new().with("skiplock", 1))
    };
    qemu.configure(&unlock).await.unwrap();
    let made = drive!(bench, snapshot, intent, record);
    assert_eq!(made.outcome, Outcome::Settled);
    let list = qemu.snapshots().await.unwrap();
    let made = list.iter().find(|it| it.name == intent.name).unwrap();
    assert_eq!(made.snapstate, None);
}

/// Containers have no generation that would tell: they go on from the snapshot before one that is removed.
#[tokio::test(start_paused = true)]
async fn a_container_is_taken_back_though_the_snapshot_in_between_was_removed() {
    let mut bench = Bench::new();
    bench.ready().await;
    let intent = crate::create::container(&bench).await;
    let keeper = bench.want(intent);
    bench.run().await;
    let identity = bench.record(&keeper).identity.clone().unwrap();
    let of = |wish| SnapshotIntent {
        guest_owner: Some(keeper.clone()),
        memory: false,
        ..snapshot(identity.vmid, wish)
    };
    let mut record = ActionRecord::default();
    let taken = of(SnapshotWish::Present);
    let taken = drive!(bench, snapshot, taken, record);
    assert_eq!(taken.outcome, Outcome::Settled, "{}", bench.stories());
    let node = bench.client().node(&identity.node);
    let lxc = node.lxc(identity.vmid);
    let between = pve::SnapshotName::new("between".to_owned()).unwrap();
    let create = pve::api::guest::snapshot::CreateSnapshot::new(between.clone());
    lxc.snapshot(&create).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let intent = of(SnapshotWish::Reverted {
        generation: 1,
        start: true,
    });
    record = bench.fleet.snapshot(&intent, &record).await.record;
    assert!(record.reverting.is_some());
    lxc.delete_snapshot(&between, false).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let reverted = drive!(bench, snapshot, intent, record);
    assert_eq!(reverted.record.reverted, 1);
    let filter = pve::task::TaskFilter {
        kind: Some("vzrollback".to_owned()),
        source: pve::task::Source::All,
        ..pve::task::TaskFilter::default()
    };
    assert_eq!(node.tasks(&filter).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_whose_call_takes_effect_late_is_removed_with_its_object() {
    let (mut bench, identity) = settled().await;
    let route = "POST /nodes/{node}/qemu/{vmid}/snapshot";
    let lost = Fault::once(route, Action::DropRequest);
    bench.cluster().control().inject(lost);
    let mut record = ActionRecord::default();
    let present = snapshot(identity.vmid, SnapshotWish::Present);
    for _ in 0..2 {
        record = bench.fleet.snapshot(&present, &record).await.record;
    }
    let absent = snapshot(identity.vmid, SnapshotWish::Absent);
    let waits = bench.fleet.snapshot(&absent, &record).await;
    assert!(
        matches!(waits.outcome, Outcome::Waiting { .. }),
        "{waits:?}"
    );
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let name = pve::SnapshotName::new(present.name.clone()).unwrap();
    let mut late = pve::api::guest::snapshot::CreateSnapshot::new(name);
    late.description = Some(fleet::mark::describe(&present.description, &present.owner));
    qemu.snapshot(&late).await.unwrap();
    bench.run_for(Duration::from_secs(5)).await;
    let gone = drive!(bench, snapshot, absent, record);
    assert_eq!(gone.outcome, Outcome::Gone);
    bench.run_for(Duration::from_mins(1)).await;
    let left = qemu.snapshots().await.unwrap();
    assert!(left.iter().all(|it| it.name != present.name), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_another_cluster_does_not_have_is_kept_when_its_guest_is_there_again() {
    let (mut bench, identity) = settled().await;
    let mut record = ActionRecord::default();
    let intent = snapshot(identity.vmid, SnapshotWish::Present);
    drive!(bench, snapshot, intent, record);
    let other = pve_sim::Simulator::builder().seed(8).build();
    let right = std::mem::replace(&mut bench.sim, other);
    bench.restart();
    bench.ready().await;
    let lost = drive!(bench, snapshot, intent, record);
    assert!(
        matches!(
            lost.outcome,
            Outcome::Failed {
                why: fleet::Failure::Lost,
                ..
            }
        ),
        "{lost:?}"
    );
    bench.sim = right;
    bench.restart();
    bench.ready().await;
    let kept = drive!(bench, snapshot, intent, record);
    assert_eq!(kept.outcome, Outcome::Settled);
    assert!(!record.lost);
}
