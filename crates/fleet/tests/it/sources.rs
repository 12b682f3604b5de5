//! Everything a guest can be made from besides a template next door.

use fleet::{
    Outcome, PowerFact, Size,
    intent::{CloneMode, Disk, DiskRole, Power, Readiness, Source, TemplateRef, Update},
};
use pve::{NodeName, StorageId, api::guest::DeleteGuest};

use crate::harness::{Bench, machine, owner};

const TEMPLATE: &str = "ubuntu-24-04";

pub(crate) async fn config_of(bench: &Bench, owner: &fleet::Owner) -> pve::GuestConfig {
    let progress = bench.progress(owner);
    let (node, vmid) = (
        progress.facts.node.clone().unwrap(),
        progress.facts.vmid.unwrap(),
    );
    let guest = bench.client().node(&node).qemu(vmid);
    guest
        .config(pve::api::guest::ConfigView::Current)
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_template_on_another_nodes_disks_is_copied_there_and_the_copy_moved() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    // The template of this number is on the second node's own storage only.
    intent.source = Source::Template {
        from: TemplateRef::Vmid(pve::Vmid::new(9011).unwrap()),
        mode: CloneMode::Auto,
        snapshot: None,
    };
    intent.placement.nodes = vec![NodeName::new("pve3").unwrap()];
    let owner = bench.want(intent);
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.node, Some(NodeName::new("pve3").unwrap()));
    assert_eq!(progress.facts.power, PowerFact::Running);
    assert!(
        progress.facts.placement.as_ref().unwrap().contains("moved"),
        "{:?}",
        progress.facts.placement
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_from_shared_storage_comes_to_rest_on_another_nodes_own() {
    for mode in [CloneMode::Auto, CloneMode::Full] {
        let mut bench = Bench::new();
        bench.ready().await;
        let before = bench.inventory().await;
        let mut intent = machine("web", TEMPLATE);
        intent.source = Source::Template {
            from: TemplateRef::Vmid(pve::Vmid::new(9000).unwrap()),
            mode,
            snapshot: None,
        };
        intent.disks[0].storage = Some(StorageId::new("tank").unwrap());
        intent.placement.nodes = vec![NodeName::new("pve3").unwrap()];
        let owner = bench.want(intent);
        bench.run().await;
        let outcome = &bench.progress(&owner).outcome;
        assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
        let disk = config_of(&bench, &owner).await;
        let disk = disk.get("scsi0").unwrap();
        assert!(disk.starts_with("tank:vm-"), "{mode:?}: {disk}");
        assert!(disk.contains("size=40G"), "{mode:?}: {disk}");
        bench.delete(&owner);
        bench.run().await;
        assert_eq!(bench.inventory().await.volumes, before.volumes, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thick_root_disk_is_a_full_raw_copy_wherever_it_is_made() {
    for node in ["pve1", "pve2"] {
        let mut bench = Bench::new();
        bench.ready().await;
        let vmid = pve::Vmid::new(9100).unwrap();
        let nfs = StorageId::new("nfs").unwrap();
        let mut clone = pve::CloneGuest::new(vmid);
        clone.name = Some("on-files".to_owned());
        clone.full = Some(true);
        clone.storage = Some(nfs.clone());
        clone.format = Some("qcow2".to_owned());
        let client = bench.client();
        let pve1 = client.node(&NodeName::new("pve1").unwrap());
        let original = pve1.qemu(pve::Vmid::new(9000).unwrap());
        let task = original.clone_to(&clone).await.unwrap();
        client.wait(&task).await.unwrap();
        if let Some(task) = pve1.qemu(vmid).make_template().await.unwrap() {
            client.wait(&task).await.unwrap();
        }
        bench.run_for(std::time::Duration::from_secs(15)).await;

        let mut intent = machine("web", "on-files");
        intent.disks[0].storage = Some(nfs);
        intent.disks[0].thin = Some(false);
        intent.placement.nodes = vec![NodeName::new(node).unwrap()];
        let owner = bench.want(intent.clone());
        bench.run().await;
        let outcome = &bench.progress(&owner).outcome;
        assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
        let config = config_of(&bench, &owner).await;
        let disk = config.get("scsi0").unwrap();
        assert!(disk.starts_with("nfs:") && disk.contains(".raw"), "{disk}");
        assert!(!disk.contains("base-"), "{disk}");
        assert!(bench.progress(&owner).facts.drift.is_empty());

        intent.owner = crate::harness::owner("linked");
        intent.source = Source::Template {
            from: TemplateRef::Vmid(vmid),
            mode: CloneMode::Linked,
            snapshot: None,
        };
        let owner = bench.want(intent);
        bench.run().await;
        let outcome = format!("{:?}", bench.progress(&owner).outcome);
        assert!(outcome.contains("a thick root disk"), "{outcome}");
    }
}

/// The call that sets a disk's options names its volume: the copy's, never the template's.
#[tokio::test(start_paused = true)]
async fn options_of_a_copied_disk_are_written_to_the_copy() {
    for mode in [CloneMode::Linked, CloneMode::Full] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        let from = TemplateRef::Vmid(pve::Vmid::new(9000).unwrap());
        intent.source = Source::Template {
            from,
            mode,
            snapshot: None,
        };
        intent.placement.nodes = vec![NodeName::new("pve2").unwrap()];
        intent.disks[0].ssd = Some(true);
        intent.disks[0].cache = Some("writeback".to_owned());
        let owner = bench.want(intent);
        bench.run().await;
        let outcome = &bench.progress(&owner).outcome;
        assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
        let vmid = bench.progress(&owner).facts.vmid.unwrap();
        let config = config_of(&bench, &owner).await;
        let disk = config.get("scsi0").unwrap();
        assert!(disk.contains(&format!("vm-{vmid}-disk-0")), "{disk}");
        assert!(
            disk.contains("ssd=1") && disk.contains("cache=writeback"),
            "{disk}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_installer_is_in_its_drive_and_in_the_boot_order_behind_the_disk() {
    let mut bench = Bench::new();
    bench.ready().await;
    let node = NodeName::new("pve1").unwrap();
    let upload = pve::api::storage::upload::Upload::iso("debian.iso", 4);
    let storage = StorageId::new("local").unwrap();
    let upid = bench
        .client()
        .node(&node)
        .storage(&storage)
        .upload_bytes(&upload, bytes::Bytes::from_static(b"iso!"))
        .await
        .unwrap();
    while bench
        .client()
        .task_status(&upid)
        .await
        .unwrap()
        .end()
        .is_none()
    {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let mut intent = machine("web", TEMPLATE);
    intent.source = Source::Iso {
        volume: "local:iso/debian.iso".to_owned(),
    };
    intent.init = None;
    intent.policy.readiness = Readiness::Running;
    let owner = bench.want(intent);
    bench.run().await;
    assert_eq!(
        bench.progress(&owner).outcome,
        Outcome::Settled,
        "{}",
        bench.stories()
    );
    let config = config_of(&bench, &owner).await;
    assert!(
        config
            .get("ide0")
            .unwrap()
            .starts_with("local:iso/debian.iso")
    );
    assert_eq!(config.get("boot"), Some("order=scsi0;ide0"));
    assert!(config.get("scsi0").unwrap().contains("size=40G"));
}

#[tokio::test(start_paused = true)]
async fn a_disk_image_on_a_storage_is_imported_and_grown() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.source = Source::Volume {
        volume: "local:import/ubuntu-24.04-server-cloudimg-amd64.qcow2".to_owned(),
    };
    intent.disks = vec![Disk {
        name: "root".to_owned(),
        role: DiskRole::Root,
        storage: Some(StorageId::new("local-lvm").unwrap()),
        size: Some(Size::gib(20)),
        ..Disk::default()
    }];
    let owner = bench.want(intent);
    bench.run().await;
    assert_eq!(
        bench.progress(&owner).outcome,
        Outcome::Settled,
        "{}",
        bench.stories()
    );
    let disk = config_of(&bench, &owner)
        .await
        .get("scsi0")
        .unwrap()
        .to_owned();
    assert!(
        disk.starts_with("local-lvm:") && disk.contains("size=20G"),
        "{disk}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_larger_source_stays_as_large_grows_when_asked_and_never_shrinks() {
    for mode in [CloneMode::Auto, CloneMode::Full] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", TEMPLATE);
        let Source::Template { mode: how, .. } = &mut intent.source else {
            panic!("machines are made from a template");
        };
        *how = mode;
        intent.disks[0].size = Some(Size::mib(512));
        let owner = bench.want(intent.clone());
        bench.run().await;
        let outcome = &bench.progress(&owner).outcome;
        assert_eq!(outcome, &Outcome::Settled, "{mode:?} {}", bench.stories());
        let brought = bench.progress(&owner).facts.clone();
        assert_eq!(brought.larger.len(), 1, "and it is told");
        assert_eq!(brought.larger[0].declared, Size::mib(512));
        let at_rest = bench.requests();
        bench.call_now(&owner).await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        assert_eq!(bench.requests(), at_rest, "what is accepted is at rest");

        intent.disks[0].size = Some(Size::gib(64));
        bench.want(intent.clone());
        bench.run().await;
        let disk = config_of(&bench, &owner).await;
        let disk = disk.get("scsi0").unwrap();
        assert!(disk.contains("size=64G"), "{mode:?}: {disk} {brought:?}");
        assert_eq!(bench.progress(&owner).facts.larger, []);

        intent.disks[0].size = Some(Size::gib(48));
        bench.want(intent);
        let refused = bench.call_now(&owner).await;
        assert!(
            matches!(&refused.outcome, Outcome::Failed { message, .. } if message.contains("cannot be made smaller")),
            "{:?}",
            refused.outcome
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_was_grown_is_not_taken_for_a_large_source_before_the_guest_has_answered() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    let owner = bench.want(intent.clone());
    let runs = |bench: &Bench| bench.progress(&owner).facts.power == fleet::PowerFact::Running;
    bench.call_now(&owner).await;
    while !runs(&bench) {
        bench.run_for(std::time::Duration::from_secs(1)).await;
    }
    assert_ne!(bench.progress(&owner).outcome, Outcome::Settled);
    intent.disks[0].size = Some(Size::gib(10));
    bench.want(intent);
    let refused = bench.call_now(&owner).await;
    assert!(
        matches!(&refused.outcome, Outcome::Failed { message, .. } if message.contains("cannot be made smaller")),
        "{:?}",
        refused.outcome
    );
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_has_got_the_number_of_the_source_is_not_copied() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut source = machine("web", TEMPLATE);
    source.power = Power::Off;
    let web = bench.want(source);
    bench.run().await;
    let identity = bench.record(&web).identity.clone().unwrap();
    let mut copy = machine("copy", TEMPLATE);
    copy.disks.clear();
    copy.source = Source::Template {
        from: TemplateRef::Guest(fleet::record::Subject {
            cluster: identity.cluster.clone(),
            guest: identity.vmid,
            owner: Some(web.clone()),
            keeper: None,
            likeness: identity.likeness(),
        }),
        mode: CloneMode::Full,
        snapshot: None,
    };
    let first = bench.want(fleet::GuestIntent {
        owner: owner("first"),
        name: "first".to_owned(),
        ..copy.clone()
    });
    bench.run().await;
    assert_eq!(bench.progress(&first).outcome, Outcome::Settled);

    let node = bench.client().node(&identity.node);
    let qemu = node.qemu(identity.vmid);
    let removed = qemu.delete(DeleteGuest::default()).await.unwrap();
    bench.client().wait(&removed).await.unwrap();
    let theirs = pve::GuestConfig::new().with("name", "theirs");
    let theirs = pve::CreateQemu::new(identity.vmid, theirs);
    let made = node.create_qemu(&theirs).await.unwrap();
    bench.client().wait(&made).await.unwrap();
    bench.matters.remove(&web);
    bench.run_for(std::time::Duration::from_mins(1)).await;
    let second = bench.want(copy);
    bench.run_for(std::time::Duration::from_mins(5)).await;
    let outcome = bench.call_now(&second).await.outcome;
    let waits =
        matches!(&outcome, Outcome::Waiting { message, .. } if message.contains("not the one"));
    assert!(waits, "{outcome:?}");
    assert_eq!(bench.inventory().await.of(&second).len(), 0);
}

/// A template with its disk on shared storage and something of one node alone in its CD drive.
pub(crate) async fn with_disc(bench: &mut Bench, disc: &str) {
    let client = bench.client();
    let pve1 = client.node(&NodeName::new("pve1").unwrap());
    let local = pve1.storage(&StorageId::new("local").unwrap());
    let iso = pve::api::storage::upload::Upload::iso("tools.iso", 4);
    let task = local.upload_bytes(&iso, "data".into()).await.unwrap();
    client.wait(&task).await.unwrap();
    let vmid = pve::Vmid::new(9100).unwrap();
    let mut clone = pve::CloneGuest::new(vmid);
    clone.name = Some("with-disc".to_owned());
    clone.full = Some(true);
    clone.storage = Some(StorageId::new("ceph").unwrap());
    let original = pve1.qemu(pve::Vmid::new(9000).unwrap());
    let task = original.clone_to(&clone).await.unwrap();
    client.wait(&task).await.unwrap();
    let copy = pve1.qemu(vmid);
    let change = pve::ConfigChange::set(pve::GuestConfig::new().with("ide2", disc));
    copy.configure(&change).await.unwrap();
    if let Some(task) = copy.make_template().await.unwrap() {
        client.wait(&task).await.unwrap();
    }
    bench.run_for(std::time::Duration::from_secs(15)).await;
}

/// PVE copies nothing onto another node that has a disc of one node alone in a drive.
#[tokio::test(start_paused = true)]
async fn a_template_with_a_disc_of_one_node_alone_is_copied_to_any_node() {
    for disc in ["local:iso/tools.iso,media=cdrom", "local-lvm:cloudinit"] {
        for mode in [CloneMode::Auto, CloneMode::Linked, CloneMode::Full] {
            let mut bench = Bench::new();
            bench.ready().await;
            with_disc(&mut bench, disc).await;
            let mut intent = machine("web", TEMPLATE);
            intent.source = Source::Template {
                from: TemplateRef::Name("with-disc".to_owned()),
                mode,
                snapshot: None,
            };
            intent.placement.nodes = vec![NodeName::new("pve2").unwrap()];
            let owner = bench.want(intent);
            bench.run().await;
            let progress = bench.progress(&owner);
            assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
            assert_eq!(progress.facts.node, Some(NodeName::new("pve2").unwrap()));
            let linked = bench.record(&owner).linked;
            assert_eq!(linked, Some(mode != CloneMode::Full), "{disc} {mode:?}");
        }
    }
}

/// What the template says to cloud-init would otherwise be in the copy's configuration, and nowhere the copy could read it.
#[tokio::test(start_paused = true)]
async fn a_full_copy_that_is_told_nothing_else_keeps_the_cloud_init_of_its_template() {
    for mode in [CloneMode::Full, CloneMode::Linked] {
        let mut bench = Bench::new();
        bench.ready().await;
        with_disc(&mut bench, "local-lvm:cloudinit").await;
        let node = NodeName::new("pve1").unwrap();
        let template = bench
            .client()
            .node(&node)
            .qemu(pve::Vmid::new(9100).unwrap());
        let said = pve::GuestConfig::new().with("ciuser", "admin");
        let said = said.with("ipconfig0", "ip=dhcp");
        let change = pve::ConfigChange::set(said);
        template.configure(&change).await.unwrap();
        let mut intent = machine("web", "with-disc");
        intent.source = Source::Template {
            from: TemplateRef::Name("with-disc".to_owned()),
            mode,
            snapshot: None,
        };
        intent.init = None;
        intent.placement.nodes = vec![node];
        bench.cluster().control().reset_counts();
        let owner = bench.want(intent);
        bench.run().await;
        let outcome = &bench.progress(&owner).outcome;
        assert_eq!(outcome, &Outcome::Settled, "{}", bench.stories());
        let counts = bench.cluster().control().counts();
        let calls = counts.get("POST /nodes/{node}/qemu").copied();
        let in_one = (mode == CloneMode::Full).then_some(1);
        assert_eq!(calls, in_one, "{}", bench.counts());
        let vmid = bench.progress(&owner).facts.vmid.unwrap();
        let config = config_of(&bench, &owner).await;
        let drive = config.get("ide2").unwrap_or_default();
        let own = format!("local-lvm:vm-{vmid}-cloudinit");
        assert!(drive.starts_with(&own), "{mode:?}: {drive}");
        assert_eq!(config.get("ciuser"), Some("admin"));
    }
}

/// Declares four of a kind at once.
fn four_of(bench: &mut Bench, intent: &fleet::GuestIntent) -> Vec<fleet::Owner> {
    let copy = |number| {
        let mut copy = intent.clone();
        copy.owner = owner(&format!("copy-{number}"));
        copy.name = format!("copy-{number}");
        bench.want(copy)
    };
    (1..=4).map(copy).collect()
}

/// PVE lets one at a time copy a container, or a machine that runs; who comes meanwhile is refused.
#[tokio::test(start_paused = true)]
async fn copies_of_one_source_that_is_held_while_it_is_copied_are_made_one_after_the_other() {
    for is_container in [true, false] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = if is_container {
            crate::create::container(&bench).await
        } else {
            machine("box", TEMPLATE)
        };
        if is_container {
            intent.power = Power::Off;
        }
        let source = bench.want(intent.clone());
        bench.run().await;
        bench.run_for(std::time::Duration::from_secs(30)).await;
        let vmid = bench.record(&source).identity.as_ref().unwrap().vmid;
        intent.source = Source::Template {
            from: TemplateRef::Vmid(vmid),
            mode: CloneMode::Full,
            snapshot: None,
        };
        bench.cluster().control().reset_counts();
        let copies = four_of(&mut bench, &intent);
        bench.run().await;
        for copy in &copies {
            let outcome = &bench.progress(copy).outcome;
            assert_eq!(*outcome, Outcome::Settled, "{}", bench.stories());
        }
        let counts = bench.cluster().control().counts();
        let sent = counts.iter().filter(|(route, _)| route.ends_with("/clone"));
        assert_eq!(sent.map(|(_, count)| count).sum::<u64>(), 4, "{counts:?}");
    }
}

const SMALL: &str = "
clusters:
- name: pve
  nodes: [{ name: pve1 }]
  storages:
  - { id: local, type: dir, content: [iso, vztmpl, import, snippets, backup], capacity-gib: 100 }
  - { id: small, type: dir, content: [images], capacity-gib: 14 }
  images:
    ubuntu-24.04: { id: ubuntu, name: Ubuntu, version: '24.04' }
  guests:
  - vmid: 9000
    node: pve1
    storage: small
    disk-gib: 4
    image: ubuntu-24.04
    template: true
    options: { name: small, cores: '2', memory: '2048', net0: 'virtio,bridge=vmbr0' }
";

#[tokio::test(start_paused = true)]
async fn room_for_a_thick_copy_is_looked_for_where_its_source_is() {
    let world = pve_sim::WorldFile::parse(SMALL).unwrap();
    let sim = pve_sim::Simulator::builder().seed(1).world(world).build();
    let mut bench = Bench::with(sim);
    bench.ready().await;
    let mut intent = machine("web", "small");
    intent.init = None;
    intent.disks[0].storage = None;
    intent.disks[0].size = None;
    intent.disks[0].thin = Some(false);
    let copies = four_of(&mut bench, &intent);
    let mut waits = 0;
    for copy in &copies {
        let outcome = bench.call_now(copy).await.outcome;
        waits += usize::from(
            matches!(outcome, Outcome::Waiting { what, .. } if what == fleet::Waiting::Capacity),
        );
    }
    assert!((1..=2).contains(&waits), "{waits}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_stays_as_it_was_made_when_its_source_is_of_another_kind_by_now() {
    let template = machine("web", TEMPLATE).source;
    let image = Source::Volume {
        volume: "local:import/ubuntu-24.04-server-cloudimg-amd64.qcow2".to_owned(),
    };
    let installer = Source::Iso {
        volume: "local:iso/win11.iso".to_owned(),
    };
    for (made_of, now) in [
        (template.clone(), installer.clone()),
        (image.clone(), template),
        (image, installer),
    ] {
        let mut bench = Bench::new();
        bench.ready().await;
        let vmid = pve::Vmid::new(9000).unwrap();
        let original = bench.client().node(&NodeName::new("pve1").unwrap());
        let old = pve::GuestConfig::new()
            .with("scsihw", "lsi")
            .with("ostype", "win10");
        let change = pve::ConfigChange::set(old);
        original.qemu(vmid).configure(&change).await.unwrap();
        let mut intent = machine("web", TEMPLATE);
        intent.source = made_of;
        intent.policy.update = Update::RestartIfNeeded;
        let owner = bench.want(intent.clone());
        bench.run().await;
        assert_eq!(
            bench.progress(&owner).outcome,
            Outcome::Settled,
            "{}",
            bench.stories()
        );
        let before = config_of(&bench, &owner).await;
        intent.source = now;
        bench.want(intent);
        bench.run().await;
        let progress = bench.progress(&owner);
        assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
        assert_eq!(progress.facts.pending, Vec::<String>::new());
        assert_eq!(config_of(&bench, &owner).await, before);
        assert_eq!(bench.inventory().await.of(&owner).len(), 1);
    }
}
