use super::*;
use crate::desired::{DiskWant, Make, StateWant};
use crate::intent::Bus;

fn owner() -> Owner {
    Owner::new("me").unwrap()
}

fn desired(keys: &[(&str, Want)]) -> Desired {
    Desired {
        keys: keys
            .iter()
            .map(|(k, w)| ((*k).to_owned(), w.clone()))
            .collect(),
        ..Desired::default()
    }
}

fn config(pairs: &[(&str, &str)]) -> GuestConfig {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn text(value: &str) -> Want {
    Want::Text(value.to_owned())
}

#[test]
fn spelling_defaults_and_order_are_no_difference() {
    let want = desired(&[
        ("cores", text("2")),
        ("cpulimit", text("0.5")),
        ("tags", Want::Words(["a".to_owned(), "b".to_owned()].into())),
        ("agent", Want::Items(Prop::parse("agent", "1"))),
        ("description", Want::Description(Some("hello".to_owned()))),
    ]);
    let have = config(&[
        ("cores", "2"),
        ("cpulimit", "0.50"),
        ("tags", "b;a"),
        ("agent", "enabled=1,fstrim_cloned_disks=1"),
        ("description", "hello\n\n<!-- oxmox owner=me -->\n"),
        ("ostype", "l26"),
    ]);
    assert!(diff(&want, &owner(), &have).is_empty());
}

#[test]
fn tags_that_others_gave_stay_where_they_may() {
    let ours: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
    let kept = desired(&[("tags", Want::Among(ours.clone()))]);
    let have = config(&[("tags", "template;B")]);
    assert_eq!(diff(&kept, &owner(), &have).set["tags"], "a;b;template");
    let have = config(&[("tags", "a;b;template")]);
    assert!(diff(&kept, &owner(), &have).is_empty());
    let alone = desired(&[("tags", Want::Words(ours))]);
    assert_eq!(diff(&alone, &owner(), &have).set["tags"], "a;b");
}

#[test]
fn only_owned_items_of_a_disk_are_changed_and_its_volume_is_kept() {
    let options = Prop::parse("scsi0", "discard=on,ssd=1");
    let want = desired(&[(
        "scsi0",
        Want::Disk(DiskWant {
            options,
            ..DiskWant::default()
        }),
    )]);
    let have = config(&[(
        "scsi0",
        "local:100/vm-100-disk-0.raw,cache=writeback,size=8G",
    )]);
    let changes = diff(&want, &owner(), &have);
    assert_eq!(
        changes.set["scsi0"],
        "local:100/vm-100-disk-0.raw,discard=on,ssd=1,cache=writeback,size=8G"
    );
    assert!(!changes.allocates);
}

#[test]
fn disks_grow_and_never_shrink() {
    let disk = |gib| {
        let want = DiskWant {
            size: Some(Size::gib(gib)),
            ..DiskWant::default()
        };
        desired(&[("scsi0", Want::Disk(want))])
    };
    let have = config(&[("scsi0", "l:vm-1-disk-0,size=10G")]);
    assert_eq!(
        diff(&disk(20), &owner(), &have).grow["scsi0"],
        Size::gib(20)
    );
    assert!(diff(&disk(10), &owner(), &have).is_empty());
    let smaller = diff(&disk(5), &owner(), &have);
    assert!(smaller.is_empty());
    assert_eq!(
        smaller.shrink,
        vec![("scsi0".to_owned(), Size::gib(10), Size::gib(5))]
    );
}

#[test]
fn a_disk_elsewhere_is_moved_and_one_that_may_be_anywhere_is_not() {
    let disk = |storage: Option<&str>| {
        let want = DiskWant {
            storage: storage.map(|id| StorageId::new(id).unwrap()),
            ..DiskWant::default()
        };
        desired(&[("scsi0", Want::Disk(want))])
    };
    let have = config(&[("scsi0", "ceph:base-9-disk-0/vm-1-disk-0,size=10G")]);
    assert!(diff(&disk(None), &owner(), &have).is_empty());
    assert!(diff(&disk(Some("ceph")), &owner(), &have).is_empty());
    let moved = diff(&disk(Some("tank")), &owner(), &have);
    assert_eq!(moved.moves["scsi0"].as_str(), "tank");
    assert!(!moved.configures());
}

#[test]
fn a_missing_disk_is_made_and_an_imported_one_is_grown_afterwards() {
    let make = Make::New("ceph:0,import-from=local:import/a.qcow2".to_owned());
    let want = DiskWant {
        make,
        size: Some(Size::gib(20)),
        ..DiskWant::default()
    };
    let changes = diff(
        &desired(&[("scsi0", Want::Disk(want))]),
        &owner(),
        &GuestConfig::new(),
    );
    assert!(changes.allocates);
    assert_eq!(changes.grow["scsi0"], Size::gib(20));
}

#[test]
fn another_interface_model_replaces_the_whole_string() {
    let want = desired(&[(
        "net0",
        Want::Exactly(Prop::parse("net0", "virtio=02:00:00:00:00:01,bridge=vmbr0")),
    )]);
    let have = config(&[("net0", "e1000=02:00:00:00:00:01,bridge=vmbr0,tag=5")]);
    assert_eq!(
        diff(&want, &owner(), &have).set["net0"],
        "virtio=02:00:00:00:00:01,bridge=vmbr0"
    );
    let same = config(&[("net0", "virtio=02:00:00:00:00:01,bridge=vmbr0,firewall=1")]);
    assert!(diff(&want, &owner(), &same).is_empty());
}

#[test]
fn undeclared_interfaces_and_foreign_cloud_init_drives_of_a_copy_go() {
    let mut want = desired(&[(
        "net0",
        Want::Exactly(Prop::parse("net0", "virtio=X,bridge=b")),
    )]);
    want.own_all_nics = true;
    want.no_foreign_cloudinit = true;
    let have = config(&[
        ("net0", "virtio=X,bridge=b"),
        ("net1", "virtio=Y,bridge=b"),
        ("ide0", "local:100/vm-100-cloudinit.qcow2,media=cdrom"),
        ("scsi0", "local:100/vm-100-disk-0.raw"),
    ]);
    let changes = diff(&want, &owner(), &have);
    assert_eq!(
        changes.delete,
        BTreeSet::from(["ide0".to_owned(), "net1".to_owned()])
    );
}

#[test]
fn the_mark_of_another_owner_is_replaced_and_the_text_is_kept() {
    let want = desired(&[("description", Want::Description(None))]);
    let have = config(&[("description", "notes\n\n<!-- oxmox owner=you -->")]);
    let changes = diff(&want, &owner(), &have);
    assert_eq!(
        changes.set["description"],
        "notes\n\n<!-- oxmox owner=me -->"
    );
}

#[test]
fn a_disk_keeps_its_bus_and_format_and_says_so_where_others_are_declared() {
    let told = |bus, format: &str| {
        let want = DiskWant {
            bus: Some(bus),
            format: Some(format.to_owned()),
            ..DiskWant::default()
        };
        let have = config(&[("scsi0", "local:100/vm-100-disk-0.qcow2,size=10G")]);
        let changes = diff(&desired(&[("scsi0", Want::Disk(want))]), &owner(), &have);
        assert!(changes.is_empty());
        let told = changes.beyond.into_iter();
        told.map(|(drift, _)| (drift.declared.unwrap(), drift.found.unwrap()))
            .collect::<Vec<_>>()
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(told(Bus::Scsi, "qcow2"), []);
    assert_eq!(told(Bus::Virtio, "qcow2"), [pair("virtio", "scsi")]);
    assert_eq!(told(Bus::Scsi, "raw"), [pair("raw", "qcow2")]);
}

#[test]
fn secrets_are_not_shown_as_drift() {
    let want = desired(&[("cipassword", Want::Exists("geheim".to_owned()))]);
    let changes = diff(&want, &owner(), &GuestConfig::new());
    assert_eq!(changes.set["cipassword"], "geheim");
    assert!(!format!("{:?}", changes.drift).contains("geheim"));
}

#[test]
fn a_copy_is_an_instance_of_its_own_to_cloud_init() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let own = Want::Items(Prop::parse("smbios1", "uuid=mine"));
    let want = desired(&[("smbios1", own)]);
    let smbios = |serial: &str| {
        let text = format!("uuid=theirs,serial={},base64=1", STANDARD.encode(serial));
        let have = config(&[("smbios1", &text)]);
        let value = diff(&want, &owner(), &have).set["smbios1"].clone();
        let serial = Prop::parse("smbios1", &value)
            .get("serial")
            .unwrap()
            .to_owned();
        String::from_utf8(STANDARD.decode(serial).unwrap()).unwrap()
    };
    assert_eq!(smbios("ds=nocloud;i=theirs"), "ds=nocloud;i=mine");
    assert_eq!(smbios("AB-1234"), "AB-1234");
}

#[test]
fn other_smbios_texts_are_encoded_when_ours_are() {
    let want = desired(&[(
        "smbios1",
        Want::Items(Prop::parse("smbios1", "uuid=u,serial=eA==,base64=1")),
    )]);
    let have = config(&[("smbios1", "uuid=old,manufacturer=Acme")]);
    let value = diff(&want, &owner(), &have).set["smbios1"].clone();
    assert_eq!(value, "uuid=u,serial=eA==,base64=1,manufacturer=QWNtZQ==");
}

#[test]
fn a_cd_drive_that_pve_appends_to_the_boot_order_is_no_drift() {
    let have = config(&[("sata3", "none,media=cdrom"), ("sata4", "ceph:vm-1-disk-1")]);
    let alike = |wanted: &str, found: &str| boots_alike(wanted, found, &have);
    assert!(alike("order=scsi0", "order=scsi0;ide2"));
    assert!(alike("order=scsi0;net0", "order=scsi0;net0"));
    assert!(alike("order=scsi0", "order=scsi0;ide2;sata3"));
    assert!(!alike("order=scsi0", "order=scsi0;sata4"));
    assert!(!alike("order=scsi0", "order=ide2;scsi0"));
    assert!(!alike("order=scsi0;ide2", "order=scsi0"));
    assert!(!alike("order=scsi0", "order=scsi0;net0"));
    assert!(!alike("order=scsi0", "cdn"));
}

fn data(make: Make) -> Desired {
    let want = DiskWant {
        make,
        size: Some(Size::gib(20)),
        options: Prop::parse("scsi1", "ssd=1"),
        ..DiskWant::default()
    };
    desired(&[("scsi1", Want::Disk(want))])
}

#[test]
fn a_place_that_has_had_its_volume_never_gets_a_new_one() {
    let mut want = data(Make::New("ceph:20".to_owned()));
    want.kept = BTreeMap::from([("scsi1".to_owned(), Some("ceph:vm-1-disk-1".to_owned()))]);
    let have = config(&[
        ("unused0", "ceph:vm-1-disk-0"),
        ("unused1", "ceph:vm-1-disk-1"),
    ]);
    let changes = diff(&want, &owner(), &have);
    assert_eq!(changes.set["scsi1"], "ceph:vm-1-disk-1,ssd=1");
    assert!(!changes.allocates);
    for have in [&have, &GuestConfig::new()] {
        want.kept = BTreeMap::from([("scsi1".to_owned(), None)]);
        let changes = diff(&want, &owner(), have);
        assert!(changes.is_empty());
        assert_eq!(changes.lasting()[0].key, "scsi1");
    }
}

#[test]
fn what_has_no_storage_matters_only_if_it_must_be_made() {
    let want = data(Make::Nowhere(crate::desired::Invalid::new("disks", "no")));
    let have = config(&[("scsi1", "ceph:vm-1-disk-1,ssd=1,size=20G")]);
    assert_eq!(diff(&want, &owner(), &have), Changes::default());
    let changes = diff(&want, &owner(), &GuestConfig::new());
    assert_eq!(changes.nowhere, ["disks: no"]);
}

#[test]
fn an_extent_more_is_no_difference() {
    let want = data(Make::Brought);
    let have = config(&[("scsi1", "ceph:vm-1-disk-1,ssd=1,size=20484M")]);
    assert_eq!(diff(&want, &owner(), &have), Changes::default());
}

#[test]
fn a_boot_order_waits_for_what_it_names() {
    let want = desired(&[("boot", text("order=scsi0"))]);
    let have = config(&[("virtio0", "ceph:vm-1-disk-0,size=20G")]);
    let changes = diff(&want, &owner(), &have);
    assert!(changes.is_empty());
    assert_eq!(changes.lasting()[0].key, "boot");
}

#[test]
fn what_is_on_unless_said_otherwise_is_switched_off() {
    let want = DiskWant {
        options: Prop::parse("scsi1", "backup=0,replicate=1"),
        ..DiskWant::default()
    };
    let want = desired(&[("scsi1", Want::Disk(want))]);
    let have = config(&[("scsi1", "ceph:vm-1-disk-1,size=20G")]);
    let changes = diff(&want, &owner(), &have);
    assert_eq!(
        changes.set["scsi1"],
        "ceph:vm-1-disk-1,backup=0,replicate=1,size=20G"
    );
    let have = config(&[("scsi1", "ceph:vm-1-disk-1,backup=0,size=20G")]);
    assert!(diff(&want, &owner(), &have).is_empty());
}

#[test]
fn items_that_are_no_longer_declared_are_taken_back_and_others_stay() {
    let mut before = data(Make::Brought);
    before.items("cpu", Prop::parse("cpu", "host,flags=+aes"));
    let mut now = desired(&[]);
    let bare = DiskWant::default();
    now.keys.insert("scsi1".to_owned(), Want::Disk(bare));
    now.items("cpu", Prop::parse("cpu", "host"));
    now.take_back(&before.options());
    let have = config(&[
        ("scsi1", "ceph:vm-1-disk-1,ssd=1,cache=none,size=20G"),
        ("cpu", "host,flags=+aes"),
    ]);
    let changes = diff(&now, &owner(), &have);
    assert_eq!(changes.set["cpu"], "host");
    assert_eq!(changes.set["scsi1"], "ceph:vm-1-disk-1,cache=none,size=20G");
}

#[test]
fn the_last_item_that_is_no_longer_declared_takes_no_others_along() {
    let have = config(&[
        ("cpu", "host,flags=+aes"),
        ("startup", "order=1"),
        ("vga", "std"),
    ]);
    let mut before = desired(&[]);
    before.items("cpu", Prop::parse("cpu", "flags=+aes"));
    before.items("startup", Prop::parse("startup", "order=1"));
    let mut declared = before.options();
    for earlier in ["", "cpu"] {
        let mut now = desired(&[]);
        declared.extend((!earlier.is_empty()).then(|| earlier.to_owned()));
        now.take_back(&declared);
        let changes = diff(&now, &owner(), &have);
        assert_eq!(changes.set["cpu"], "host");
        assert_eq!(changes.delete, BTreeSet::from(["startup".to_owned()]));
    }
}

#[test]
fn firmware_that_was_made_otherwise_is_reported_and_left() {
    let want = StateWant {
        make: Make::New("ceph:1".to_owned()),
        storage: None,
        options: Prop::parse("efidisk0", "pre-enrolled-keys=1"),
    };
    let want = desired(&[("efidisk0", Want::State(want))]);
    let have = config(&[("efidisk0", "ceph:vm-1-disk-1,efitype=4m,size=4M")]);
    let changes = diff(&want, &owner(), &have);
    assert!(changes.is_empty());
    assert_eq!(changes.lasting()[0].key, "efidisk0");
    let have = config(&[("efidisk0", "ceph:vm-1-disk-1,pre-enrolled-keys=1")]);
    assert_eq!(diff(&want, &owner(), &have), Changes::default());
}

#[test]
fn what_is_no_longer_said_of_an_interface_is_taken_back_and_what_never_was_stays() {
    let said = Prop::parse("net0", "virtio=AA:00:00:00:00:01,bridge=vmbr0");
    let mut want = desired(&[("net0", Want::Exactly(said))]);
    let have = config(&[(
        "net0",
        "virtio=AA:00:00:00:00:01,bridge=vmbr0,firewall=1,link_down=1",
    )]);
    assert!(diff(&want, &owner(), &have).is_empty());
    want.take_back(&BTreeSet::from(["net0/link_down".to_owned()]));
    let changes = diff(&want, &owner(), &have);
    let now = Prop::parse("net0", &changes.set["net0"]);
    assert_eq!(now.get("link_down"), None);
    assert_eq!(now.get("firewall"), Some("1"));
}

#[test]
fn a_controller_takes_the_place_of_the_one_that_guests_take_for_the_same() {
    let instead = Want::Instead {
        of: "virtio-scsi-pci",
        value: "virtio-scsi-single".to_owned(),
    };
    let want = desired(&[("scsihw", instead)]);
    let with = |found: &str| diff(&want, &owner(), &GuestConfig::new().with("scsihw", found));
    assert!(with("virtio-scsi-single").drift.is_empty());
    let changes = with("virtio-scsi-pci");
    assert_eq!(changes.set["scsihw"], "virtio-scsi-single");
    let told = with("lsi");
    assert!(told.set.is_empty(), "{:?}", told.set);
    assert!(
        told.beyond[0].1.contains("may not boot"),
        "{:?}",
        told.beyond
    );
}

#[test]
fn a_chipset_is_met_by_every_version_of_it_and_a_version_by_itself_alone() {
    let set = |wanted: &str, found: Option<&str>| {
        let want = desired(&[("machine", Want::Items(Prop::parse("machine", wanted)))]);
        let have: Vec<(&str, &str)> = found.map(|found| ("machine", found)).into_iter().collect();
        let mut changes = diff(&want, &owner(), &config(&have));
        assert!(changes.delete.is_empty() && changes.set.len() == changes.drift.len());
        changes.set.remove("machine")
    };
    for found in ["q35", "pc-q35-9.2+pve1", "pc-q35-8.1,viommu=intel"] {
        assert_eq!(set("q35", Some(found)), None, "{found}");
    }
    for found in [
        None,
        Some("pc"),
        Some("pc-i440fx-9.0"),
        Some("pc-1.3"),
        Some("viommu=virtio"),
    ] {
        assert_eq!(set("pc", found), None, "{found:?}");
    }
    for (wanted, found) in [
        ("q35", None),
        ("q35", Some("pc")),
        ("q35", Some("pc-i440fx-9.0")),
        ("pc", Some("q35")),
        ("pc", Some("pc-q35-9.0")),
        ("pc-q35-9.0", Some("pc-q35-8.1")),
        ("pc-q35-9.0", Some("q35")),
    ] {
        assert_eq!(set(wanted, found).as_deref(), Some(wanted), "{found:?}");
    }
    let merged = set("q35,viommu=intel", Some("pc-q35-9.2+pve1,enable-s3=1"));
    let merged = merged.expect("an item is missing");
    assert_eq!(merged, "pc-q35-9.2+pve1,viommu=intel,enable-s3=1");
    let merged = set("pc,viommu=virtio", None);
    assert_eq!(merged.as_deref(), Some("viommu=virtio"));
}
