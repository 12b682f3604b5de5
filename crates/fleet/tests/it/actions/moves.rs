//! Moves from node to node.

use std::time::Duration;

use fleet::{ActionProgress, ActionRecord, Outcome, intent::MigrationIntent};

use super::{TEMPLATE, asked, settled};
use crate::harness::{Bench, cluster_name, machine, owner};

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
        guest_keeper: None,
        likeness: fleet::record::Likeness::default(),
        target: Some(target.clone()),
        placement: fleet::intent::Placement::default(),
        bridges: Vec::new(),
        online: true,
        with_local_disks: false,
        target_storage: None,
        declared: std::collections::BTreeSet::new(),
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
        guest_keeper: None,
        likeness: fleet::record::Likeness::default(),
        target: None,
        placement: fleet::intent::Placement::default(),
        bridges: Vec::new(),
        online: true,
        with_local_disks: true,
        target_storage: None,
        declared: std::collections::BTreeSet::new(),
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

#[tokio::test(start_paused = true)]
async fn local_disks_are_copied_only_if_that_was_said() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut off = machine("web", TEMPLATE);
    off.disks[0].storage = Some("local-lvm".parse().unwrap());
    off.power = fleet::intent::Power::Off;
    off.init = None;
    off.placement.nodes = vec![pve::NodeName::new("pve1").unwrap()];
    bench.want(off);
    let container = crate::create::container(&bench).await;
    bench.want(container);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    for (name, disk) in [("web", "scsi0 (local-lvm:"), ("box", "rootfs (local-lvm:")] {
        let vmid = bench.record(&owner(name)).identity.as_ref().unwrap().vmid;
        for target in [None, Some(pve::NodeName::new("pve3").unwrap())] {
            let mut intent = anywhere(name, vmid);
            intent.with_local_disks = false;
            intent.target = target;
            let mut record = ActionRecord::default();
            let refused = drive!(bench, migrate, intent, record);
            let Outcome::Failed { message, .. } = refused.outcome else {
                panic!("{:?}", refused.outcome);
            };
            assert!(message.contains("withLocalDisks") && message.contains(disk));
            assert_eq!(asked(&bench, "/migrate"), 0);
        }
        let intent = anywhere(name, vmid);
        let mut record = ActionRecord::default();
        let moved = drive!(bench, migrate, intent, record);
        assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.events);
        bench.cluster().control().reset_counts();
    }
}

/// How often something was asked of a guest.
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

/// A guest with a device that two of the three nodes have, running or not.
async fn with_device(power: fleet::intent::Power) -> (Bench, fleet::Identity) {
    let mut bench = Bench::new();
    bench.ready().await;
    let device = |node: &str| format!("node={node},path=0000:01:00.0,id=10de:2230");
    let devices = ["pve1", "pve2"].map(device);
    let mapped = bench.client().create_pci_mapping("gpu", &devices).await;
    mapped.unwrap();
    let mut intent = machine("web", TEMPLATE);
    intent.power = power;
    intent.placement.nodes = vec![pve::NodeName::new("pve1").unwrap()];
    intent.hardware.pci = vec![fleet::intent::PciDevice {
        mapping: "gpu".to_owned(),
        mdev: None,
        pcie: false,
        primary_gpu: None,
        rombar: None,
    }];
    let owner = bench.want(intent);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let identity = bench.record(&owner).identity.clone().expect("an identity");
    (bench, identity)
}

#[tokio::test(start_paused = true)]
async fn a_guest_with_a_device_is_not_moved_while_it_runs_and_is_told_why() {
    let (mut bench, identity) = with_device(fleet::intent::Power::On).await;
    let intent = anywhere("web", identity.vmid);
    let mut record = ActionRecord::default();
    bench.cluster().control().reset_counts();
    let moved = drive!(bench, migrate, intent, record);
    let outcome = format!("{:?}", moved.outcome);
    assert!(matches!(moved.outcome, Outcome::Failed { .. }), "{outcome}");
    assert!(outcome.contains("hostpci0:gpu"), "{outcome}");
    let sent = bench.cluster().control().counts();
    assert_eq!(sent["POST /nodes/{node}/qemu/{vmid}/migrate"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_off_goes_where_there_is_a_device_for_it() {
    let (mut bench, identity) = with_device(fleet::intent::Power::Off).await;
    let intent = anywhere("web", identity.vmid);
    let mut record = ActionRecord::default();
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.events);
    assert_eq!(record.target, Some(pve::NodeName::new("pve2").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn disks_do_not_go_to_a_storage_that_they_would_be_moved_back_from() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut wish = machine("web", TEMPLATE);
    wish.disks[0].storage = Some("tank".parse().unwrap());
    bench.want(wish.clone());
    bench.run().await;
    let vmid = bench.record(&owner("web")).identity.as_ref().unwrap().vmid;
    let mut intent = anywhere("web", vmid);
    intent.target_storage = Some("local-lvm".parse().unwrap());
    intent.declared.insert("tank".parse().unwrap());
    let mut record = ActionRecord::default();
    let refused = drive!(bench, migrate, intent, record);
    assert!(
        matches!(&refused.outcome, Outcome::Failed { message, .. }
            if message.starts_with("targetStorage: scsi0 is declared to be on tank")),
        "{:?}",
        refused.outcome
    );
    assert_eq!(asked(&bench, "/migrate"), 0);

    wish.disks[0].stays = true;
    bench.want(wish);
    intent.declared.clear();
    let mut record = ActionRecord::default();
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.events);
    bench.run().await;
    bench.run_for(Duration::from_mins(10)).await;
    let config = crate::sources::config_of(&bench, &owner("web")).await;
    assert!(config.get("scsi0").unwrap().starts_with("local-lvm:"));
    assert_eq!(asked(&bench, "/move_disk"), 0);
}

/// PVE hands such a move to high availability, and the storage is lost on the way.
#[tokio::test(start_paused = true)]
async fn a_guest_under_high_availability_is_not_moved_to_another_storage() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut wish = machine("web", TEMPLATE);
    wish.options.ha = Some(fleet::intent::Ha::default());
    bench.want(wish);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let vmid = bench.record(&owner("web")).identity.as_ref().unwrap().vmid;
    let mut intent = anywhere("web", vmid);
    intent.target_storage = Some("nfs".parse().unwrap());
    let mut record = ActionRecord::default();
    let refused = drive!(bench, migrate, intent, record);
    assert!(
        matches!(&refused.outcome, Outcome::Failed { message, .. }
            if message.starts_with("targetStorage: ") && message.contains("without it")),
        "{:?}",
        refused.outcome
    );
    assert_eq!(asked(&bench, "/migrate"), 0);

    intent.target_storage = None;
    let mut record = ActionRecord::default();
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.events);
}

/// A container that runs, with its root file system on a storage of its node alone.
async fn with_container() -> (Bench, fleet::Identity) {
    let mut bench = Bench::new();
    bench.ready().await;
    let container = crate::create::container(&bench).await;
    let owner = bench.want(container);
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let identity = bench.record(&owner).identity.clone().expect("an identity");
    bench.cluster().control().reset_counts();
    (bench, identity)
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_snapshots_cannot_go_along_is_not_stopped_for_a_move() {
    let (mut bench, identity) = with_container().await;
    let lxc = bench.client().node(&identity.node).lxc(identity.vmid);
    let name = pve::SnapshotName::new("before").unwrap();
    let create = pve::api::guest::snapshot::CreateSnapshot::new(name.clone());
    let taken = lxc.snapshot(&create).await.unwrap();
    bench.client().wait(&taken).await.unwrap();
    let intent = anywhere("box", identity.vmid);
    let mut record = ActionRecord::default();
    let refused = drive!(bench, migrate, intent, record);
    let text = format!("{:?}", refused.outcome);
    assert!(matches!(refused.outcome, Outcome::Failed { .. }), "{text}");
    assert!(
        text.contains("'before'") && text.contains("rootfs"),
        "{text}"
    );
    assert_eq!(asked(&bench, "/migrate"), 0);

    let removed = lxc.delete_snapshot(&name, false).await.unwrap();
    bench.client().wait(&removed).await.unwrap();
    let mut record = ActionRecord::default();
    let moved = drive!(bench, migrate, intent, record);
    assert_eq!(moved.outcome, Outcome::Settled, "{:?}", moved.events);
}

/// PVE stops it first, and starts it again where it was.
#[tokio::test(start_paused = true)]
async fn a_container_whose_move_fails_is_stopped_once_unless_somebody_interrupted_it() {
    for (exit, again) in [
        ("command 'rsync' failed: exit code 23", false),
        ("received interrupt", true),
    ] {
        let (mut bench, identity) = with_container().await;
        let intent = anywhere("box", identity.vmid);
        let exit = exit.to_owned();
        let fault = pve_sim::Fault::once(
            "POST /nodes/{node}/lxc/{vmid}/migrate",
            pve_sim::Action::FailTask { exit: exit.clone() },
        );
        bench.cluster().control().inject(fault);
        let mut record = ActionRecord::default();
        let moved = drive!(bench, migrate, intent, record);
        let text = format!("{:?}", moved.outcome);
        if again {
            assert_eq!(moved.outcome, Outcome::Settled);
            assert_eq!(asked(&bench, "/migrate"), 2, "{}", bench.counts());
        } else {
            assert!(text.contains("GaveUp") && text.contains(&exit), "{text}");
            assert_eq!(asked(&bench, "/migrate"), 1, "{}", bench.counts());
        }
    }
}
