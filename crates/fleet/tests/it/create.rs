use std::time::Duration;

use fleet::{
    Outcome, PowerFact, Size,
    intent::{
        CloneMode, Container, Disk, DiskRole, MountPoint, Nic, Placement, Source, TemplateRef,
        VmidRange,
    },
    mark,
};
use pve::{CreateQemu, GuestConfig, NodeName, Vmid};

use crate::harness::{Bench, cluster_name, machine, owner};

const TEMPLATE: &str = "ubuntu-24-04";

#[tokio::test(start_paused = true)]
async fn a_machine_from_a_template_comes_up_as_declared_with_its_addresses() {
    let mut bench = Bench::new();
    bench.ready().await;
    let owner = bench.want(machine("web", TEMPLATE));
    bench.run().await;
    let progress = bench.progress(&owner);
    assert_eq!(progress.outcome, Outcome::Settled, "{}", bench.stories());
    assert_eq!(progress.facts.power, PowerFact::Running);
    assert!(!progress.facts.addresses().is_empty());
    let identity = bench.record(&owner).identity.clone().unwrap();
    let config = bench
        .client()
        .node(&identity.node)
        .qemu(identity.vmid)
        .config(pve::api::guest::ConfigView::Current)
        .await
        .unwrap();
    assert_eq!(config.get("cores"), Some("2"));
    assert_eq!(config.get("memory"), Some("2048"));
    assert_eq!(mark::owner_of(config.description().unwrap()), Some(owner));
    assert!(
        config
            .get("smbios1")
            .unwrap()
            .contains(&identity.uuid.to_string())
    );
    assert!(
        config.get("ide2").unwrap().starts_with("none"),
        "the first-boot image is out"
    );
    assert!(config.get("scsi0").unwrap().contains("size=40G"));
}

#[tokio::test(start_paused = true)]
async fn a_full_copy_on_the_templates_node_is_one_call() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", "ubuntu-24-04-local");
    let from = TemplateRef::Name("ubuntu-24-04-local".to_owned());
    intent.source = Source::Template {
        from,
        mode: CloneMode::Full,
        snapshot: None,
    };
    let owner = bench.want(intent);
    bench.run().await;
    assert_eq!(
        bench.progress(&owner).outcome,
        Outcome::Settled,
        "{}",
        bench.stories()
    );
    println!("full copy alone: {}\n{}", bench.requests(), bench.counts());
    let counts = bench.cluster().control().counts();
    assert_eq!(counts.get("POST /nodes/{node}/qemu"), Some(&1));
    assert_eq!(counts.get("POST /nodes/{node}/qemu/{vmid}/clone"), None);
    assert!(bench.requests() <= 16, "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn a_vmid_lost_to_somebody_else_is_given_up_and_theirs_is_not_touched() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.vmids = VmidRange::new(700, 710).unwrap();
    let owner = bench.want(intent);
    while bench.record(&owner).identity.is_none() {
        bench.call(&owner).await;
    }
    let taken = bench.record(&owner).identity.clone().unwrap().vmid;
    let foreign = GuestConfig::new()
        .with("name", "theirs")
        .with("memory", 512);
    let node = bench.client().node(&NodeName::new("pve3").unwrap());
    let task = node
        .create_qemu(&CreateQemu::new(taken, foreign))
        .await
        .unwrap();
    bench.client().wait(&task).await.unwrap();
    let before = bench.inventory().await.guests[&taken.get()].clone();
    bench.run().await;
    assert_eq!(
        bench.progress(&owner).outcome,
        Outcome::Settled,
        "{}",
        bench.stories()
    );
    let after = bench.inventory().await;
    assert_eq!(after.guests[&taken.get()], before);
    assert_eq!(after.of(&owner).len(), 1);
    assert_ne!(bench.record(&owner).identity.as_ref().unwrap().vmid, taken);
}

/// A token may see some guests only.
#[tokio::test(start_paused = true)]
async fn numbers_of_guests_that_are_hidden_are_not_tried_one_by_one() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.vmids = VmidRange::new(700, 720).unwrap();
    let owner = bench.want(intent);
    while bench.record(&owner).identity.is_none() {
        bench.call(&owner).await;
    }
    // They come when nobody looks, so no list has shown them.
    let node = bench.client().node(&NodeName::new("pve3").unwrap());
    for vmid in 700..710 {
        let create = CreateQemu::new(pve::Vmid::new(vmid).unwrap(), GuestConfig::new());
        let task = node.create_qemu(&create).await.unwrap();
        bench.client().wait(&task).await.unwrap();
    }
    bench.cluster().control().reset_counts();
    bench.run().await;
    assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
    let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    assert_eq!(vmid.get(), 710);
    let counts = bench.cluster().control().counts();
    let uploads = counts["POST /nodes/{node}/storage/{storage}/upload"];
    assert!(uploads <= 2, "{}", bench.counts());
}

#[tokio::test(start_paused = true)]
async fn a_choice_that_could_not_be_stored_is_made_again_and_makes_no_second_machine() {
    let mut bench = Bench::new();
    bench.ready().await;
    let intent = machine("web", TEMPLATE);
    let owner = intent.owner.clone();
    let first = bench
        .fleet
        .guest(&intent, &fleet::GuestRecord::default())
        .await;
    let second = bench
        .fleet
        .guest(&intent, &fleet::GuestRecord::default())
        .await;
    assert_eq!(first.outcome, Outcome::Persist);
    assert_eq!(first.record, second.record);
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.inventory().await.of(&owner).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_lost_for_good_is_found_again_by_the_mark() {
    let mut bench = Bench::new();
    bench.ready().await;
    let intent = machine("web", TEMPLATE);
    let owner = bench.want(intent.clone());
    bench.run().await;
    bench.run_for(Duration::from_secs(30)).await;
    let vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    bench.restart();
    bench.matters.clear();
    bench.want(intent);
    bench.run().await;
    assert_eq!(bench.record(&owner).identity.as_ref().unwrap().vmid, vmid);
    assert_eq!(bench.inventory().await.of(&owner).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_node_that_fits_is_waiting_with_the_reason_of_each_node() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = machine("web", TEMPLATE);
    intent.hardware.memory.size = Some(Size::gib(4000));
    intent.placement = Placement {
        avoid: vec![NodeName::new("pve2").unwrap()],
        ..Placement::default()
    };
    let owner = bench.want(intent);
    bench.call(&owner).await;
    let Outcome::Waiting { message, .. } = &bench.progress(&owner).outcome else {
        panic!("{:?}", bench.progress(&owner).outcome)
    };
    assert!(message.contains("pve2: is to be avoided"), "{message}");
    assert!(
        message.contains("pve1: ") && message.contains("4000 GiB needed"),
        "{message}"
    );
}

async fn first_card(bench: &Bench, owner: &fleet::Owner) -> String {
    let identity = bench.record(owner).identity.clone().unwrap();
    let guest = bench.client().node(&identity.node).qemu(identity.vmid);
    let view = pve::api::guest::ConfigView::Next;
    let config = guest.config(view).await.unwrap();
    config.get("net0").unwrap().to_owned()
}

/// As PVE's own pages make them.
#[tokio::test(start_paused = true)]
async fn a_template_whose_card_is_filtered_makes_copies_whose_cards_are() {
    for (template, full) in [(TEMPLATE, false), ("ubuntu-24-04-local", true)] {
        let mut bench = Bench::new();
        bench.ready().await;
        let mut intent = machine("web", template);
        if full {
            intent.source = Source::Template {
                from: TemplateRef::Name(template.to_owned()),
                mode: CloneMode::Full,
                snapshot: None,
            };
        }
        let all = bench.client().cluster().resources(None).await.unwrap();
        let named = |row: &pve::api::cluster::Resource| row.name.as_deref() == Some(template);
        let row = all.into_iter().find(named).unwrap();
        let (node, vmid) = (row.node.unwrap(), row.vmid.unwrap());
        let card = GuestConfig::new().with("net0", "virtio,bridge=vmbr0,firewall=1");
        let source = bench.client().node(&node).qemu(vmid);
        source
            .configure(&pve::ConfigChange::set(card))
            .await
            .unwrap();
        let owner = bench.want(intent);
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        let card = first_card(&bench, &owner).await;
        assert!(card.contains("firewall=1"), "{card}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_firewall_comes_to_the_cards_and_leaves_them_with_its_declaration() {
    let mut bench = Bench::new();
    bench.ready().await;
    let plain = machine("web", TEMPLATE);
    let mut walled = plain.clone();
    walled.options.firewall = Some(fleet::intent::FirewallIntent {
        enable: Some(true),
        ..fleet::intent::FirewallIntent::default()
    });
    for (intent, on) in [(&walled, true), (&plain, false), (&walled, true)] {
        let owner = bench.want(intent.clone());
        bench.run().await;
        assert_eq!(bench.progress(&owner).outcome, Outcome::Settled);
        assert_eq!(bench.progress(&owner).facts.pending, Vec::<String>::new());
        let card = first_card(&bench, &owner).await;
        assert_eq!(card.contains("firewall=1"), on, "{card}");
    }
}

/// A container on pve1.
pub(crate) async fn container(bench: &Bench) -> fleet::GuestIntent {
    let templates = bench
        .client()
        .node(&NodeName::new("pve1").unwrap())
        .storage(&"local".parse().unwrap())
        .content(Some("vztmpl"), None)
        .await
        .unwrap();
    let volume = templates
        .first()
        .expect("a container template")
        .volid
        .to_string();
    let source = Source::ContainerTemplate { volume };
    let mut intent = fleet::GuestIntent::new(owner("box"), cluster_name(), "box", source);
    intent.container = Some(Container {
        unprivileged: true,
        ..Container::default()
    });
    intent.hardware.cpu.cores = Some(1);
    intent.hardware.memory.size = Some(Size::mib(512));
    intent.placement.nodes = vec![NodeName::new("pve1").unwrap()];
    intent.disks = vec![Disk {
        name: "root".to_owned(),
        role: DiskRole::Root,
        size: Some(Size::gib(4)),
        storage: Some("local-lvm".parse().unwrap()),
        ..Disk::default()
    }];
    intent.nics = vec![Nic {
        name: "lan".to_owned(),
        bridge: "vmbr0".to_owned(),
        ..Nic::default()
    }];
    intent
}

/// A file system keeps its volume and its place whatever is declared before it in the list.
#[tokio::test(start_paused = true)]
async fn a_mount_point_taken_out_leaves_the_others_where_they_are() {
    let mut bench = Bench::new();
    bench.ready().await;
    let mut intent = container(&bench).await;
    let mount = |name: &str| MountPoint {
        stays: false,
        name: name.to_owned(),
        path: format!("/srv/{name}"),
        storage: Some("local-lvm".parse().unwrap()),
        size: Size::gib(1),
        backup: false,
        read_only: false,
    };
    let declare = |intent: &mut fleet::GuestIntent, names: &[&str]| {
        let all = names.iter().map(|name| mount(name)).collect();
        intent.container.as_mut().unwrap().mounts = all;
    };
    declare(&mut intent, &["cache", "data"]);
    intent.power = fleet::intent::Power::Off;
    let owner = bench.want(intent.clone());
    bench.run().await;
    let identity = bench.record(&owner).identity.clone().unwrap();
    let lxc = bench.client().node(&identity.node).lxc(identity.vmid);
    let current = pve::api::guest::ConfigView::Current;
    let before = lxc.config(current).await.unwrap();
    assert!(before.get("mp0").unwrap().contains("mp=/srv/cache"));
    let data = before.get("mp1").unwrap().to_owned();
    assert!(data.contains("mp=/srv/data"), "{data}");

    declare(&mut intent, &["data", "logs"]);
    bench.want(intent);
    bench.run().await;
    let after = lxc.config(current).await.unwrap();
    assert_eq!(after.get("mp1"), Some(data.as_str()));
    assert_eq!(after.get("mp0"), None, "{after:?}");
    assert!(after.get("mp2").unwrap().contains("mp=/srv/logs"));
    // What was in it is not thrown away.
    assert!(after.get("unused0").is_some(), "{after:?}");
    bench.delete(&owner);
    bench.run().await;
    let left = bench.inventory().await.volumes;
    let own = format!("vm-{}-", identity.vmid);
    assert!(!left.iter().any(|volume| volume.contains(&own)), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_container_goes_through_the_same_door() {
    let mut bench = Bench::new();
    bench.ready().await;
    let intent = container(&bench).await;
    let owner = bench.want(intent);
    bench.run().await;
    assert_eq!(
        bench.progress(&owner).outcome,
        Outcome::Settled,
        "{}",
        bench.stories()
    );
    assert!(!bench.progress(&owner).facts.addresses().is_empty());
    let vmid: Vmid = bench.record(&owner).identity.as_ref().unwrap().vmid;
    bench.delete(&owner);
    bench.run().await;
    assert!(bench.client().cluster().is_free(vmid).await.unwrap());
}
