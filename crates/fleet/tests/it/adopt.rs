//! Taking over what exists.

use std::time::Duration;

use fleet::{
    Failure, Outcome,
    intent::{Deletion, Disk, DiskRole, Management, Nic, Power},
    mark,
};
use pve::{
    ConfigChange, CreateQemu, GuestConfig, NodeName, StorageId, Vmid,
    api::guest::{ConfigView, DeleteGuest},
};

use crate::harness::{Bench, machine, owner};

pub(crate) const VMID: u32 = 4711;

/// A guest somebody made by hand.
pub(crate) async fn by_hand(bench: &mut Bench, description: &str) -> pve::Qemu {
    made(bench, GuestConfig::new().with("description", description)).await
}

/// The same with these keys beside.
async fn made(bench: &mut Bench, beside: GuestConfig) -> pve::Qemu {
    let (node, vmid) = (NodeName::new("pve2").unwrap(), Vmid::new(VMID).unwrap());
    let mut config = GuestConfig::new()
        .with("name", "old-server")
        .with("cores", 3)
        .with("memory", 1024)
        .with("net0", "virtio=BC:24:11:00:00:99,bridge=vmbr0")
        .with("scsi0", "local-lvm:8");
    for (key, value) in beside.iter() {
        config.set(key, value);
    }
    let client = bench.client();
    let upid = client
        .node(&node)
        .create_qemu(&CreateQemu::new(vmid, config))
        .await
        .unwrap();
    while client.task_status(&upid).await.unwrap().end().is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bench.run_for(Duration::from_secs(15)).await;
    client.node(&node).qemu(vmid)
}

fn wish() -> fleet::GuestIntent {
    let mut intent = machine("old-server", "unused");
    intent.adopt = Vmid::new(VMID).ok();
    intent.source = fleet::intent::Source::Empty;
    intent.init = None;
    intent.disks.clear();
    intent.hardware.agent = None;
    intent.hardware.cpu.cores = None;
    intent.hardware.memory.size = None;
    intent.nics = vec![Nic {
        name: "lan".to_owned(),
        bridge: "vmbr0".to_owned(),
        ..Nic::default()
    }];
    intent.power = Power::Unmanaged { started: false };
    intent.policy.management = Management::Observe;
    intent
}

#[tokio::test(start_paused = true)]
async fn adoption_observes_first_and_writes_nothing() {
    let mut bench = Bench::new();
    bench.ready().await;
    let guest = by_hand(&mut bench, "the old server").await;
    let before = guest.config(ConfigView::Current).await.unwrap();
    let owner = bench.want(wish());
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.vmid, Vmid::new(VMID).ok());
    assert_eq!(guest.config(ConfigView::Current).await.unwrap(), before);
    let mac = progress.facts.nics[0].mac.to_string();
    assert_eq!(mac.to_lowercase(), "bc:24:11:00:00:99");

    // Managed from now on: what is declared is written, the rest is left as it was.
    let mut managed = wish();
    managed.policy.management = Management::Full;
    managed.hardware.cpu.cores = Some(2);
    bench.want(managed.clone());
    bench.run().await;
    let config = guest.config(ConfigView::Current).await.unwrap();
    assert_eq!(config.get("cores"), Some("2"));
    assert_eq!(config.get("memory"), Some("1024"));
    assert_eq!(
        mark::owner_of(config.description().unwrap()),
        Some(owner.clone())
    );

    // Let go again, it is as free as before.
    managed.policy.deletion = Deletion::Orphan;
    bench.want(managed);
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    let config = guest.config(ConfigView::Current).await.unwrap();
    assert_eq!(config.description(), Some("the old server"));
}

#[tokio::test(start_paused = true)]
async fn a_guest_of_another_owner_is_not_taken_over() {
    let mut bench = Bench::new();
    bench.ready().await;
    let marked = mark::describe("busy", &owner("somebody-else"));
    let guest = by_hand(&mut bench, &marked).await;
    let before = guest.config(ConfigView::Current).await.unwrap();
    let owner = bench.want(wish());
    bench.run().await;
    assert!(
        matches!(
            bench.progress(&owner).outcome,
            Outcome::Failed {
                why: Failure::Foreign,
                ..
            }
        ),
        "{:?}",
        bench.progress(&owner).outcome
    );
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(guest.config(ConfigView::Current).await.unwrap(), before);
}

/// Who only looks leaves no mark on the guest, so it is the fleet itself that knows.
#[tokio::test(start_paused = true)]
async fn a_guest_that_somebody_observes_is_not_taken_over_by_another() {
    let mut bench = Bench::new();
    bench.ready().await;
    by_hand(&mut bench, "the old server").await;
    let first = bench.want(wish());
    bench.run().await;
    let mut other = wish();
    other.owner = owner("another");
    let second = bench.want(other);
    let refused = bench.call_now(&second).await;
    assert!(
        matches!(
            refused.outcome,
            Outcome::Waiting {
                what: fleet::Waiting::InUse,
                ..
            }
        ),
        "{:?}",
        refused.outcome
    );
    assert_eq!(bench.record(&second).identity, None);
    // Once it is let go of, the other may have it.
    bench.delete(&first);
    bench.run().await;
    assert_eq!(bench.progress(&second).outcome, Outcome::Settled);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_named_and_not_recorded_is_removed_only_if_it_says_that_it_was_taken_over()
{
    let mut bench = Bench::new();
    bench.ready().await;
    let guest = by_hand(&mut bench, "the old server").await;
    let before = guest.config(ConfigView::Current).await.unwrap();
    let mut intent = managed();
    intent.policy.deletion = Deletion::Delete;
    let owner = bench.want(intent.clone());
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    assert_eq!(guest.config(ConfigView::Current).await.unwrap(), before);

    // What was recorded of it may be lost; its notes say whose it is.
    bench.matters.clear();
    intent.hardware.cpu.cores = Some(2);
    bench.want(intent);
    bench.run().await;
    bench.matters.get_mut(&owner).unwrap().record = fleet::GuestRecord::default();
    bench.restart();
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Gone);
    assert!(guest.config(ConfigView::Current).await.is_err());
}

async fn delete_key(guest: &pve::Qemu, key: &str) {
    let change = ConfigChange::delete([key]);
    guest.configure(&change).await.unwrap();
}

pub(crate) fn managed() -> fleet::GuestIntent {
    let mut intent = wish();
    intent.policy.management = Management::Full;
    intent
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_a_uuid_is_not_taken_for_who_has_its_vmid_later() {
    let mut bench = Bench::new();
    bench.ready().await;
    let guest = by_hand(&mut bench, "the old server").await;
    delete_key(&guest, "smbios1").await;
    let mut intent = managed();
    intent.policy.deletion = Deletion::Delete;
    let owner = bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    // Its notes may be rewritten: its hardware address tells it.
    let notes = GuestConfig::new().with("description", "rewritten");
    guest.configure(&ConfigChange::set(notes)).await.unwrap();
    bench.restart();
    intent.hardware.cpu.cores = Some(2);
    bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);

    let gone = guest.delete(DeleteGuest::default()).await;
    let gone = gone.unwrap();
    while bench
        .client()
        .task_status(&gone)
        .await
        .unwrap()
        .end()
        .is_none()
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let another = GuestConfig::new().with("net0", "virtio=BC:24:11:00:00:11,bridge=vmbr0");
    let another = made(&mut bench, another).await;
    let before = another.config(ConfigView::Current).await.unwrap();
    bench.restart();
    intent.hardware.cpu.cores = Some(1);
    bench.want(intent);
    bench.run().await;
    assert!(
        matches!(
            bench.progress(&owner).outcome,
            Outcome::Failed {
                why: Failure::Lost,
                ..
            }
        ),
        "{:?}",
        bench.progress(&owner).outcome
    );
    bench.delete(&owner);
    bench.run().await;
    assert_eq!(another.config(ConfigView::Current).await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_card_is_known_by_its_address_and_gets_another_where_one_is_said() {
    let mut bench = Bench::new();
    bench.ready().await;
    let second = GuestConfig::new().with("net1", "e1000=BC:24:11:00:00:98,bridge=vmbr1");
    let guest = made(&mut bench, second).await;
    let mut intent = managed();
    intent.nics = vec![Nic {
        name: "dmz".to_owned(),
        bridge: "vmbr1".to_owned(),
        mac: Some("BC:24:11:00:00:98".parse().unwrap()),
        ..Nic::default()
    }];
    let owner = bench.want(intent.clone());
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let config = guest.config(ConfigView::Current).await.unwrap();
    let net0 = "virtio=BC:24:11:00:00:99,bridge=vmbr0";
    assert_eq!(config.get("net0"), Some(net0));
    assert!(
        config
            .get("net1")
            .unwrap()
            .starts_with("e1000=BC:24:11:00:00:98")
    );

    intent.nics[0].mac = Some("BC:24:11:00:00:97".parse().unwrap());
    bench.want(intent);
    bench.run().await;
    let config = guest.config(ConfigView::Current).await.unwrap();
    assert_eq!(config.get("net0"), Some(net0));
    assert!(
        config
            .get("net1")
            .unwrap()
            .starts_with("e1000=BC:24:11:00:00:97")
    );
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_names_its_storage_is_moved_there_and_others_stay() {
    let mut bench = Bench::new();
    bench.ready().await;
    let guest = by_hand(&mut bench, "the old server").await;
    let disk = |stays| Disk {
        name: "root".to_owned(),
        role: DiskRole::Root,
        storage: StorageId::new("ceph").ok(),
        stays,
        size: Some(fleet::Size::gib(8)),
        ..Disk::default()
    };
    for (stays, on) in [(true, "local-lvm:"), (false, "ceph:")] {
        let mut intent = managed();
        intent.disks = vec![disk(stays)];
        let owner = bench.want(intent);
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        let config = guest.config(ConfigView::Current).await.unwrap();
        assert!(config.get("scsi0").unwrap().starts_with(on), "{on}");
    }
}

/// Such guests have no boot order, as those of Proxmox VE before 6.3.
#[tokio::test(start_paused = true)]
async fn a_disk_that_an_old_guest_boots_from_stays_when_its_entry_goes() {
    let mut bench = Bench::new();
    bench.ready().await;
    let old = GuestConfig::new()
        .with("boot", "cdn")
        .with("bootdisk", "scsi0");
    let guest = made(&mut bench, old).await;
    let mut intent = managed();
    intent.disks = vec![Disk {
        name: "system".to_owned(),
        size: Some(fleet::Size::gib(8)),
        ..Disk::default()
    }];
    let owner = bench.want(intent);
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    bench.want(managed());
    bench.run().await;
    let config = guest.config(ConfigView::Next).await.unwrap();
    assert!(config.get("scsi0").is_some(), "{}", bench.stories());
}
