//! Backups, which outlive their guests.

use std::time::Duration;

use fleet::{
    ActionProgress, ActionRecord, GuestIntent, Outcome, PowerFact,
    intent::{BackupIntent, BackupMode, Compression, Power},
};

use pve_sim::{Action, Fault, Latency, Simulator, Spread, Step};

use super::{TEMPLATE, asked, settled};
use crate::{
    harness::{Bench, cluster_name, machine, owner},
    tokens,
};

pub(super) fn backup(guest: pve::Vmid, guest_owner: Option<fleet::Owner>) -> BackupIntent {
    BackupIntent {
        owner: owner("backup"),
        cluster: cluster_name(),
        guest,
        guest_owner,
        guest_keeper: None,
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

#[tokio::test(start_paused = true)]
async fn backups_that_take_long_keep_nobody_else_on_their_node_waiting() {
    let mut latency = Latency::real();
    let slow = Spread {
        median_ms: 600_000.0,
        p95_ms: 610_000.0,
    };
    latency.steps.insert(Step::BackupGib, slow);
    let mut bench = Bench::with(Simulator::builder().seed(7).latency(latency).build());
    bench.ready().await;
    let intent = |n: usize| {
        let mut intent = machine(&format!("web-{n}"), TEMPLATE);
        intent.placement.nodes = vec![pve::NodeName::new("pve1").unwrap()];
        intent
    };
    let owners: Vec<_> = (0..7).map(|n| bench.want(intent(n))).collect();
    bench.run().await;
    bench.run_for(Duration::from_mins(1)).await;
    let mut backups = Vec::new();
    for (n, machine) in owners.iter().enumerate().take(6) {
        let guest = bench.record(machine).identity.as_ref().unwrap().vmid;
        bench.cluster().fill_disk(guest.get(), 1 << 30).unwrap();
        let intent = BackupIntent {
            owner: owner(&format!("backup-{n}")),
            ..backup(guest, Some(machine.clone()))
        };
        backups.push((intent, ActionRecord::default()));
    }
    for _ in 0..30 {
        for (intent, record) in &mut backups {
            *record = bench.fleet.backup(intent, record).await.record;
        }
        bench.run_for(Duration::from_secs(1)).await;
    }
    let under_way = backups.iter().filter(|(_, it)| !it.in_flight.is_empty());
    assert_eq!(under_way.count(), 1, "PVE makes one at a time on a node");
    bench.want(GuestIntent {
        power: Power::Off,
        ..intent(6)
    });
    bench.call_now(&owners[6]).await;
    bench.run_for(Duration::from_mins(1)).await;
    let progress = bench.progress(&owners[6]);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.power, PowerFact::Stopped);
    for (intent, record) in &mut backups {
        let made = loop {
            let progress = bench.fleet.backup(intent, record).await;
            *record = progress.record;
            match progress.outcome {
                Outcome::Persist => {}
                Outcome::Working { .. } | Outcome::Waiting { .. } => {
                    bench.run_for(Duration::from_mins(1)).await;
                }
                other => break other,
            }
        };
        assert_eq!(made, Outcome::Settled);
    }
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
    let other = bench.other_than(&identity.node);
    bench.answer_from(&other);
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

/// PVE names a backup after the second in which it is begun.
#[tokio::test(start_paused = true)]
async fn two_backups_that_are_asked_for_in_the_same_moment_are_two() {
    let (mut bench, identity) = settled().await;
    let wanted = ["one", "two", "three"].map(|name| BackupIntent {
        owner: owner(name),
        ..backup(identity.vmid, Some(owner("web")))
    });
    let mut records = wanted.clone().map(|_| ActionRecord::default());
    for _ in 0..100 {
        for (intent, record) in wanted.iter().zip(&mut records) {
            loop {
                let progress = bench.fleet.backup(intent, record).await;
                record.clone_from(&progress.record);
                if progress.outcome != Outcome::Persist {
                    break;
                }
            }
        }
        bench.run_for(Duration::from_millis(100)).await;
    }
    let volumes = records.map(|record| record.facts.volume);
    assert!(volumes.iter().all(Option::is_some), "{volumes:?}");
    let there = bench.inventory().await.volumes;
    let kept = volumes.iter().flatten().filter(|it| there.contains(*it));
    let distinct: std::collections::BTreeSet<_> = kept.collect();
    assert_eq!(distinct.len(), 3, "{volumes:?}");
}

/// A storage without room, and a guest that is not ours.
const FULL: &str = r"
clusters:
  - name: lab
    storages:
      - {id: ceph, type: rbd, content: [images], capacity-gib: 1000}
      - {id: local, type: dir, content: [iso, backup], capacity-gib: 0}
    guests:
      - {vmid: 100, node: pve1, storage: ceph}
";

/// Each try of such a backup shuts the guest down.
#[tokio::test(start_paused = true)]
async fn a_backup_that_stops_its_guest_and_fails_is_not_tried_again() {
    let world = pve_sim::WorldFile::parse(FULL).unwrap();
    let mut bench = Bench::with(pve_sim::Simulator::builder().seed(7).world(world).build());
    bench.ready().await;
    for (name, mode) in [("stop", BackupMode::Stop), ("suspend", BackupMode::Suspend)] {
        let intent = BackupIntent {
            owner: owner(name),
            mode,
            ..backup(pve::Vmid::new(100).unwrap(), None)
        };
        bench.cluster().control().reset_counts();
        let mut record = ActionRecord::default();
        let made = drive!(bench, backup, intent, record);
        assert!(
            matches!(&made.outcome, Outcome::Failed { why: fleet::Failure::GaveUp, message }
                if message.contains("ask for another backup")),
            "{:?}",
            made.outcome
        );
        assert_eq!(asked(&bench, "/vzdump"), 1, "{}", bench.counts());
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_stops_its_guest_waits_for_who_holds_the_guest() {
    let (mut bench, identity) = settled().await;
    let exit = "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout".to_owned();
    let fault = Fault::once("POST */vzdump", Action::FailTask { exit });
    bench.cluster().control().inject(fault);
    let intent = BackupIntent {
        mode: BackupMode::Stop,
        ..backup(identity.vmid, Some(owner("web")))
    };
    let mut record = ActionRecord::default();
    let made = drive!(bench, backup, intent, record);
    assert_eq!(made.outcome, Outcome::Settled, "{:?}", made.events);
}

/// Somebody stops the task whenever there is one.
#[tokio::test(start_paused = true)]
async fn a_backup_that_fails_is_tried_again_ever_more_seldom() {
    let (mut bench, identity) = settled().await;
    let exit = "job errors".to_owned();
    let fault = Fault::every("POST */vzdump", Action::FailTask { exit });
    bench.cluster().control().inject(fault);
    let intent = backup(identity.vmid, Some(owner("web")));
    let mut record = ActionRecord::default();
    bench.cluster().control().reset_counts();
    for _ in 0..180 {
        record = bench.fleet.backup(&intent, &record).await.record;
        bench.run_for(Duration::from_mins(1)).await;
    }
    let tries = asked(&bench, "/vzdump");
    assert!((4..=6).contains(&tries), "{tries} tries in three hours");
    bench.cluster().control().clear();
    bench.run_for(Duration::from_hours(1)).await;
    let made = drive!(bench, backup, intent, record);
    assert_eq!(made.outcome, Outcome::Settled, "{:?}", made.events);
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_went_with_its_node_is_made_where_its_guest_is_now() {
    let (mut bench, identity) = settled().await;
    let intent = backup(identity.vmid, Some(owner("web")));
    let begun = bench.fleet.backup(&intent, &ActionRecord::default()).await;
    assert_eq!(begun.outcome, Outcome::Persist);
    let mut record = begun.record;
    let other = fleet::NodeName::new(bench.other_than(&identity.node)).unwrap();
    bench.answer_from(other.as_str());
    let qemu = bench.client().node(&identity.node).qemu(identity.vmid);
    let there = pve::api::guest::migrate::MigrateQemu::online(other.clone());
    let moved = qemu.migrate(&there).await.unwrap();
    bench.client().wait(&moved).await.unwrap();
    bench.cluster().remove_node(identity.node.as_str());
    bench.run_for(Duration::from_mins(1)).await;
    let made = drive!(bench, backup, intent, record);
    assert_eq!(made.outcome, Outcome::Settled, "{:?}", made.events);
    assert_eq!(made.facts.node, Some(other));
    let volume = made.facts.volume.unwrap();
    assert!(bench.inventory().await.volumes.contains(&volume));
}

/// Who may back up what is in a pool may not even see the backups of what was.
#[tokio::test(start_paused = true)]
async fn a_backup_that_is_hidden_since_its_guest_is_gone_is_not_taken_for_gone() {
    let roles = "    roles: [{ id: Stores, privs: [Datastore.AllocateSpace, Datastore.AllocateTemplate, Datastore.Audit] }]\n";
    let stores = "path: /storage, user: oxmox@pve, role: ";
    let world = tokens::WORLD
        .replace("path: /vms", "path: /pool/k8s")
        .replace(
            &format!("{stores}Administrator"),
            &format!("{stores}Stores"),
        );
    let world = pve_sim::WorldFile::parse(&(world + roles)).unwrap();
    let mut bench = Bench::with(pve_sim::Simulator::builder().seed(7).world(world).build());
    let pool = pve::PoolId::new("k8s").unwrap();
    bench.client().pools().create(&pool, None).await.unwrap();
    tokens::connect(&mut bench).await;
    let mut intent = machine("web", TEMPLATE);
    intent.source = fleet::intent::Source::Empty;
    intent.init = None;
    intent.power = fleet::intent::Power::Off;
    intent.options.pool = Some("k8s".to_owned());
    let web = bench.want(intent);
    bench.run().await;
    let identity = bench.record(&web).identity.clone().unwrap();
    let wanted = backup(identity.vmid, Some(web.clone()));
    let mut record = ActionRecord::default();
    let made = drive!(bench, backup, wanted, record);
    let volume = made.facts.volume.expect("a backup");
    bench.delete(&web);
    bench.run().await;

    let waits = bench.fleet.delete_backup(&wanted, &record).await;
    assert!(
        matches!(&waits.outcome, Outcome::Waiting { what: fleet::Waiting::Privilege, message, .. }
            if message.contains("VM.Backup") && message.contains(&volume)),
        "{waits:?}"
    );
    assert!(bench.inventory().await.volumes.contains(&volume));
    let grant = pve::api::access::AclChange {
        path: "/vms".to_owned(),
        roles: vec!["PVEVMAdmin".to_owned()],
        users: vec!["oxmox@pve".parse().unwrap()],
        tokens: Vec::new(),
        groups: Vec::new(),
        propagate: true,
        delete: false,
    };
    bench.client().access().change_acl(&grant).await.unwrap();
    let gone = drive!(bench, delete_backup, wanted, record);
    assert_eq!(gone.outcome, Outcome::Gone);
    assert!(!bench.inventory().await.volumes.contains(&volume));
}
