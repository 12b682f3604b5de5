//! The endpoints of storages.

use super::{config, content, status, transfer};
use crate::guest::patterns;
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, choice, digest, flag, format, int, text, vmid};

const SEE: &[&str] = &["Datastore.Audit", "Datastore.AllocateSpace"];
const ON_STORAGE: &str = "/storage/{storage}";
const ALGORITHMS: &[&str] = &["md5", "sha1", "sha224", "sha256", "sha384", "sha512"];

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

/// Everything `storage.cfg` may say about the types implemented here.
fn options(release: Release) -> Vec<Param> {
    let mut all: Vec<Param> = [
        "content",
        "content-dirs",
        "data-pool",
        "domain",
        "export",
        "format",
        "keyring",
        "monhost",
        "mountpoint",
        "namespace",
        "options",
        "password",
        "path",
        "pool",
        "preallocation",
        "prune-backups",
        "server",
        "share",
        "subdir",
        "thinpool",
        "username",
        "vgname",
        "base",
        "blocksize",
        "bwlimit",
        "smbversion",
        "is_mountpoint",
    ]
    .map(|name| text(name).optional())
    .into();
    all.extend(
        [
            "create-base-path",
            "create-subdirs",
            "disable",
            "krbd",
            "fuse",
            "mkdir",
            "saferemove",
            "shared",
            "sparse",
            "tagged_only",
        ]
        .map(flag),
    );
    all.push(text("nodes").format(format::NODE_LIST).optional());
    all.push(int("max-protected-backups").min(-1).optional());
    if release.is_9() {
        all.push(flag("snapshot-as-volume-chain"));
    }
    all
}

/// All endpoints of storages.
pub(crate) fn routes(release: Release) -> Vec<Route> {
    let types = if release.is_9() { TYPES_9 } else { TYPES_8 };
    let mut on_create = options(release);
    on_create.extend([id(), choice("type", types)]);
    let mut on_update = options(release);
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
                text("content").optional(),
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
            .params([id(), text("content").optional(), vmid("vmid").optional()])
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
        delete(volume, content::remove)
            .perm(Perm::User)
            .params([id(), int("delay").min(1).max(30).optional()]),
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
            text("url").pattern(|url| url.starts_with("http://") || url.starts_with("https://")),
            flag("verify-certificates"),
            text("compression").optional(),
        ])
        .params(checksum()),
    ]
}
