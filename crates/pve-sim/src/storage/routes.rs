//! The endpoints of storages.

use std::sync::Arc;

use super::{appliance_list, config, content, ova, prune, status, transfer};
use crate::checksum::ALGORITHMS;
use crate::guest::formats::volume_id;
use crate::guest::patterns;
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::{backup, storage as kinds};
use crate::schema::{
    Format, Param, choice, digest, flag, format, int, number, property, text, vmid,
};

const SEE: &[&str] = &["Datastore.Audit", "Datastore.AllocateSpace"];
const ON_STORAGE: &str = "/storage/{storage}";

/// Types PVE knows; those without a plugin here are refused by the handler.
const TYPES_9: &[&str] = &[
    "btrfs",
    "cephfs",
    "cifs",
    "dir",
    "esxi",
    "iscsi",
    "iscsidirect",
    "lvm",
    "lvmthin",
    "nfs",
    "pbs",
    "rbd",
    "zfs",
    "zfspool",
];
const TYPES_8: &[&str] = &[
    "btrfs",
    "cephfs",
    "cifs",
    "dir",
    "esxi",
    "glusterfs",
    "iscsi",
    "iscsidirect",
    "lvm",
    "lvmthin",
    "nfs",
    "pbs",
    "rbd",
    "zfs",
    "zfspool",
];

fn id() -> Param {
    text("storage").format(format::STORAGE)
}

/// Everything `storage.cfg` may say, whatever the type.
fn options(release: Release) -> Vec<Param> {
    let mut all: Vec<Param> = TEXTS.iter().map(|name| text(name).optional()).collect();
    all.extend(FLAGS.iter().map(|name| flag(name)));
    let path = |name| text(name).format(kinds::PATH).optional();
    let vg = |name| text(name).format(kinds::VG_NAME).optional();
    all.extend([
        path("export"),
        path("mountpoint"),
        path("path"),
        path("subdir"),
        vg("thinpool"),
        vg("vgname"),
        text("base").format(Format::One(volume_id)).optional(),
        text("blocksize").format(kinds::BLOCK_SIZE).optional(),
        text("bwlimit").property(&bandwidth()).optional(),
        text("content").format(kinds::CONTENT_LIST).optional(),
        text("content-dirs").format(kinds::DIR_OVERRIDES).optional(),
        text("domain").max_len(256).optional(),
        text("fs-name").format(format::CONFIG_ID).optional(),
        text("fingerprint").pattern(is_fingerprint).optional(),
        choice("format", &["raw", "qcow2", "subvol", "vmdk"]).optional(),
        text("monhost").format(kinds::PORTAL_LIST).optional(),
        text("options").format(kinds::OPTIONS).optional(),
        text("password").max_len(256).optional(),
        int("port").min(1).max(65_535).optional(),
        text("portal").format(kinds::PORTAL).optional(),
        choice("preallocation", &["off", "metadata", "falloc", "full"]).optional(),
        text("prune-backups").property(&backup::prune()).optional(),
        text("server").format(kinds::SERVER).optional(),
        choice("smbversion", &["default", "2.0", "2.1", "3", "3.0", "3.11"]).optional(),
        text("nodes").format(format::NODE_LIST).optional(),
        int("max-protected-backups").min(-1).optional(),
    ]);
    if release.is_9() {
        all.push(flag("snapshot-as-volume-chain"));
        all.push(int("saferemove-stepsize").optional());
        all.push(text("zfs-base-path").format(kinds::PATH).optional());
    } else {
        all.push(int("maxfiles").min(0).optional());
        all.push(choice("transport", &["tcp", "rdma", "unix"]).optional());
        all.push(text("server2").format(kinds::SERVER).optional());
        all.push(text("volume").optional());
    }
    all
}

const TEXTS: &[&str] = &[
    "authsupported",
    "comstar_hg",
    "comstar_tg",
    "data-pool",
    "datastore",
    "encryption-key",
    "is_mountpoint",
    "iscsiprovider",
    "keyring",
    "lio_tpg",
    "master-pubkey",
    "namespace",
    "pool",
    "saferemove_throughput",
    "share",
    "target",
    "username",
];
const FLAGS: &[&str] = &[
    "create-base-path",
    "create-subdirs",
    "disable",
    "fuse",
    "krbd",
    "mkdir",
    "nocow",
    "nowritecache",
    "saferemove",
    "shared",
    "skip-cert-verification",
    "sparse",
    "tagged_only",
];

/// What a storage is told once and for ever.
const FIXED: &[&str] = &[
    "authsupported",
    "base",
    "datastore",
    "export",
    "iscsiprovider",
    "path",
    "portal",
    "share",
    "target",
    "thinpool",
    "vgname",
    "volume",
];

fn pruned() -> [Param; 4] {
    [
        id(),
        text("prune-backups").property(&backup::prune()).optional(),
        choice("type", &["qemu", "lxc"]).optional(),
        vmid("vmid").optional(),
    ]
}

fn is_url(value: &str) -> bool {
    value.starts_with("http://") || value.starts_with("https://")
}

fn bandwidth() -> Arc<property::Format> {
    let limits = ["clone", "default", "migration", "move", "restore"];
    property::Format::new(limits.map(|name| number(name).min(0).optional())).shared()
}

fn is_fingerprint(value: &str) -> bool {
    let parts: Vec<&str> = value.split(':').collect();
    let byte = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    parts.len() == 32 && parts.iter().all(byte)
}

/// All endpoints of storages.
pub(crate) fn routes(release: Release) -> Vec<Route> {
    let types = if release.is_9() { TYPES_9 } else { TYPES_8 };
    let mut on_create = options(release);
    on_create.extend([id(), choice("type", types)]);
    let mut on_update = options(release);
    on_update.retain(|param| !FIXED.contains(&param.name()));
    on_update.extend([
        id(),
        digest(),
        text("delete").format(format::CONFIG_ID_LIST).optional(),
    ]);
    let download = Perm::And(vec![
        all(ON_STORAGE, &["Datastore.AllocateTemplate"]),
        Perm::Or(vec![
            all("/", &["Sys.Audit", "Sys.Modify"]),
            all("/nodes/{node}", &["Sys.AccessNetwork"]),
        ]),
    ]);
    let checksum = || {
        [
            text("checksum").requires("checksum-algorithm").optional(),
            choice("checksum-algorithm", ALGORITHMS)
                .requires("checksum")
                .optional(),
        ]
    };
    let volume = "/nodes/{node}/storage/{storage}/content/{volume*}";
    vec![
        get("/storage", config::list)
            .perm(Perm::User)
            .params([choice("type", types).optional()]),
        post("/storage", config::create)
            .perm(all("/storage", &["Datastore.Allocate"]))
            .params(on_create),
        get("/storage/{storage}", config::show)
            .perm(all(ON_STORAGE, &["Datastore.Allocate"]))
            .params([id()]),
        put("/storage/{storage}", config::update)
            .perm(all("/storage", &["Datastore.Allocate"]))
            .params(on_update),
        delete("/storage/{storage}", config::remove)
            .perm(all("/storage", &["Datastore.Allocate"]))
            .params([id()]),
        get("/nodes/{node}/storage", status::list)
            .perm(Perm::User)
            .params([
                text("content").format(kinds::CONTENT_LIST).optional(),
                flag("enabled"),
                flag("format"),
                id().optional(),
                text("target").format(format::NODE).optional(),
            ])
            .protected(),
        get("/nodes/{node}/storage/{storage}", status::index)
            .perm(any(ON_STORAGE, SEE))
            .params([id()]),
        get("/nodes/{node}/storage/{storage}/status", status::show)
            .perm(any(ON_STORAGE, SEE))
            .params([id()])
            .protected(),
        get(
            "/nodes/{node}/storage/{storage}/rrddata",
            crate::guest::read::rrddata,
        )
        .perm(any(ON_STORAGE, SEE))
        .params([
            id(),
            choice("timeframe", &["hour", "day", "week", "month", "year"]),
            choice("cf", &["AVERAGE", "MAX"]).optional(),
        ]),
        get("/nodes/{node}/storage/{storage}/content", content::list)
            .perm(any(ON_STORAGE, SEE))
            .params([
                id(),
                text("content").format(kinds::CONTENT).optional(),
                vmid("vmid").optional(),
            ])
            .protected(),
        get(
            "/nodes/{node}/storage/{storage}/import-metadata",
            ova::metadata,
        )
        .perm(Perm::User)
        .params([id(), text("volume")])
        .protected(),
        post("/nodes/{node}/storage/{storage}/content", content::allocate)
            .perm(all(ON_STORAGE, &["Datastore.AllocateSpace"]))
            .params([
                id(),
                vmid("vmid"),
                text("filename"),
                text("size").pattern(patterns::alloc_size),
                choice("format", &["raw", "qcow2", "subvol", "vmdk"])
                    .requires("size")
                    .optional(),
            ]),
        get(volume, content::show)
            .perm(Perm::User)
            .params([id()])
            .protected(),
        put(volume, content::update).perm(Perm::User).params([
            id(),
            text("notes").optional(),
            flag("protected"),
        ]),
        post(volume, content::copy).params([
            id(),
            text("target"),
            text("target_node").format(format::NODE).optional(),
        ]),
        delete(volume, content::remove)
            .perm(Perm::User)
            .params([id(), int("delay").min(1).max(30).optional()]),
        get(
            "/nodes/{node}/storage/{storage}/prunebackups",
            prune::dry_run,
        )
        .perm(any(ON_STORAGE, SEE))
        .params(pruned())
        .protected(),
        delete("/nodes/{node}/storage/{storage}/prunebackups", prune::prune)
            .perm(Perm::User)
            .params(pruned()),
        get("/nodes/{node}/query-url-metadata", transfer::metadata)
            .perm(Perm::Or(vec![
                all("/", &["Sys.Audit", "Sys.Modify"]),
                all("/nodes/{node}", &["Sys.AccessNetwork"]),
            ]))
            .params([text("url").pattern(is_url), flag("verify-certificates")]),
        get("/nodes/{node}/aplinfo", appliance_list::list).perm(Perm::User),
        post("/nodes/{node}/aplinfo", appliance_list::download)
            .perm(all(ON_STORAGE, &["Datastore.AllocateTemplate"]))
            .params([id(), text("template").max_len(255)]),
        post("/nodes/{node}/storage/{storage}/upload", transfer::upload)
            .perm(all(ON_STORAGE, &["Datastore.AllocateTemplate"]))
            .params([
                id(),
                choice("content", &["iso", "vztmpl", "import"]),
                text("filename").max_len(255),
                text("tmpfilename").optional(),
            ])
            .params(checksum())
            .upload(),
        post(
            "/nodes/{node}/storage/{storage}/download-url",
            transfer::download,
        )
        .perm(download)
        .params([
            id(),
            choice("content", &["iso", "vztmpl", "import"]),
            text("filename").max_len(255),
            text("url").pattern(is_url),
            flag("verify-certificates"),
            text("compression").optional(),
        ])
        .params(checksum()),
    ]
}
