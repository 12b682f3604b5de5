//! What becomes of disks that are taken out, put back, grown and copied.

use std::time::Duration;

use fleet::{
    GuestIntent, Outcome, Owner, Size,
    intent::{BackupMode, CloneMode, Disk, Init, InitMode, Power, Source, TemplateRef},
};
use pve::{
    ConfigChange, GuestConfig, NodeName, SnapshotName, StorageId,
    api::{
        guest::{ConfigView, migrate::MigrateQemu, snapshot::CreateSnapshot},
        qemu::MoveTo,
    },
};

use crate::harness::{Bench, machine, owner};

const TEMPLATE: &str = "ubuntu-24-04";

/// A front-end that reads configurations again every few seconds.
async fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.options.audit_interval = Duration::from_secs(10);
    bench.restart();
    bench.ready().await;
    bench
}

fn with_data() -> GuestIntent {
    let mut intent = machine("web", TEMPLATE);
    intent.disks.push(Disk {
        name: "data".to_owned(),
        size: Some(Size::gib(10)),
        ..Disk::default()
    });
    intent
}

async fn settled(intent: GuestIntent) -> (Bench, Owner, pve::Qemu) {
    let mut bench = bench().await;
    let owner = bench.want(intent);
    bench.run().await;
    let qemu = qemu(&bench, &owner);
    (bench, owner, qemu)
}

fn qemu(bench: &Bench, owner: &Owner) -> pve::Qemu {
    let facts = &bench.progress(owner).facts;
    let node = facts.node.clone().expect("a node");
    bench.client().node(&node).qemu(facts.vmid.expect("a VMID"))
}

async fn config(qemu: &pve::Qemu) -> GuestConfig {
    qemu.config(ConfigView::Next).await.unwrap()
}

fn volume(config: &GuestConfig, slot: &str) -> String {
    let drive = config.get(slot).unwrap_or_default();
    drive.split(',').next().unwrap_or_default().to_owned()
}

async fn take_out(qemu: &pve::Qemu, key: &str) {
    let change = ConfigChange {
        delete: vec![key.to_owned()],
        ..ConfigChange::default()
    };
    qemu.configure(&change).await.unwrap();
}

fn drifted(bench: &Bench, owner: &Owner) -> Vec<String> {
    let drift = bench.progress(owner).facts.drift.iter();
    drift.map(|drift| drift.key.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_disk_taken_out_by_hand_comes_back_with_what_is_on_it() {
    let (mut bench, owner, qemu) = settled(with_data()).await;
    let before = volume(&config(&qemu).await, "scsi1");
    take_out(&qemu, "scsi1").await;
    assert_eq!(config(&qemu).await.get("unused0"), Some(before.as_str()));
    bench.run_for(Duration::from_mins(2)).await;
    let after = config(&qemu).await;
    assert_eq!(volume(&after, "scsi1"), before, "{}", bench.stories());
    assert_eq!(after.get("unused0"), None);
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
}

/// Who has not read the guest since would name the volume that it had before.
#[tokio::test(start_paused = true)]
async fn a_disk_moved_by_hand_keeps_its_volume_when_an_option_of_it_changes() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = with_data();
    // Nothing in it ever answers, so it is never at rest.
    intent.source = Source::Empty;
    intent.init = None;
    for disk in &mut intent.disks {
        disk.size = Some(Size::gib(8));
        disk.storage = None;
        disk.stays = true;
    }
    let owner = bench.want(intent.clone());
    bench.call_now(&owner).await;
    bench.run_for(Duration::from_mins(2)).await;
    let qemu = qemu(&bench, &owner);
    let to = MoveTo::Storage(StorageId::new("ceph").unwrap(), None);
    let upid = qemu.move_disk("scsi1", &to, false, None).await.unwrap();
    while bench
        .client()
        .task_status(&upid)
        .await
        .unwrap()
        .end()
        .is_none()
    {
        bench.run_for(Duration::from_secs(1)).await;
    }
    let moved = volume(&config(&qemu).await, "scsi1");
    assert!(moved.starts_with("ceph:"), "{moved}");
    intent.disks[1].backup = Some(false);
    bench.want(intent);
    bench.call_now(&owner).await;
    bench.run_for(Duration::from_mins(1)).await;
    let after = config(&qemu).await;
    assert_eq!(volume(&after, "scsi1"), moved, "{}", bench.stories());
    assert!(after.get("scsi1").unwrap().contains("backup=0"));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_nowhere_is_missed_and_no_empty_one_takes_its_place() {
    let (mut bench, owner, qemu) = settled(with_data()).await;
    take_out(&qemu, "scsi1").await;
    take_out(&qemu, "unused0").await;
    bench.run_for(Duration::from_mins(2)).await;
    assert_eq!(config(&qemu).await.get("scsi1"), None);
    assert_eq!(drifted(&bench, &owner), ["scsi1"]);
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
}

#[tokio::test(start_paused = true)]
async fn a_root_disk_taken_out_of_a_copy_comes_back_and_boots() {
    let mut intent = machine("web", TEMPLATE);
    intent.power = Power::Off;
    intent.disks.clear();
    let (mut bench, _, qemu) = settled(intent).await;
    // Until it was read once, nobody knows what PVE called the copy of the disk.
    bench.run_for(Duration::from_secs(30)).await;
    let before = volume(&config(&qemu).await, "scsi0");
    take_out(&qemu, "scsi0").await;
    bench.run_for(Duration::from_mins(2)).await;
    let after = config(&qemu).await;
    assert_eq!(volume(&after, "scsi0"), before);
    assert!(after.get("boot").unwrap().starts_with("order=scsi0"));
}

#[tokio::test(start_paused = true)]
async fn a_disk_declared_again_is_the_old_one_and_its_place_is_free_meanwhile() {
    let (mut bench, owner, qemu) = settled(with_data()).await;
    let before = volume(&config(&qemu).await, "scsi1");
    bench.want(machine("web", TEMPLATE));
    bench.run().await;
    assert_eq!(config(&qemu).await.get("unused0"), Some(before.as_str()));
    let theirs = GuestConfig::new().with("scsi1", "local-lvm:1");
    qemu.configure(&ConfigChange::set(theirs)).await.unwrap();
    bench.run_for(Duration::from_mins(2)).await;
    let theirs = volume(&config(&qemu).await, "scsi1");
    assert!(!theirs.is_empty(), "what somebody puts there is theirs");
    bench.want(with_data());
    bench.run().await;
    let after = config(&qemu).await;
    assert_eq!(volume(&after, "scsi1"), theirs);
    assert_eq!(volume(&after, "scsi2"), before);
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
}

/// Takes the guest back to a snapshot, by hand.
async fn go_back(bench: &mut Bench, qemu: &pve::Qemu, to: &SnapshotName) {
    qemu.rollback(to, false).await.unwrap();
    bench.run_for(Duration::from_mins(2)).await;
}

async fn take_snapshot(bench: &mut Bench, qemu: &pve::Qemu) -> SnapshotName {
    let name = SnapshotName::new("before".to_owned()).unwrap();
    let taken = CreateSnapshot::new(name.clone());
    qemu.snapshot(&taken).await.unwrap();
    bench.run_for(Duration::from_mins(1)).await;
    name
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_a_snapshot_brought_back_is_not_put_in_twice_when_it_is_declared_again() {
    let (mut bench, owner, qemu) = settled(with_data()).await;
    let before = volume(&config(&qemu).await, "scsi1");
    let snapshot = take_snapshot(&mut bench, &qemu).await;
    bench.want(machine("web", TEMPLATE));
    bench.run().await;
    assert_eq!(config(&qemu).await.get("scsi1"), None);
    go_back(&mut bench, &qemu, &snapshot).await;
    assert_eq!(
        volume(&config(&qemu).await, "scsi1"),
        before,
        "what a snapshot brings is left alone"
    );
    bench.want(with_data());
    bench.run().await;
    let after = config(&qemu).await;
    assert_eq!(volume(&after, "scsi1"), before);
    assert_eq!(after.get("scsi2"), None, "{after:?}");
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
}

#[tokio::test(start_paused = true)]
async fn a_disk_grown_by_hand_is_reported_and_the_guest_kept() {
    let (mut bench, owner, qemu) = settled(with_data()).await;
    qemu.resize("scsi1", "20G", None).await.unwrap();
    bench.run_for(Duration::from_mins(2)).await;
    assert_eq!(drifted(&bench, &owner), ["scsi1"]);
    let mut more = with_data();
    more.hardware.cpu.limit = Some(1.0);
    bench.want(more);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    assert_eq!(config(&qemu).await.get("cpulimit"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_machine_has_its_disks_under_their_names() {
    let mut original = with_data();
    original.power = Power::Off;
    let (mut bench, first, _) = settled(original).await;
    let from = bench.progress(&first).facts.vmid.expect("a VMID");
    let mut copy = with_data();
    copy.owner = owner("copy");
    copy.name = "copy".to_owned();
    copy.source = Source::Template {
        from: TemplateRef::Vmid(from),
        mode: CloneMode::Full,
        snapshot: None,
    };
    let copy = bench.want(copy);
    bench.run().await;
    let outcome = &bench.progress(&copy).outcome;
    assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
    let config = config(&qemu(&bench, &copy)).await;
    assert!(config.get("scsi1").is_some());
    assert_eq!(config.get("scsi2"), None, "no empty disk beside it");
}

#[tokio::test(start_paused = true)]
async fn what_is_restored_keeps_its_disks_where_they_were() {
    let mut bench = bench().await;
    let mut intent = machine("web", TEMPLATE);
    intent.source = Source::Empty;
    intent.power = Power::Off;
    intent.disks[0].bus = Some(fleet::intent::Bus::Virtio);
    intent.disks.push(Disk {
        name: "data".to_owned(),
        size: Some(Size::gib(10)),
        ..Disk::default()
    });
    let first = bench.want(intent);
    bench.run().await;
    let volume = bench.back_up(&first, BackupMode::Stop).await;
    let mut again = with_data();
    again.owner = owner("again");
    again.name = "again".to_owned();
    again.source = Source::Backup { volume };
    again.power = Power::Off;
    let again = bench.want(again);
    bench.run().await;
    let outcome = &bench.progress(&again).outcome;
    assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
    let config = config(&qemu(&bench, &again)).await;
    assert!(config.get("boot").unwrap().starts_with("order=virtio0"));
    assert!(config.get("scsi0").is_some(), "the data disk");
    assert_eq!(config.get("scsi1"), None, "no empty disk beside it");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_moved_does_not_need_the_node_it_was_made_on() {
    let mut intent = with_data();
    intent.placement.nodes = vec![NodeName::new("pve2").unwrap()];
    let (mut bench, owner, there) = settled(intent.clone()).await;
    let mut how = MigrateQemu::online(NodeName::new("pve3").unwrap());
    how.with_local_disks = true;
    there.migrate(&how).await.unwrap();
    bench.run_for(Duration::from_mins(5)).await;
    let now = bench.progress(&owner).facts.node.clone();
    assert_eq!(now, Some(NodeName::new("pve3").unwrap()));
    bench.cluster().kill_node("pve2");
    bench.run_for(Duration::from_mins(2)).await;
    intent.hardware.cpu.limit = Some(1.0);
    bench.want(intent);
    bench.run_for(Duration::from_mins(2)).await;
    let outcome = bench.call_now(&owner).await.outcome;
    assert_eq!(outcome, Outcome::Settled, "{}", bench.stories());
}

#[tokio::test(start_paused = true)]
async fn what_only_root_may_write_is_copied_and_not_sent() {
    let mut bench = bench().await;
    let args = GuestConfig::new().with("args", "-no-hpet");
    for (vmid, node) in templates(&bench).await {
        let qemu = bench.client().node(&node).qemu(vmid);
        qemu.configure(&ConfigChange::set(args.clone()))
            .await
            .unwrap();
    }
    let owner = bench.want(full("web"));
    bench.run().await;
    let outcome = &bench.progress(&owner).outcome;
    assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
    let config = config(&qemu(&bench, &owner)).await;
    assert_eq!(config.get("args"), Some("-no-hpet"));
    assert!(bench.counts().contains("/clone"), "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn a_copy_has_the_password_that_is_declared_and_never_the_stars() {
    for mode in [CloneMode::Full, CloneMode::Auto] {
        let mut bench = bench().await;
        let theirs = GuestConfig::new().with("cipassword", "theirs");
        for (vmid, node) in templates(&bench).await {
            let qemu = bench.client().node(&node).qemu(vmid);
            qemu.configure(&ConfigChange::set(theirs.clone()))
                .await
                .unwrap();
        }
        let mut passwords = Vec::new();
        for password in [None, Some("$5$salt$ours")] {
            let mut intent = full(if password.is_some() { "ours" } else { "theirs" });
            if let Source::Template { mode: how, .. } = &mut intent.source {
                *how = mode;
            }
            intent.init = Some(Init {
                mode: InitMode::Native,
                password: password.map(Into::into),
                ..Init::default()
            });
            let owner = bench.want(intent);
            bench.run().await;
            let outcome = &bench.progress(&owner).outcome;
            assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
            let user = qemu(&bench, &owner).cloudinit_dump("user").await.unwrap();
            let line = user.lines().find(|line| line.starts_with("password:"));
            passwords.push(line.unwrap_or_default().to_owned());
        }
        assert!(passwords[0].contains("$5$"), "{mode:?}: {passwords:?}");
        assert!(passwords[1].ends_with("$5$salt$ours"), "{passwords:?}");
    }
}

fn full(name: &str) -> GuestIntent {
    let mut intent = machine(name, TEMPLATE);
    if let Source::Template { mode, .. } = &mut intent.source {
        *mode = CloneMode::Full;
    }
    intent
}

async fn templates(bench: &Bench) -> Vec<(pve::Vmid, NodeName)> {
    let mut found = Vec::new();
    for node in bench.cluster().nodes() {
        let node = NodeName::new(node).unwrap();
        let rows = bench.client().node(&node).qemu_list(false).await.unwrap();
        let named = rows
            .into_iter()
            .filter(|row| row.name.as_deref() == Some(TEMPLATE));
        found.extend(named.filter_map(|row| Some((row.vmid?, node.clone()))));
    }
    found
}

#[tokio::test(start_paused = true)]
async fn the_disk_that_a_guest_boots_from_stays_when_it_is_not_declared_any_more_and_under_a_new_name()
 {
    let mut intent = machine("web", TEMPLATE);
    intent.disks[0].name = "system".to_owned();
    let (mut bench, owner, qemu) = settled(intent.clone()).await;
    let before = config(&qemu).await.get("scsi0").map(str::to_owned);
    assert!(before.is_some());

    let declared = std::mem::take(&mut intent.disks);
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(config(&qemu).await.get("scsi0"), before.as_deref());
    let drift = bench.progress(&owner).facts.drift.clone();
    assert!(drift.iter().any(|drift| drift.key == "scsi0"), "{drift:?}");

    intent.disks = declared;
    intent.disks[0].name = "boot".to_owned();
    bench.want(intent);
    bench.run().await;
    assert_eq!(config(&qemu).await.get("scsi0"), before.as_deref());
    let facts = &bench.progress(&owner).facts;
    assert_eq!(facts.drift, [], "{}", bench.stories());
    let slot = bench.record(&owner).identity.as_ref().unwrap().disks["boot"];
    assert_eq!(slot.to_string(), "scsi0");
}

/// What new disks get by default says nothing about those that there are.
#[tokio::test(start_paused = true)]
async fn a_disk_that_is_only_made_somewhere_by_default_stays_there() {
    let mut intent = with_data();
    let by_default = |intent: &mut GuestIntent, name: &str| {
        let data = &mut intent.disks[1];
        data.storage = Some(name.parse().unwrap());
        data.stays = true;
    };
    by_default(&mut intent, "local-lvm");
    let (mut bench, owner, qemu) = settled(intent.clone()).await;
    let before = volume(&config(&qemu).await, "scsi1");
    assert!(before.starts_with("local-lvm:"), "{before}");
    by_default(&mut intent, "ceph");
    bench.want(intent.clone());
    bench.run().await;
    bench.run_for(Duration::from_mins(5)).await;
    assert_eq!(volume(&config(&qemu).await, "scsi1"), before);
    // Said of the disk itself it moves.
    intent.disks[1].stays = false;
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let after = volume(&config(&qemu).await, "scsi1");
    assert!(after.starts_with("ceph:"), "{after}");
}

/// PVE moves no volume of a container that runs.
#[tokio::test(start_paused = true)]
async fn a_container_whose_root_shall_move_can_be_switched_off() {
    let mut bench = bench().await;
    let mut intent = crate::create::container(&bench).await;
    let owner = bench.want(intent.clone());
    bench.run().await;
    intent.disks[0].storage = Some("ceph".parse().unwrap());
    intent.power = fleet::intent::Power::Off;
    bench.want(intent);
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.power, fleet::PowerFact::Stopped);
}

const RESIZE: &str = "PUT /nodes/{node}/qemu/{vmid}/resize";

fn resizes(bench: &Bench) -> u64 {
    let counts = bench.cluster().control().counts();
    counts.get(RESIZE).copied().unwrap_or_default()
}

/// What the second disk is and what it will be after a restart.
async fn now_and_then(qemu: &pve::Qemu) -> (String, Option<String>) {
    let rows = qemu.pending().await.unwrap();
    let row = rows.into_iter().find(|row| row.key == "scsi1").unwrap();
    (row.value.unwrap(), row.pending)
}

/// An option of a disk waits for a restart, with the size that the disk had when it was written.
#[tokio::test(start_paused = true)]
async fn a_disk_that_grows_and_changes_keeps_its_new_size_over_a_restart() {
    for at_once in [true, false] {
        let (mut bench, owner, qemu) = settled(with_data()).await;
        let mut intent = with_data();
        intent.disks[1].ssd = Some(true);
        if !at_once {
            bench.want(intent.clone());
            bench.run().await;
            assert_eq!(bench.progress(&owner).facts.pending, ["scsi1"]);
        }
        bench.cluster().control().reset_counts();
        intent.disks[1].size = Some(Size::gib(20));
        bench.want(intent.clone());
        bench.run().await;
        for _ in 0..2 {
            let progress = bench.progress(&owner);
            assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
            assert_eq!(progress.facts.pending, ["scsi1"], "at once: {at_once}");
            assert_eq!(progress.facts.drift, []);
            let (now, then) = now_and_then(&qemu).await;
            assert!(now.contains("size=20G") && !now.contains("ssd"), "{now}");
            let then = then.unwrap();
            assert!(
                then.contains("size=20G") && then.contains("ssd=1"),
                "{then}"
            );
            bench.run_for(Duration::from_mins(2)).await;
        }
        intent.restarts += 1;
        bench.want(intent);
        bench.run().await;
        bench.run_for(Duration::from_mins(2)).await;
        let (now, then) = now_and_then(&qemu).await;
        assert!(now.contains("size=20G") && now.contains("ssd=1"), "{now}");
        assert_eq!(then, None);
        assert_eq!(bench.progress(&owner).facts.pending, Vec::<String>::new());
        assert_eq!(resizes(&bench), 1, "at once: {at_once}");
    }
}

/// Whoever grew it by hand while an option waited has left a size behind that no growing mends.
#[tokio::test(start_paused = true)]
async fn a_size_that_a_restart_has_set_back_is_put_right_by_writing_the_drive() {
    let (mut bench, owner, qemu) = settled(with_data()).await;
    let drive = volume(&config(&qemu).await, "scsi1") + ",ssd=1";
    let theirs = GuestConfig::new().with("scsi1", drive);
    qemu.configure(&ConfigChange::set(theirs)).await.unwrap();
    qemu.resize("scsi1", "20G", None).await.unwrap();
    bench.run_for(Duration::from_secs(5)).await;
    qemu.reboot(None).await.unwrap();
    bench.run_for(Duration::from_mins(2)).await;
    let (now, then) = now_and_then(&qemu).await;
    assert!(now.contains("size=10G") && then.is_none(), "{now} {then:?}");
    bench.cluster().control().reset_counts();
    let mut intent = with_data();
    intent.disks[1].size = Some(Size::gib(20));
    bench.want(intent);
    bench.run().await;
    bench.run_for(Duration::from_mins(10)).await;
    let (now, then) = now_and_then(&qemu).await;
    assert!(now.contains("size=20G") && then.is_none(), "{now} {then:?}");
    assert_eq!(bench.progress(&owner).facts.drift, []);
    assert_eq!(resizes(&bench), 1);
}
