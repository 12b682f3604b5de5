use super::*;
use crate::{
    ClusterName, NodeName, Owner, Size, Vmid,
    intent::{
        Agent, Bios, Bus, Container, Disk, DiskRole, EfiDisk, FirewallIntent, Hotplug, Hugepages,
        Init, Mac, Nic, NicModel, NumaNode, PciDevice, Startup, Tpm, TpmVersion,
    },
    record::NicIdentity,
};

fn intent(source: Source) -> GuestIntent {
    GuestIntent::new(
        Owner::new("me").unwrap(),
        ClusterName::new("c").unwrap(),
        "web",
        source,
    )
}

fn identity() -> Identity {
    Identity {
        cluster: ClusterName::new("c").unwrap(),
        node: NodeName::new("pve1").unwrap(),
        vmid: Vmid::new(100).unwrap(),
        uuid: uuid::Uuid::nil(),
        nics: BTreeMap::from([(
            "lan".to_owned(),
            NicIdentity {
                index: 0,
                mac: Mac::proxmox([0, 0, 1]),
            },
        )]),
        disks: BTreeMap::from([
            ("root".to_owned(), "scsi0".parse().unwrap()),
            ("data".to_owned(), "scsi1".parse().unwrap()),
        ]),
        mounts: BTreeMap::new(),
        brought: BTreeSet::new(),
        origin: None,
        adopted: false,
    }
}

fn context() -> Context<'static> {
    Context {
        seed: Some("local:iso/x.iso"),
        ejected: None,
        told: true,
        default_storage: Some("ceph"),
        cloudinit_storage: Some("ceph"),
        from_scratch: true,
        configured: false,
        major: 9,
    }
}

fn rendered(intent: &GuestIntent) -> BTreeMap<String, String> {
    let want = virtual_machine(intent, &identity(), context()).unwrap();
    crate::diff::diff(&want, &intent.owner, &pve::GuestConfig::new()).set
}

#[test]
fn a_whole_machine_is_rendered_for_one_creation_call() {
    let mut intent = intent(Source::Empty);
    intent.hardware.cpu.cores = Some(4);
    intent.hardware.cpu.model = Some("host".to_owned());
    intent.hardware.memory.size = Some(Size::gib(8));
    intent.hardware.machine = Some("q35".to_owned());
    intent.hardware.bios = Some(Bios::Ovmf);
    intent.hardware.efi = Some(EfiDisk {
        storage: None,
        secure_boot: Some(true),
    });
    intent.hardware.tpm = Some(Tpm {
        storage: None,
        version: TpmVersion::V2_0,
    });
    intent.hardware.agent = Some(Agent {
        enabled: true,
        fstrim: Some(true),
    });
    intent.options.tags = Some(vec!["Web".to_owned(), "a".to_owned()]);
    intent.options.startup = Some(Startup {
        order: Some(2),
        up: Some(30),
        down: None,
    });
    intent.disks = vec![
        Disk {
            name: "root".to_owned(),
            role: DiskRole::Root,
            size: Some(Size::gib(20)),
            ssd: Some(true),
            ..Disk::default()
        },
        Disk {
            name: "data".to_owned(),
            size: Some(Size::gib(100)),
            storage: Some("fast".parse().unwrap()),
            thin: Some(false),
            ..Disk::default()
        },
    ];
    intent.nics = vec![Nic {
        name: "lan".to_owned(),
        bridge: "vmbr0".to_owned(),
        vlan: Some(100),
        ..Nic::default()
    }];
    intent.init = Some(Init::default());
    insta::assert_yaml_snapshot!(rendered(&intent), @r#"
    agent: "1,fstrim_cloned_disks=1"
    bios: ovmf
    boot: order=scsi0
    cores: "4"
    cpu: host
    description: "<!-- oxmox owner=me -->"
    efidisk0: "ceph:1,efitype=4m,pre-enrolled-keys=1"
    ide2: "local:iso/x.iso,media=cdrom"
    machine: q35
    memory: "8192"
    name: web
    net0: "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=100"
    ostype: l26
    scsi0: "ceph:20,ssd=1"
    scsi1: "fast:100,format=raw"
    scsihw: virtio-scsi-single
    smbios1: "uuid=00000000-0000-0000-0000-000000000000,serial=ZHM9bm9jbG91ZDtpPTAwMDAwMDAwLTAwMDAtMDAwMC0wMDAwLTAwMDAwMDAwMDAwMA==,base64=1"
    startup: "2,up=30"
    tags: a;web
    tpmstate0: "ceph:1,version=v2.0"
    "#);
}

fn lan() -> Nic {
    Nic {
        name: "lan".to_owned(),
        bridge: "vmbr0".to_owned(),
        ..Nic::default()
    }
}

fn walled(nics: Vec<Nic>) -> GuestIntent {
    let mut intent = intent(Source::Empty);
    intent.options.firewall = Some(FirewallIntent {
        enable: Some(true),
        ..FirewallIntent::default()
    });
    intent.nics = nics;
    intent
}

#[test]
fn a_firewall_that_is_on_filters_every_interface_that_does_not_say_otherwise() {
    let card = |intent: &GuestIntent| {
        let card = rendered(intent)["net0"].clone();
        Prop::parse("net0", &card)
            .get("firewall")
            .map(str::to_owned)
    };
    let on = walled(vec![lan()]);
    assert_eq!(card(&on).as_deref(), Some("1"));
    let mut off = on.clone();
    off.nics[0].firewall = Some(false);
    assert_eq!(card(&off).as_deref(), Some("0"));
    let mut none = on.clone();
    none.options.firewall = None;
    assert_eq!(card(&none), None);

    // It is taken back with the firewall.
    let want = virtual_machine(&on, &identity(), context()).unwrap();
    let mut later = virtual_machine(&none, &identity(), context()).unwrap();
    later.take_back(&want.options());
    let have = rendered(&on).into_iter().collect();
    let changes = crate::diff::diff(&later, &on.owner, &have);
    let without = "virtio=BC:24:11:00:00:01,bridge=vmbr0";
    assert_eq!(changes.set.get("net0").map(String::as_str), Some(without));
}

#[test]
fn a_firewall_says_which_interfaces_it_does_not_filter_because_nothing_is_declared_about_them() {
    let want = virtual_machine(&walled(Vec::new()), &identity(), context()).unwrap();
    let have = pve::GuestConfig::new()
        .with("net1", "virtio=BC:24:11:00:00:02,bridge=vmbr0,firewall=1")
        .with("net2", "virtio=BC:24:11:00:00:03,bridge=vmbr1");
    let changes = crate::diff::diff(&want, &Owner::new("me").unwrap(), &have);
    let beyond = changes.beyond.iter();
    let cards: Vec<_> = beyond.filter(|(it, _)| it.key.starts_with("net")).collect();
    let [(told, why)] = cards[..] else {
        panic!("{cards:?}")
    };
    assert_eq!(told.key, "net2");
    assert!(
        why.contains("declare the interface under networks"),
        "{why}"
    );
    assert!(!changes.set.contains_key("net2"));
}

#[test]
fn a_guest_taken_over_keeps_its_uuid_and_boot_order() {
    let intent = intent(Source::Empty);
    let identity = Identity {
        adopted: true,
        ..identity()
    };
    let want = virtual_machine(
        &intent,
        &identity,
        Context {
            major: 9,
            ..Context::default()
        },
    )
    .unwrap();
    assert!(!want.keys.contains_key("smbios1"));
    assert!(!want.keys.contains_key("boot"));
    assert!(!want.own_all_nics);
}

#[test]
fn what_can_never_work_is_refused_with_the_way_out() {
    let mut bad = intent(Source::Empty);
    bad.name = "web server".to_owned();
    assert!(validate(&bad, false).is_err());
    let mut pinned = intent(Source::Empty);
    pinned.hardware.cpu.affinity = Some("0-3".to_owned());
    let refused = validate(&pinned, false).unwrap_err().to_string();
    assert!(refused.contains("root@pam with a password"), "{refused}");
    assert!(validate(&pinned, true).is_ok());
    let mut plugged = intent(Source::Empty);
    plugged.hardware.cpu.cores = Some(2);
    plugged.hardware.cpu.vcpus = Some(4);
    assert!(validate(&plugged, false).is_err());
    let mut memory = intent(Source::Empty);
    memory.hardware.hotplug = Some(vec![Hotplug::Memory]);
    assert!(
        validate(&memory, false)
            .unwrap_err()
            .to_string()
            .contains("numa")
    );
}

fn threaded(bus: Option<Bus>) -> GuestIntent {
    let mut intent = intent(Source::Empty);
    intent.disks = vec![Disk {
        name: "data".to_owned(),
        size: Some(Size::gib(1)),
        bus,
        iothread: Some(true),
        ..Disk::default()
    }];
    intent
}

#[test]
fn a_disk_with_an_io_thread_gets_the_controller_that_has_them() {
    let intent = threaded(None);
    let controller = |identity: &Identity| {
        let copied = Context {
            from_scratch: false,
            ..context()
        };
        let want = virtual_machine(&intent, identity, copied).unwrap();
        want.keys.get("scsihw").cloned()
    };
    let single = Want::Instead {
        of: "virtio-scsi-pci",
        value: "virtio-scsi-single".to_owned(),
    };
    assert_eq!(controller(&identity()), Some(single));
    let found = Identity {
        adopted: true,
        ..identity()
    };
    assert_eq!(controller(&found), None);
    let mut elsewhere = identity();
    let slot = "virtio1".parse().unwrap();
    elsewhere.disks.insert("data".to_owned(), slot);
    assert_eq!(controller(&elsewhere), None);
}

#[test]
fn what_would_have_no_effect_is_refused_with_the_way_out() {
    let refusal = |intent: &GuestIntent| validate(intent, false).unwrap_err().to_string();
    let on_sata = refusal(&threaded(Some(Bus::Sata)));
    assert!(on_sata.contains("iothread") && on_sata.contains("on sata"));
    let mut behind = threaded(None);
    behind.hardware.scsi_controller = Some("virtio-scsi-pci".to_owned());
    assert!(refusal(&behind).contains("virtio-scsi-single"));
    behind.disks[0].bus = Some(Bus::Virtio);
    assert!(validate(&behind, false).is_ok());
    let mut queued = intent(Source::Empty);
    queued.nics = vec![Nic {
        name: "lan".to_owned(),
        bridge: "vmbr0".to_owned(),
        model: Some(NicModel::E1000),
        queues: Some(4),
        ..Nic::default()
    }];
    assert!(refusal(&queued).contains("networks[lan].queues"));
    let mut express = intent(Source::Empty);
    express.hardware.pci = vec![PciDevice {
        mapping: "gpu".to_owned(),
        mdev: None,
        pcie: true,
        primary_gpu: None,
        rombar: None,
    }];
    assert!(refusal(&express).contains("pciDevices[gpu].pcie"));
    let source = |machine: &str| pve::GuestConfig::new().with("machine", machine);
    assert!(suits_source(&express, &source("pc")).is_err());
    assert!(suits_source(&express, &source("q35")).is_ok());
    express.hardware.machine = Some("pc-q35-9.2+pve1".to_owned());
    assert!(validate(&express, false).is_ok());
    queued.nics[0].model = None;
    assert!(validate(&queued, false).is_ok());
}

#[test]
fn what_could_never_start_is_refused_or_completed() {
    let refusal = |intent: &GuestIntent| validate(intent, true).unwrap_err().to_string();
    let node = |cpus: &str, host: Option<&str>| NumaNode {
        cpus: cpus.to_owned(),
        host_nodes: host.map(str::to_owned),
        memory: Size::gib(2),
        policy: Some("bind".to_owned()),
    };
    let mut good = intent(Source::Empty);
    good.hardware.memory.size = Some(Size::gib(4));
    good.hardware.memory.hugepages = Some(Hugepages::Any);
    assert_eq!(rendered(&good)["numa"], "1");
    let nodes = vec![node("0-1,4", Some("0,1")), node("2-3", None)];
    good.hardware.cpu.numa_nodes = nodes;
    assert!(validate(&good, true).is_ok());
    let first = &rendered(&good)["numa0"];
    assert_eq!(first, "cpus=0-1;4,hostnodes=0;1,memory=2048,policy=bind");

    let mut off = good.clone();
    off.hardware.cpu.numa = Some(false);
    assert!(refusal(&off).contains("memory.hugePages: need cpu.numa"));
    off.hardware.memory.hugepages = None;
    assert!(refusal(&off).contains("cpu.numaNodes: need cpu.numa"));
    let mut more = good.clone();
    more.hardware.memory.size = Some(Size::gib(5));
    assert!(refusal(&more).contains("make them equal"));
    let mut loose = good.clone();
    loose.hardware.cpu.numa_nodes[0].policy = None;
    assert!(refusal(&loose).contains("numaNodes[0].hostNodes: needs a policy"));
    let mut small = intent(Source::Empty);
    small.hardware.cpu.numa = Some(true);
    small.hardware.hotplug = Some(vec![Hotplug::Memory]);
    small.hardware.memory.size = Some(Size::mib(512));
    assert!(refusal(&small).contains("1 GiB at least"));
}

#[test]
fn memory_that_can_be_plugged_in_is_made_of_whole_modules() {
    let mut intent = intent(Source::Empty);
    intent.hardware.cpu.numa = Some(true);
    intent.hardware.hotplug = Some(vec![Hotplug::Memory]);
    let mut check = |mib: u64| {
        intent.hardware.memory.size = Some(Size::mib(mib));
        validate(&intent, true).map_err(|refused| refused.to_string())
    };
    // 32 modules of 512 MiB, 32 of 1 GiB, 32 of 2 GiB beside the first gigabyte.
    for fits in [1024, 1536, 8192, 17408, 18432, 50176, 52224] {
        assert_eq!(check(fits), Ok(()), "{fits}");
    }
    for (mib, nearest) in [
        (9537, "9216 or 9728 MiB"),
        (17920, "17408 or 18432 MiB"),
        (51200, "50176 or 52224 MiB"),
    ] {
        let refused = check(mib).unwrap_err();
        assert!(refused.contains(nearest), "{refused}");
    }
    assert!(
        check(8_000_000)
            .unwrap_err()
            .contains("set it to 4178944 MiB")
    );
    // Pages of a gigabyte: each socket has one, and no module is smaller.
    intent.hardware.memory.hugepages = Some(Hugepages::OneGib);
    intent.hardware.cpu.sockets = Some(2);
    for (mib, good) in [(1024, false), (2048, true), (2560, false), (3072, true)] {
        intent.hardware.memory.size = Some(Size::mib(mib));
        assert_eq!(validate(&intent, true).is_ok(), good, "{mib}");
    }
}

#[test]
fn a_size_of_packets_that_pve_does_not_start_with_is_refused() {
    let refusal = |mtu: u16| {
        let mut intent = intent(Source::Empty);
        let mtu = Some(mtu);
        intent.nics = vec![Nic { mtu, ..lan() }];
        let refused = validate(&intent, false).err();
        refused.map(|refused| refused.to_string())
    };
    let refused = refusal(575).unwrap();
    assert!(refused.starts_with("networks[lan].mtu"), "{refused}");
    for mtu in [1, 576, 9000] {
        assert_eq!(refusal(mtu), None, "{mtu}");
    }
}

#[test]
fn features_of_containers_that_only_root_may_set_are_refused_to_others() {
    let declared = |unprivileged: bool, features: &[&str]| {
        let volume = "local:vztmpl/debian.tar.zst".to_owned();
        let mut intent = intent(Source::ContainerTemplate { volume });
        intent.container = Some(Container {
            unprivileged,
            features: features.iter().map(|it| (*it).to_owned()).collect(),
            ..Container::default()
        });
        intent
    };
    let good = [declared(true, &["nesting=1"]), declared(false, &[])];
    assert!(good.iter().all(|intent| validate(intent, false).is_ok()));
    let keys = declared(true, &["nesting=1", "keyctl=1"]);
    for intent in [keys, declared(false, &["nesting=1"])] {
        let refused = validate(&intent, false).unwrap_err().to_string();
        assert!(refused.contains("root@pam with a password"), "{refused}");
        assert!(validate(&intent, true).is_ok());
    }
}

#[test]
fn a_free_key_that_has_a_field_is_refused() {
    let mut intent = intent(Source::Empty);
    intent
        .hardware
        .extra
        .insert("name".to_owned(), "x".to_owned());
    assert!(virtual_machine(&intent, &identity(), context()).is_err());
}

#[test]
fn a_new_disk_without_a_size_is_refused() {
    let mut intent = intent(Source::Empty);
    intent.disks = vec![Disk {
        name: "root".to_owned(),
        role: DiskRole::Root,
        ..Disk::default()
    }];
    let problem = virtual_machine(&intent, &identity(), context()).unwrap_err();
    assert_eq!(problem.field, "disks[root].size");
}

#[test]
fn a_boot_order_names_disks_and_networks() {
    let mut good = intent(Source::Empty);
    let order = ["lan", "data", "scsi0"].map(str::to_owned);
    good.hardware.boot_order = Some(order.to_vec());
    let want = virtual_machine(&good, &identity(), context()).unwrap();
    let order = Want::Text("order=net0;scsi1;scsi0".to_owned());
    assert_eq!(want.keys["boot"], order);
    good.hardware.boot_order = Some(vec!["lan2".to_owned()]);
    let refused = virtual_machine(&good, &identity(), context()).unwrap_err();
    assert_eq!(refused.field, "bootOrder");
}

#[test]
fn moving_to_a_node_with_another_usual_storage_declares_nothing() {
    let mut guest = intent(Source::Empty);
    guest.disks = vec![Disk {
        name: "root".to_owned(),
        role: DiskRole::Root,
        size: Some(Size::gib(20)),
        ..Disk::default()
    }];
    guest.hardware.efi = Some(EfiDisk {
        storage: None,
        secure_boot: None,
    });
    let digests = [Some("ceph"), Some("tank"), None].map(|default_storage| {
        let context = Context {
            default_storage,
            ..context()
        };
        virtual_machine(&guest, &identity(), context)
            .unwrap()
            .digest()
    });
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[0], digests[2]);
}
