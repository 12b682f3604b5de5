//! Snapshots, moves and backups of a guest that is there.

use std::time::Duration;

use fleet::{
    ActionProgress, ActionRecord, Outcome,
    intent::{BackupIntent, SnapshotIntent, SnapshotWish},
};
use pve::api::guest::DeleteGuest;

use crate::{
    adopt::{VMID, by_hand, managed},
    harness::{Bench, machine, owner},
};

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

mod backups;
mod moves;
mod snapshots;

use self::{backups::backup, snapshots::snapshot};

/// How often something was asked of a guest.
fn asked(bench: &Bench, what: &str) -> u64 {
    let counts = bench.cluster().control().counts();
    let of = counts.iter().filter(|(route, _)| route.ends_with(what));
    of.map(|(_, n)| n).sum()
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

/// A guest that was taken over is known by the mark of the object that did, or by its likeness: never by whoever has its number now.
#[tokio::test(start_paused = true)]
async fn who_has_got_the_number_of_a_guest_that_was_taken_over_is_another() {
    let mut bench = Bench::new();
    bench.ready().await;
    let guest = by_hand(&mut bench, "the old server").await;
    let mut intent = managed();
    intent.hardware.cpu.cores = Some(2);
    let keeper = bench.want(intent);
    bench.run().await;
    let identity = bench.record(&keeper).identity.clone().unwrap();
    let snapshot_of = |likeness| SnapshotIntent {
        guest_owner: None,
        guest_keeper: Some(keeper.clone()),
        likeness,
        ..snapshot(identity.vmid, SnapshotWish::Present)
    };
    // Its mark tells it, whatever its UUID is by now.
    let other = fleet::record::Likeness {
        uuid: Some(uuid::Uuid::from_u128(1)),
        macs: Vec::new(),
    };
    let (wanted, mut record) = (snapshot_of(other), ActionRecord::default());
    let made = drive!(bench, snapshot, wanted, record);
    assert_eq!(made.outcome, Outcome::Settled);

    let gone = guest.delete(DeleteGuest::default()).await.unwrap();
    bench.client().wait(&gone).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    let mut heir = machine("heir", TEMPLATE);
    heir.vmids = fleet::intent::VmidRange::new(VMID, VMID).unwrap();
    let heir = bench.want(heir);
    bench.run().await;
    let heir = bench.record(&heir).identity.clone().unwrap();
    assert_eq!(heir.vmid, identity.vmid);

    let (wanted, mut record) = (snapshot_of(identity.likeness()), ActionRecord::default());
    let snapshotted = drive!(bench, snapshot, wanted, record).outcome;
    let wanted = BackupIntent {
        guest_keeper: Some(keeper.clone()),
        likeness: identity.likeness(),
        ..backup(identity.vmid, None)
    };
    let mut record = ActionRecord::default();
    let backed_up = drive!(bench, backup, wanted, record).outcome;
    for outcome in [snapshotted, backed_up] {
        assert!(
            matches!(
                outcome,
                Outcome::Failed {
                    why: fleet::Failure::Foreign,
                    ..
                }
            ),
            "{outcome:?}"
        );
    }
    let volumes = bench.inventory().await.volumes;
    let archive = volumes.iter().find(|it| it.contains("vzdump"));
    assert_eq!(archive, None);
    let heir = bench.client().node(&heir.node).qemu(heir.vmid);
    let left = heir.snapshots().await.unwrap();
    assert!(left.iter().all(|it| it.name == "current"), "{left:?}");
}
