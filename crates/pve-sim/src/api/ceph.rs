//! Ceph on the nodes themselves, as a PVE answers that never installed it.
//!
//! The storage `ceph` of the default world is somebody else's cluster. So everything below checks
//! its caller and its parameters as PVE does, and then finds that the programs are missing.

use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, choice, flag, format, int, number, property, text};

const FLAGS: &[&str] = &[
    "nobackfill",
    "nodeep-scrub",
    "nodown",
    "noin",
    "noout",
    "norebalance",
    "norecover",
    "noscrub",
    "notieragent",
    "noup",
    "pause",
];

const BELOW: &[&str] = &[
    "cfg",
    "cmd-safety",
    "crush",
    "fs",
    "init",
    "log",
    "mds",
    "mgr",
    "mon",
    "osd",
    "pool",
    "restart",
    "rules",
    "start",
    "status",
    "stop",
];

/// What every call finds that needs a running Ceph.
fn absent(_: &mut Call<'_>) -> Result<Reply, Failure> {
    Err(Failure::die("binary not installed: /usr/bin/ceph-mon"))
}

/// The first command there would be.
fn not_installed(_: &mut Call<'_>) -> Result<Reply, Failure> {
    Err(Failure::die("binary not installed: /usr/bin/ceph"))
}

fn see() -> Perm {
    any("/", &["Sys.Audit", "Datastore.Audit"])
}

fn audit() -> Perm {
    all("/", &["Sys.Audit"])
}

fn modify() -> Perm {
    all("/", &["Sys.Modify"])
}

pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut routes = of_cluster();
    routes.extend(of_node());
    routes.extend(services());
    routes.extend(osds());
    routes.extend(pools(release));
    if release.is_9() {
        routes.extend(newer());
    }
    routes
}

fn of_cluster() -> Vec<Route> {
    let named = || choice("flag", FLAGS);
    vec![
        get("/cluster/ceph", |_| {
            Ok(index("name", &["metadata", "status", "flags"]))
        })
        .perm(Perm::User),
        get("/cluster/ceph/status", absent).perm(see()).protected(),
        get("/cluster/ceph/metadata", absent)
            .perm(see())
            .protected()
            .params([choice("scope", &["all", "versions"]).optional()]),
        get("/cluster/ceph/flags", absent).perm(audit()).protected(),
        put("/cluster/ceph/flags", absent)
            .perm(modify())
            .params(FLAGS.iter().map(|name| flag(name))),
        get("/cluster/ceph/flags/{flag}", absent)
            .perm(audit())
            .protected()
            .params([named()]),
        put("/cluster/ceph/flags/{flag}", absent)
            .perm(modify())
            .params([named(), flag("value").required()]),
    ]
}

fn of_node() -> Vec<Route> {
    let size = |name| int(name).min(1).max(7).optional();
    let network = |name| text(name).format(format::CIDR).max_len(128);
    vec![
        get("/nodes/{node}/ceph", |_| Ok(index("name", BELOW))).perm(see()),
        get("/nodes/{node}/ceph/status", absent)
            .perm(see())
            .protected(),
        get("/nodes/{node}/ceph/crush", absent)
            .perm(see())
            .protected(),
        get("/nodes/{node}/ceph/rules", absent)
            .perm(see())
            .protected(),
        get("/nodes/{node}/ceph/log", absent)
            .perm(all("/nodes/{node}", &["Sys.Syslog"]))
            .protected()
            .params(["start", "limit"].map(|name| int(name).min(0).optional())),
        get("/nodes/{node}/ceph/cfg", |_| {
            Ok(index("name", &["db", "raw", "value"]))
        })
        .perm(Perm::User),
        get("/nodes/{node}/ceph/cfg/db", absent)
            .perm(see())
            .protected(),
        get("/nodes/{node}/ceph/cfg/raw", absent).perm(see()),
        get("/nodes/{node}/ceph/cfg/value", absent)
            .perm(audit())
            .protected()
            .params([text("config-keys").pattern(is_keys).max_len(4096)]),
        get("/nodes/{node}/ceph/cmd-safety", absent)
            .perm(audit())
            .protected()
            .params([
                choice("action", &["stop", "destroy"]),
                text("id"),
                choice("service", &["osd", "mon", "mds"]),
            ]),
        post("/nodes/{node}/ceph/init", not_installed)
            .perm(modify())
            .params([
                network("cluster-network").requires("network").optional(),
                network("network").optional(),
                flag("disable_cephx"),
                size("min_size"),
                size("size"),
                int("pg_bits").min(6).max(14).optional(),
            ]),
    ]
}

fn services() -> Vec<Route> {
    let command = |path| {
        post(path, absent)
            .perm(modify())
            .params([text("service").pattern(is_service).optional()])
    };
    let id = |name| text(name).pattern(is_id);
    vec![
        command("/nodes/{node}/ceph/start"),
        command("/nodes/{node}/ceph/stop"),
        command("/nodes/{node}/ceph/restart"),
        get("/nodes/{node}/ceph/mon", absent)
            .perm(see())
            .protected(),
        post("/nodes/{node}/ceph/mon/{monid}", absent)
            .perm(modify())
            .params([
                id("monid").max_len(200),
                text("mon-address")
                    .format(format::network::IP_LIST)
                    .optional(),
            ]),
        delete("/nodes/{node}/ceph/mon/{monid}", absent)
            .perm(modify())
            .params([id("monid")]),
        get("/nodes/{node}/ceph/mgr", absent)
            .perm(see())
            .protected(),
        post("/nodes/{node}/ceph/mgr/{id}", absent)
            .perm(modify())
            .params([id("id").max_len(200)]),
        delete("/nodes/{node}/ceph/mgr/{id}", absent)
            .perm(modify())
            .params([id("id")]),
        get("/nodes/{node}/ceph/mds", absent)
            .perm(see())
            .protected(),
        post("/nodes/{node}/ceph/mds/{name}", absent)
            .perm(modify())
            .params([id("name").max_len(200), flag("hotstandby")]),
        delete("/nodes/{node}/ceph/mds/{name}", absent)
            .perm(modify())
            .params([id("name")]),
        get("/nodes/{node}/ceph/fs", absent).perm(see()).protected(),
        post("/nodes/{node}/ceph/fs/{name}", absent)
            .perm(modify())
            .params([
                text("name").pattern(is_pool),
                flag("add-storage"),
                int("pg_num").min(8).max(32_768).optional(),
            ]),
    ]
}

fn osds() -> Vec<Route> {
    let id = || int("osdid");
    let sized = |name, least, of| number(name).min(least).requires(of).optional();
    vec![
        get("/nodes/{node}/ceph/osd", absent)
            .perm(see())
            .protected(),
        post("/nodes/{node}/ceph/osd", absent).params([
            text("dev"),
            text("crush-device-class").optional(),
            text("db_dev").optional(),
            sized("db_dev_size", 1.0, "db_dev"),
            flag("encrypted"),
            int("osds-per-device").min(1).optional(),
            text("wal_dev").optional(),
            sized("wal_dev_size", 0.5, "wal_dev"),
        ]),
        get("/nodes/{node}/ceph/osd/{osdid}", |_| {
            Ok(index("name", &["metadata", "lv-info"]))
        })
        .perm(Perm::User)
        .params([id()]),
        delete("/nodes/{node}/ceph/osd/{osdid}", absent).params([id(), flag("cleanup")]),
        get("/nodes/{node}/ceph/osd/{osdid}/metadata", absent)
            .perm(audit())
            .protected()
            .params([id()]),
        get("/nodes/{node}/ceph/osd/{osdid}/lv-info", absent)
            .perm(audit())
            .protected()
            .params([id(), choice("type", &["block", "db", "wal"]).optional()]),
        post("/nodes/{node}/ceph/osd/{osdid}/in", absent)
            .perm(modify())
            .params([id()]),
        post("/nodes/{node}/ceph/osd/{osdid}/out", absent)
            .perm(modify())
            .params([id()]),
        post("/nodes/{node}/ceph/osd/{osdid}/scrub", absent)
            .perm(modify())
            .params([id(), flag("deep")]),
    ]
}

fn pools(release: Release) -> Vec<Route> {
    let coding = property::Format::new([
        int("k").min(2),
        int("m").min(1),
        text("device-class").optional(),
        text("failure-domain").optional(),
        text("profile").optional(),
    ])
    .shared();
    let mut routes = vec![
        get("/nodes/{node}/ceph/pool", absent)
            .perm(see())
            .protected(),
        post("/nodes/{node}/ceph/pool", absent)
            .perm(modify())
            .params(pool_options())
            .params([
                flag("add_storages"),
                text("erasure-coding").property(&coding).optional(),
            ]),
        get("/nodes/{node}/ceph/pool/{name}", |_| {
            Ok(index("name", &["status"]))
        })
        .perm(see()),
        put("/nodes/{node}/ceph/pool/{name}", absent)
            .perm(modify())
            .params(pool_options()),
        delete("/nodes/{node}/ceph/pool/{name}", absent)
            .perm(modify())
            .params(["force", "remove_ecprofile", "remove_storages"].map(flag)),
        get("/nodes/{node}/ceph/pool/{name}/status", absent)
            .perm(see())
            .protected()
            .params([flag("verbose")]),
    ];
    if release.is_9() {
        routes.push(
            delete("/nodes/{node}/ceph/fs/{name}", absent)
                .perm(modify())
                .params(["remove-pools", "remove-storages"].map(flag)),
        );
    }
    routes
}

fn pool_options() -> Vec<Param> {
    let size = |name| int(name).min(1).max(7).optional();
    vec![
        text("name").pattern(is_pool),
        choice("application", &["rbd", "cephfs", "rgw"]).optional(),
        text("crush_rule").optional(),
        size("min_size"),
        size("size"),
        choice("pg_autoscale_mode", &["on", "off", "warn"]).optional(),
        int("pg_num").min(1).max(32_768).optional(),
        int("pg_num_min").max(32_768).optional(),
        text("target_size").pattern(is_size).optional(),
        number("target_size_ratio").optional(),
    ]
}

/// Calls that came with 9.
fn newer() -> Vec<Route> {
    let bulk = |path, services: &[&'static str]| {
        post(path, absent).perm(modify()).params([
            flag("dry-run"),
            flag("force"),
            flag("only-outdated"),
            choice("service-type", services),
            int("timeout").min(30).max(1800).optional(),
        ])
    };
    vec![
        bulk("/cluster/ceph/restart-bulk", &["mon", "mgr", "mds", "osd"]),
        bulk("/nodes/{node}/ceph/restart-bulk", &["osd"]).params(["resume", "set-noout"].map(flag)),
    ]
}

/// `[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?`
fn is_id(value: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    value.starts_with(edge) && value.ends_with(edge) && value.chars().all(|c| edge(c) || c == '-')
}

/// `mon`, or `osd.3`
fn is_service(value: &str) -> bool {
    let (kind, id) = value
        .split_once('.')
        .map_or((value, None), |(kind, id)| (kind, Some(id)));
    ["ceph", "mon", "mds", "osd", "mgr"].contains(&kind) && id.is_none_or(is_id)
}

fn is_pool(value: &str) -> bool {
    !value.is_empty() && !value.contains(|c: char| c == ':' || c == '/' || c.is_whitespace())
}

/// `10.5G`
fn is_size(value: &str) -> bool {
    let number = value.strip_suffix(['K', 'M', 'G', 'T']).unwrap_or(value);
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match number.split_once('.') {
        None => digits(number),
        Some((whole, part)) => digits(whole) && digits(part),
    }
}

/// `section:key;other:key`
fn is_keys(value: &str) -> bool {
    let word = |text: &str, more: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    value.split([';', ',', ' ']).all(|pair| {
        pair.split_once(':')
            .is_some_and(|(section, key)| word(section, "-_.") && word(key, "-_"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_ceph_calls_its_parts() {
        assert!(is_service("osd.3") && is_service("ceph") && !is_service("osd."));
        assert!(is_size("10.5G") && !is_size("10.G") && !is_size("5X"));
        assert!(is_keys("osd:rbd_cache;mon.a:b") && !is_keys("osd"));
        assert!(is_pool("rbd") && !is_pool("a/b"));
    }
}
