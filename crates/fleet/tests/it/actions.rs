//! Snapshots, moves and backups of a guest that is there.

use std::time::Duration;

use fleet::{
    ActionProgress, ActionRecord, Outcome,
    intent::{
        BackupIntent, BackupMode, Compression, MigrationIntent, SnapshotIntent, SnapshotWish,
    },
};

use crate::harness::{Bench, cluster_name, machine, owner};

const TEMPLATE: &str = "ubuntu-24-04";

/// Calls until the action rests, as a controller would.
macro_rules! drive {
    ($bench:expr, $door:ident, $intent:expr, $record:expr) => {{
        let mut last: Option<ActionProgress> = None;
        for _ in 0..200 {
            let progress = $bench.fleet.$door(&$intent, &$record).await;
            $record = progress.record.clone();
            let rests =
                progress.outcome.is_done() || matches!(progress.outcome, Outcome::Failed { .. });
            let again = progress.outcome == Outcome::Persist;
            last = Some(progress);
            if rests {
                break;
            }
            if !again {
                $bench.run_for(Duration::from_secs(1)).await;
            }
        }
        last.unwrap()
    }};
}

async fn settled() -> (Bench, fleet::Identity) {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let identity = bench.record(&owner).identity.clone().expect("an identity");
    (bench, identity)
}

fn snapshot(guest: pve::Vmid, wish: SnapshotWish) -> SnapshotIntent {
    SnapshotIntent {
        owner: owner("snap"),
        cluster: cluster_name(),
        guest,
        guest_owner: Some(owner("web")),
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
    let begun = bench
        .fleet
        .snapshot(&intent, &ActionRecord::default())
        .await;
    assert!(
        matches!(begun.outcome, Outcome::Working { .. }),
        "{begun:?}"
    );
    // What it returned is never stored.
    bench.restart();
    bench.ready().await;
    let mut record = ActionRecord::default();
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

#[tokio::test(start_paused = true)]
async fn a_running_guest_moves_and_its_own_record_follows() {
    let (mut bench, identity) = settled().await;
    let target = ["pve1", "pve2", "pve3"]
        .into_iter()
        .map(|name| pve::NodeName::new(name).unwrap())
        .find(|name| *name != identity.node)
        .unwrap();
    let intent = MigrationIntent {
        owner: owner("move"),
        cluster: cluster_name(),
        guest: identity.vmid,
        guest_owner: Some(owner("web")),
        likeness: fleet::record::Likeness::default(),
        target: Some(target.clone()),
        placement: fleet::intent::Placement::default(),
        bridges: Vec::new(),
        online: true,
        with_local_disks: false,
        target_storage: None,
    };
    let mut record = ActionRecord::default();
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.events);
    bench.run_for(Duration::from_secs(30)).await;
    bench.call(&owner("web")).await;
    assert_eq!(bench.progress(&owner("web")).facts.node, Some(target));
    assert_eq!(bench.progress(&owner("web")).outcome, Outcome::Settled);
}

fn anywhere(name: &str, guest: pve::Vmid) -> MigrationIntent {
    MigrationIntent {
        owner: owner(&format!("move-{name}")),
        cluster: cluster_name(),
        guest,
        guest_owner: Some(owner(name)),
        likeness: fleet::record::Likeness::default(),
        target: None,
        placement: fleet::intent::Placement::default(),
        bridges: Vec::new(),
        online: true,
        with_local_disks: true,
        target_storage: None,
    }
}

#[tokio::test(start_paused = true)]
async fn guests_that_leave_a_node_together_are_spread_over_the_others() {
    let mut bench = Bench::new();
    bench.ready().await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        let mut wish = machine(name, TEMPLATE);
        wish.hardware.memory.size = Some(fleet::Size::gib(8));
        wish.placement.nodes = vec![pve::NodeName::new("pve1").unwrap()];
        bench.want(wish);
    }
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let mut targets = std::collections::BTreeMap::new();
    for name in names {
        let vmid = bench.record(&owner(name)).identity.as_ref().unwrap().vmid;
        let intent = anywhere(name, vmid);
        let chosen = bench.fleet.migrate(&intent, &ActionRecord::default()).await;
        assert_eq!(chosen.outcome, Outcome::Persist);
        let target = chosen.record.target.unwrap().to_string();
        *targets.entry(target).or_insert(0) += 1;
    }
    let taken: Vec<&str> = targets.keys().map(String::as_str).collect();
    assert_eq!(taken, ["pve2", "pve3"], "{targets:?}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_must_fit_a_socket_can_be_moved_after_a_restart() {
    let (mut bench, identity) = settled().await;
    bench.restart();
    bench.ready().await;
    let mut intent = anywhere("web", identity.vmid);
    intent.placement.fit_numa = true;
    let mut record = ActionRecord::default();
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.outcome);
}

/// How often something was asked of a guest.
fn asked(bench: &Bench, what: &str) -> u64 {
    let counts = bench.cluster().control().counts();
    let of = counts.iter().filter(|(route, _)| route.ends_with(what));
    of.map(|(_, n)| n).sum()
}

#[tokio::test(start_paused = true)]
async fn high_availability_is_asked_once_to_move_a_guest_and_once_to_stop_it() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut wish = machine("web", TEMPLATE);
    wish.options.ha = Some(fleet::intent::Ha::default());
    let web = bench.want(wish);
    bench.run().await;
    bench.run_for(Duration::from_mins(1)).await;
    let vmid = bench.record(&web).identity.as_ref().unwrap().vmid;
    let mut intent = anywhere("web", vmid);
    intent.with_local_disks = false;
    let mut record = ActionRecord::default();
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.outcome);
    assert_eq!(asked(&bench, "/migrate"), 1, "{}", bench.counts());
    bench.run_for(Duration::from_mins(1)).await;
    bench.delete(&web);
    bench.run().await;
    assert_eq!(bench.progress(&web).outcome, Outcome::Gone);
    assert_eq!(asked(&bench, "/shutdown"), 1, "{}", bench.counts());
}

/// PVE moves no disc of a local storage; this one goes by itself.
#[tokio::test(start_paused = true)]
async fn a_move_waits_until_the_first_boot_image_was_read() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut off = machine("web", TEMPLATE);
    off.power = fleet::intent::Power::Off;
    if let Some(init) = &mut off.init {
        init.storage = Some("local".parse().unwrap());
    }
    let web = bench.want(off.clone());
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let vmid = bench.record(&web).identity.as_ref().unwrap().vmid;
    let intent = anywhere("web", vmid);
    let mut record = ActionRecord::default();
    let waits = drive!(bench, migrate, intent, record);
    assert!(
        matches!(
            &waits.outcome,
            Outcome::Waiting {
                what: fleet::Waiting::Guest,
                ..
            }
        ),
        "{:?}",
        waits.outcome
    );
    off.power = fleet::intent::Power::On;
    bench.want(off);
    bench.run().await;
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.outcome);
}

fn backup(guest: pve::Vmid, guest_owner: Option<fleet::Owner>) -> BackupIntent {
    BackupIntent {
        owner: owner("backup"),
        cluster: cluster_name(),
        guest,
        guest_owner,
        likeness: fleet::record::Likeness::default(),
        storage: "local".parse().unwrap(),
        mode: BackupMode::Snapshot,
        compress: Compression::Zstd,
        notes: "nightly".to_owned(),
        protected: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_is_found_again_by_its_mark_and_removed() {
    let (mut bench, identity) = settled().await;
    let intent = backup(identity.vmid, Some(owner("web")));
    let mut record = ActionRecord::default();
    let made = drive!(bench, backup, intent, record);
    assert_eq!(made.outcome, Outcome::Settled, "{:?}", made.events);
    assert!(made.facts.volume.is_some());
    let mut lost = ActionRecord {
        begun: true,
        ..ActionRecord::default()
    };
    let again = drive!(bench, backup, intent, lost);
    assert_eq!(again.facts.volume, made.facts.volume);
    assert_eq!(
        drive!(bench, delete_backup, intent, record).outcome,
        Outcome::Gone
    );
    let volume = made.facts.volume.unwrap();
    assert!(!bench.inventory().await.volumes.contains(&volume));
}

/// A storage that keeps one backup of a guest, and a guest that is not ours.
const KEEPS_ONE: &str = r"
clusters:
  - name: lab
    storages:
      - {id: ceph, type: rbd, content: [images], capacity-gib: 1000}
      - {id: local, type: dir, content: [iso, backup], capacity-gib: 100, options: {prune-backups: keep-last=1}}
    guests:
      - {vmid: 100, node: pve1, storage: ceph}
";

#[tokio::test(start_paused = true)]
async fn a_backup_never_removes_another_one_and_says_when_there_is_no_room() {
    let world = pve_sim::WorldFile::parse(KEEPS_ONE).unwrap();
    let mut bench = Bench::with(pve_sim::Simulator::builder().seed(7).world(world).build());
    bench.ready().await;
    let vmid = pve::Vmid::new(100).unwrap();
    let node = bench.client().node(&pve::NodeName::new("pve1").unwrap());
    let storage: pve::StorageId = "local".parse().unwrap();
    let foreign = pve::api::backup::Backup::of(vmid, storage.clone());
    node.backup(&foreign).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let storage = node.storage(&storage);
    let before = storage.content(Some("backup"), None).await.unwrap();
    assert_eq!(before.len(), 1);

    let intent = backup(vmid, None);
    let mut record = ActionRecord::default();
    let refused = drive!(bench, backup, intent, record);
    assert_eq!(storage.content(Some("backup"), None).await.unwrap(), before);
    assert!(
        matches!(&refused.outcome, Outcome::Waiting { what: fleet::Waiting::Space, message, .. }
            if message.contains("prune-backups")),
        "{:?}",
        refused.outcome
    );
    storage
        .delete_volume(&before[0].volid, Some(15))
        .await
        .unwrap();
    assert!(asked(&bench, "/vzdump") <= 2, "{}", bench.counts());
    bench.run_for(Duration::from_mins(10)).await;
    let made = drive!(bench, backup, intent, record);
    assert_eq!(made.outcome, Outcome::Settled, "{:?}", made.events);
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_was_begun_before_a_crash_is_removed_when_it_is_there() {
    let mut bench = Bench::life_like(7);
    bench.ready().await;
    let web = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let identity = bench.record(&web).identity.clone().unwrap();
    let intent = backup(identity.vmid, Some(web));
    let prepared = bench.fleet.backup(&intent, &ActionRecord::default()).await;
    assert_eq!(prepared.outcome, Outcome::Persist);
    let mut record = prepared.record;
    let begun = bench.fleet.backup(&intent, &record).await;
    assert!(
        matches!(begun.outcome, Outcome::Working { .. }),
        "{begun:?}"
    );
    // What it returned is never stored.
    bench.restart();
    bench.ready().await;
    let removed = drive!(bench, delete_backup, intent, record);
    assert_eq!(removed.outcome, Outcome::Gone);
    bench.run_for(Duration::from_mins(10)).await;
    let left = bench.inventory().await.volumes;
    assert!(
        !left.iter().any(|volume| volume.contains("vzdump")),
        "{left:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_backup_on_a_node_that_is_down_is_waited_for() {
    let (mut bench, identity) = settled().await;
    let intent = backup(identity.vmid, Some(owner("web")));
    let mut record = ActionRecord::default();
    let made = drive!(bench, backup, intent, record);
    let volume = made.facts.volume.unwrap();
    let nodes = bench.cluster().nodes();
    let other = nodes
        .into_iter()
        .find(|node| *node != identity.node.to_string());
    bench.answer_from(&other.unwrap());
    bench.cluster().kill_node(identity.node.as_str());
    bench.run_for(Duration::from_mins(2)).await;
    let waits = bench.fleet.delete_backup(&intent, &record).await;
    assert!(
        matches!(
            waits.outcome,
            Outcome::Waiting {
                what: fleet::Waiting::NodeDown,
                ..
            }
        ),
        "{:?}",
        waits.outcome
    );
    bench.cluster().revive_node(identity.node.as_str());
    bench.run_for(Duration::from_mins(2)).await;
    let removed = drive!(bench, delete_backup, intent, record);
    assert_eq!(removed.outcome, Outcome::Gone);
    assert!(!bench.inventory().await.volumes.contains(&volume));
}

/// A guest whose number has gone to somebody else, and one whose notes were rewritten.
#[tokio::test(start_paused = true)]
async fn without_a_mark_a_guest_is_known_by_its_uuid() {
    let (mut bench, identity) = settled().await;
    let unmarked = pve::GuestConfig::new().with("description", "call Anna");
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let change = pve::ConfigChange::set(unmarked);
    for (name, guest_owner, uuid, own) in [
        ("a", Some(owner("web")), identity.uuid, true),
        ("b", Some(owner("web")), uuid::Uuid::from_u128(1), false),
        ("c", None, identity.uuid, true),
        ("d", None, uuid::Uuid::from_u128(1), false),
    ] {
        // Its keeper puts the mark back whenever it looks.
        qemu.configure(&change).await.unwrap();
        let likeness = fleet::record::Likeness {
            uuid: Some(uuid),
            macs: Vec::new(),
        };
        let mut record = ActionRecord::default();
        let wanted = SnapshotIntent {
            guest_owner: guest_owner.clone(),
            likeness: likeness.clone(),
            ..snapshot(identity.vmid, SnapshotWish::Present)
        };
        let made = drive!(bench, snapshot, wanted, record).outcome;
        let backed_up = BackupIntent {
            owner: owner(name),
            likeness,
            ..backup(identity.vmid, guest_owner)
        };
        let mut record = ActionRecord::default();
        let kept = drive!(bench, backup, backed_up, record).outcome;
        for outcome in [made, kept] {
            let foreign = matches!(
                outcome,
                Outcome::Failed {
                    why: fleet::Failure::Foreign,
                    ..
                }
            );
            assert_eq!(outcome == Outcome::Settled, own, "{outcome:?}");
            assert_eq!(foreign, !own, "{outcome:?}");
        }
        let mut record = ActionRecord::default();
        let gone = SnapshotIntent {
            wish: SnapshotWish::Absent,
            ..wanted
        };
        drive!(bench, snapshot, gone, record);
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_to_anywhere_goes_elsewhere_when_the_node_that_was_chosen_dies() {
    let (mut bench, identity) = settled().await;
    let intent = anywhere("web", identity.vmid);
    let mut record = ActionRecord::default();
    let chosen = bench.fleet.migrate(&intent, &record).await;
    record.clone_from(&chosen.record);
    let first = record.target.clone().expect("a node is chosen");
    bench.cluster().kill_node(first.as_str());
    bench.run_for(Duration::from_secs(30)).await;
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{}", bench.stories());
    assert_ne!(record.target, Some(first));
}
