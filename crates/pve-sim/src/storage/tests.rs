use super::*;

const GIB: u64 = 1 << 30;

fn world() -> Storages {
    let mut all = Storages::default();
    let mut dir = Definition::new("dir2", Kind::Dir, &["images", "iso"], 100 * GIB);
    dir.options.insert("path".into(), "/var/lib/dir2".into());
    all.insert(Storage::new(dir));
    all.insert(Storage::new(Definition::new(
        "thin",
        Kind::LvmThin,
        &["images"],
        100 * GIB,
    )));
    all.insert(Storage::new(Definition::new(
        "vg",
        Kind::Lvm,
        &["images"],
        10 * GIB,
    )));
    all.insert(Storage::new(Definition::new(
        "tank",
        Kind::ZfsPool,
        &["images"],
        100 * GIB,
    )));
    all.insert(Storage::new(Definition::new(
        "ceph",
        Kind::Rbd,
        &["images"],
        100 * GIB,
    )));
    all
}

fn want(vmid: u32, format: Format, size: u64) -> Alloc<'static> {
    Alloc {
        vmid,
        format,
        name: None,
        size,
        now: 1,
    }
}

#[test]
fn disk_numbers_count_over_all_formats_of_a_guest() {
    let mut all = world();
    let first = all
        .alloc("dir2", "pve1", want(101, Format::Qcow2, GIB))
        .unwrap();
    let second = all
        .alloc("dir2", "pve1", want(101, Format::Raw, GIB))
        .unwrap();
    assert_eq!(first, "dir2:101/vm-101-disk-0.qcow2");
    assert_eq!(second, "dir2:101/vm-101-disk-1.raw");
    all.free("pve1", &first).unwrap();
    let third = all
        .alloc("dir2", "pve1", want(101, Format::Raw, GIB))
        .unwrap();
    assert_eq!(third, "dir2:101/vm-101-disk-0.raw");
}

#[test]
fn a_name_is_taken_once() {
    let mut all = world();
    let named = || Alloc {
        name: Some("vm-101-disk-7.raw"),
        ..want(101, Format::Raw, GIB)
    };
    all.alloc("dir2", "pve1", named()).unwrap();
    let refused = all.alloc("dir2", "pve1", named()).unwrap_err().to_string();
    assert_eq!(
        refused,
        "disk image '/var/lib/dir2/images/101/vm-101-disk-7.raw' already exists"
    );
    let block = Alloc {
        name: Some("bad"),
        ..want(101, Format::Raw, GIB)
    };
    let refused = all.alloc("thin", "pve1", block).unwrap_err().to_string();
    assert_eq!(refused, "illegal name 'bad' - should be 'vm-101-*'");
}

#[test]
fn local_stores_are_apart_and_shared_ones_are_one() {
    let mut all = world();
    let local = all
        .alloc("thin", "pve1", want(100, Format::Raw, GIB))
        .unwrap();
    let shared = all
        .alloc("ceph", "pve1", want(100, Format::Raw, GIB))
        .unwrap();
    assert!(all.volume("pve2", &local).is_err());
    assert!(all.volume("pve2", &shared).is_ok());
}

#[test]
fn linked_names_follow_the_plugin_and_keep_the_base_alive() {
    let mut all = world();
    for (storage, base, linked) in [
        (
            "dir2",
            "dir2:100/base-100-disk-0.qcow2",
            "dir2:100/base-100-disk-0.qcow2/104/vm-104-disk-0.qcow2",
        ),
        (
            "tank",
            "tank:base-100-disk-0",
            "tank:base-100-disk-0/vm-104-disk-0",
        ),
        (
            "ceph",
            "ceph:base-100-disk-0",
            "ceph:base-100-disk-0/vm-104-disk-0",
        ),
        ("thin", "thin:base-100-disk-0", "thin:vm-104-disk-0"),
    ] {
        let format = if storage == "dir2" {
            Format::Qcow2
        } else {
            Format::Raw
        };
        let volid = all.alloc(storage, "pve1", want(100, format, GIB)).unwrap();
        assert_eq!(all.make_base("pve1", &volid).unwrap(), base);
        assert_eq!(all.link("pve1", base, 104, 2).unwrap(), linked);
        let freed = all.free("pve1", base);
        if storage == "thin" {
            assert_eq!(freed, Ok(true));
        } else {
            assert_eq!(
                freed.unwrap_err().to_string(),
                format!("base volume '{base}' is still in use by linked cloned")
            );
            all.free("pve1", linked).unwrap();
            assert_eq!(all.free("pve1", base), Ok(true));
        }
    }
}

#[test]
fn thick_storages_run_out_where_thin_ones_promise() {
    let mut all = world();
    all.alloc("vg", "pve1", want(100, Format::Raw, 8 * GIB))
        .unwrap();
    let refused = all
        .alloc("vg", "pve1", want(100, Format::Raw, 4 * GIB))
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("insufficient free space (512 extents): 1024 required")
    );
    all.alloc("thin", "pve1", want(100, Format::Raw, 4000 * GIB))
        .unwrap();
    assert!(all.get("thin").unwrap().space("pve1").avail > 99 * GIB);
    assert_eq!(all.get("vg").unwrap().space("pve1").avail, 2 * GIB);
}

#[test]
fn zfs_rolls_back_only_to_its_newest_snapshot() {
    let mut all = world();
    let volid = all
        .alloc("tank", "pve1", want(100, Format::Raw, GIB))
        .unwrap();
    let volume = all.volume_mut("pve1", &volid).unwrap();
    volume.snapshot("s1");
    volume.size = 2 * GIB;
    volume.snapshot("s2");
    let refused = volume
        .rollback_possible(Kind::ZfsPool, &volid, "s1")
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "can't rollback, 's1' is not most recent snapshot on 'tank:vm-100-disk-0'"
    );
    assert_eq!(
        volume.rollback_possible(Kind::LvmThin, &volid, "s1"),
        Ok(())
    );
    volume.rollback("s1");
    assert_eq!(volume.size, GIB);
}
