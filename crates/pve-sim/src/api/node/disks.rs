//! `/nodes/{node}/disks` and `/nodes/{node}/scan`: the media of a host and what lies on them.
//!
//! Nobody describes media to a simulated host: it has one for its root file system and one for each
//! local storage that stands on a volume group, a pool or a directory of its own.

use serde_json::{Value, json};

use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::route::{Route, get};
use crate::schema::{choice, flag, format, text};
use crate::storage::{Kind, Storage};

pub(super) fn routes() -> Vec<Route> {
    let audit = || all("/", &["Sys.Audit"]);
    let scan = || all("/storage", &["Datastore.Allocate"]);
    vec![
        get("/nodes/{node}/disks", |_| {
            let names = [
                "directory",
                "initgpt",
                "list",
                "lvm",
                "lvmthin",
                "smart",
                "wipedisk",
                "zfs",
            ];
            Ok(index("name", &names))
        })
        .perm(Perm::User),
        get("/nodes/{node}/disks/list", list)
            .perm(Perm::Or(vec![
                audit(),
                all("/nodes/{node}", &["Sys.Audit"]),
            ]))
            .protected()
            .params([
                flag("include-partitions"),
                flag("skipsmart"),
                choice("type", &["unused", "journal_disks"]).optional(),
            ]),
        get("/nodes/{node}/disks/smart", smart)
            .perm(audit())
            .protected()
            .params([text("disk").pattern(is_device), flag("healthonly")]),
        get("/nodes/{node}/disks/directory", directories)
            .perm(audit())
            .protected(),
        get("/nodes/{node}/disks/lvm", groups)
            .perm(audit())
            .protected(),
        get("/nodes/{node}/disks/lvmthin", thin)
            .perm(audit())
            .protected(),
        get("/nodes/{node}/disks/zfs", pools)
            .perm(audit())
            .protected(),
        get("/nodes/{node}/disks/zfs/{name}", pool)
            .perm(audit())
            .protected()
            .params([text("name").format(format::STORAGE)]),
        get("/nodes/{node}/scan", |_| {
            Ok(index("method", &["lvm", "lvmthin", "zfs"]))
        })
        .perm(Perm::User),
        get("/nodes/{node}/scan/lvm", |call| {
            let found = media(call, &[Kind::Lvm, Kind::LvmThin])?;
            let rows = found.iter().map(|disk| json!({ "vg": disk.root }));
            Ok(rows.collect::<Value>().into())
        })
        .perm(scan())
        .protected(),
        get("/nodes/{node}/scan/lvmthin", |call| {
            let found = media(call, &[Kind::LvmThin])?;
            let group = call.params.text("vg");
            let of_group = found.iter().filter(|disk| disk.root == group);
            let rows = of_group.map(|disk| json!({ "lv": disk.thinpool }));
            Ok(rows.collect::<Value>().into())
        })
        .perm(scan())
        .protected()
        .params([text("vg").max_len(100).pattern(is_group)]),
        get("/nodes/{node}/scan/zfs", |call| {
            let found = media(call, &[Kind::ZfsPool])?;
            let rows = found.iter().map(|disk| json!({ "pool": disk.root }));
            Ok(rows.collect::<Value>().into())
        })
        .perm(scan())
        .protected(),
    ]
}

fn is_device(value: &str) -> bool {
    value.strip_prefix("/dev/").is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '/')
    })
}

/// A medium below a local storage.
struct Medium {
    kind: Kind,
    device: String,
    serial: String,
    size: u64,
    used: u64,
    /// The directory, volume group or pool on it.
    root: String,
    thinpool: String,
}

/// The media of local storages of these kinds, named in the order of the storages.
fn media(call: &Call<'_>, kinds: &[Kind]) -> Result<Vec<Medium>, Failure> {
    let node = call.params.text("node");
    call.world.node(node)?;
    let own = |storage: &&Storage| {
        let def = &storage.def;
        let on_root = def.root().starts_with("/var/lib/");
        !def.shared && def.on_node(node) && !on_root
    };
    let all = call.world.storages.iter().filter(own);
    let named = ('b'..='z').zip(all).map(|(letter, storage)| {
        let space = storage.space(node);
        let id = &storage.def.id;
        Medium {
            kind: storage.def.kind,
            device: format!("/dev/sd{letter}"),
            serial: crate::digest::sha1(format!("{node}/{id}").as_bytes())[..12].to_uppercase(),
            size: space.total,
            used: space.used,
            root: storage.def.root(),
            thinpool: storage
                .def
                .options
                .get("thinpool")
                .cloned()
                .unwrap_or_else(|| "data".into()),
        }
    });
    Ok(named
        .filter(|medium| kinds.contains(&medium.kind))
        .collect())
}

const LOCAL: &[Kind] = &[Kind::Dir, Kind::Lvm, Kind::LvmThin, Kind::ZfsPool];

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.params.text("node");
    let size = call.world.node(node)?.disk;
    let smart = !call.params.flag("skipsmart");
    let row = |device: &str, serial: &str, size: u64, used: &str, mounted: bool| {
        let mut row = json!({
            "devpath": device, "by_id_link": format!("/dev/disk/by-id/scsi-{serial}"),
            "size": size, "used": used, "gpt": 1, "mounted": u8::from(mounted), "osdid": -1,
            "osdid-list": null, "model": "SIM_SSD", "vendor": "OXMOX", "serial": serial,
            "type": "ssd", "rpm": 0, "wwn": format!("0x{serial}"),
        });
        if smart {
            row["health"] = json!("PASSED");
            row["wearout"] = json!(100);
        }
        row
    };
    // Every medium holds something: none is left for a new storage or for Ceph's journals.
    if call.params.has("type") {
        return Ok(json!([]).into());
    }
    let mut rows = vec![row("/dev/sda", "ROOT", size, "BIOS boot", false)];
    if call.params.flag("include-partitions") {
        rows.push(json!({
            "devpath": "/dev/sda1", "parent": "/dev/sda", "size": size, "used": "ext4",
            "gpt": 1, "mounted": 1, "osdid": -1, "type": "partition",
        }));
    }
    rows.extend(media(call, LOCAL)?.iter().map(|medium| {
        let used = match medium.kind {
            Kind::ZfsPool => "ZFS",
            Kind::Dir => "ext4",
            _ => "LVM",
        };
        let mounted = medium.kind == Kind::Dir;
        row(&medium.device, &medium.serial, medium.size, used, mounted)
    }));
    Ok(Value::Array(rows).into())
}

fn smart(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let disk = call.params.text("disk");
    let known = disk == "/dev/sda" || media(call, LOCAL)?.iter().any(|it| it.device == disk);
    if !known {
        return Err(Failure::die(format!("disk '{disk}' does not exist")));
    }
    Ok(if call.params.flag("healthonly") {
        json!({ "health": "PASSED" })
    } else {
        json!({ "health": "PASSED", "type": "text", "text": "SMART overall-health: PASSED\n" })
    }
    .into())
}

fn directories(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rows = media(call, &[Kind::Dir])?.into_iter().map(|medium| {
        let unit = medium.root.trim_matches('/').replace('/', "-");
        json!({
            "path": medium.root, "device": medium.device, "type": "ext4", "options": "defaults",
            "unitfile": format!("/etc/systemd/system/{unit}.mount"),
        })
    });
    Ok(rows.collect::<Value>().into())
}

fn groups(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let found = media(call, &[Kind::Lvm, Kind::LvmThin])?;
    let rows = found.iter().map(|medium| {
        // A thin pool takes its whole group.
        let thin = medium.kind == Kind::LvmThin;
        let free = if thin { 0 } else { medium.size - medium.used };
        let (name, size) = (&medium.root, medium.size);
        let device = &medium.device;
        json!({
            "name": name, "size": size, "free": free, "leaf": 0,
            "children": [{ "name": device, "size": size, "free": free, "leaf": 1 }],
        })
    });
    let children: Value = rows.collect();
    Ok(json!({ "leaf": 0, "children": children }).into())
}

fn thin(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rows = media(call, &[Kind::LvmThin])?.into_iter().map(|medium| {
        json!({
            "vg": medium.root, "lv": medium.thinpool, "lv_size": medium.size,
            "used": medium.used, "metadata_size": medium.size / 100,
            "metadata_used": medium.used / 100,
        })
    });
    Ok(rows.collect::<Value>().into())
}

fn pools(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rows = media(call, &[Kind::ZfsPool])?.into_iter().map(|medium| {
        json!({
            "name": medium.root, "size": medium.size, "alloc": medium.used,
            "free": medium.size - medium.used, "frag": 0, "dedup": 1.0, "health": "ONLINE",
        })
    });
    Ok(rows.collect::<Value>().into())
}

fn pool(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("name");
    let found = media(call, &[Kind::ZfsPool])?;
    let Some(medium) = found.iter().find(|medium| medium.root == name) else {
        let text = format!("Could not find pool '{name}'");
        return Err(Failure::die(text));
    };
    let state = |name: &str| json!({ "name": name, "state": "ONLINE", "read": 0, "write": 0, "cksum": 0, "msg": "" });
    let mut root = state(name);
    root["leaf"] = json!(0);
    root["children"] = json!([state(&medium.device)]);
    Ok(json!({
        "name": name, "state": "ONLINE", "errors": "No known data errors", "scan": "none requested",
        "leaf": 0, "children": [root],
    })
    .into())
}

/// `[a-zA-Z0-9.+_][a-zA-Z0-9.+_-]+`
fn is_group(value: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".+_".contains(c);
    value.len() > 1 && value.starts_with(fits) && value.chars().all(|c| fits(c) || c == '-')
}
