//! `/cluster/resources`: what the nodes' statistics daemons last told the cluster.
//!
//! Every ten seconds each node reports its guests and storages. Between two reports the numbers
//! are old: a new guest is known at once, because its configuration file is, but its status is
//! `unknown` and it has no numbers until the next report. Reports of a node that went silent are
//! dropped after five minutes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::access::Caller;
use crate::guest::Guest;
use crate::pool::Pool;
use crate::world::World;

/// How often a node reports.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// For how long a report counts.
const FRESH: u64 = 300;

/// The last report of each node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    guests: BTreeMap<u32, Report>,
    nodes: BTreeMap<String, u64>,
    storages: BTreeMap<(String, String), StorageReport>,
}

/// What a node said of a guest.
#[derive(Clone, Debug)]
struct Report {
    time: u64,
    node: String,
    numbers: Numbers,
}

/// The part of a guest's row that comes from reports.
#[derive(Clone, Debug, Serialize)]
struct Numbers {
    name: String,
    status: &'static str,
    template: u8,
    uptime: u64,
    cpu: Number,
    maxcpu: u64,
    mem: u64,
    maxmem: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memhost: Option<u64>,
    disk: u64,
    maxdisk: u64,
    netin: u64,
    netout: u64,
    diskread: u64,
    diskwrite: u64,
}

/// A load that is written as `0` when there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(pub(crate) f64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 > 0.0 {
            serializer.serialize_f64(self.0)
        } else {
            serializer.serialize_u8(0)
        }
    }
}

#[derive(Clone, Debug)]
struct StorageReport {
    time: u64,
    total: u64,
    used: u64,
}

/// One row about a guest.
#[derive(Serialize)]
struct GuestRow<'a> {
    id: String,
    vmid: u32,
    node: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hastate: Option<String>,
    /// Present while there is no report.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(flatten)]
    numbers: Option<&'a Numbers>,
}

/// A row of any type, in the order PVE gives them.
#[derive(Serialize)]
#[serde(untagged)]
enum Row<'a> {
    Guest(Box<GuestRow<'a>>),
    Other(Value),
}

/// Every node that is up reports.
pub(crate) fn report(world: &mut World) {
    let now = world.now();
    let mut reports = std::mem::take(&mut world.reports);
    reports.guests.retain(|vmid, _| world.guests.exists(*vmid));
    for guest in world.guests.iter() {
        if !world.nodes.get(&guest.node).is_some_and(|node| node.up) {
            continue;
        }
        let numbers = numbers(world, guest);
        let report = Report {
            time: now,
            node: guest.node.clone(),
            numbers,
        };
        reports.guests.insert(guest.vmid, report);
    }
    reports.storages.clear();
    for (name, node) in &world.nodes {
        if !node.up {
            continue;
        }
        reports.nodes.insert(name.clone(), now);
        for storage in world.storages.iter().filter(|it| it.def.on_node(name)) {
            let space = storage.space(name);
            let report = StorageReport {
                time: now,
                total: space.total,
                used: space.used,
            };
            reports
                .storages
                .insert((name.clone(), storage.def.id.clone()), report);
        }
    }
    world.reports = reports;
}

fn numbers(world: &World, guest: &Guest) -> Numbers {
    let usage = crate::guest::view::usage(world, guest);
    Numbers {
        name: guest.name(),
        status: if usage.running { "running" } else { "stopped" },
        template: u8::from(guest.is_template()),
        uptime: usage.uptime,
        cpu: Number(usage.cpu),
        maxcpu: usage.maxcpu,
        mem: usage.mem,
        maxmem: usage.maxmem,
        memhost: world.release.is_9().then_some(usage.memhost),
        disk: usage.disk,
        maxdisk: usage.maxdisk,
        netin: usage.netin,
        netout: usage.netout,
        diskread: usage.diskread,
        diskwrite: usage.diskwrite,
    }
}

fn guest_row<'a>(world: &'a World, guest: &'a Guest, pool: Option<&'a str>) -> GuestRow<'a> {
    let now = world.now();
    let report = world
        .reports
        .guests
        .get(&guest.vmid)
        .filter(|report| report.time + FRESH > now && report.node == guest.node);
    GuestRow {
        id: format!("{}/{}", guest.kind.name(), guest.vmid),
        vmid: guest.vmid,
        node: &guest.node,
        kind: guest.kind.name(),
        tags: guest.tags(),
        lock: guest.lock(),
        pool,
        hastate: world.ha.state(guest.vmid),
        status: report.is_none().then_some("unknown"),
        numbers: report.map(|report| &report.numbers),
    }
}

fn storage_rows(world: &World, entry: &str, seen: &dyn Fn(&str) -> bool) -> Vec<Value> {
    let now = world.now();
    let mut rows = Vec::new();
    for (node, _) in world.members(entry) {
        for storage in world.storages.iter().filter(|it| it.def.on_node(node)) {
            let id = &storage.def.id;
            if !seen(id) {
                continue;
            }
            let report = world.reports.storages.get(&(node.clone(), id.clone()));
            let report = report.filter(|report| report.time + FRESH > now);
            let mut row = json!({
                "id": format!("storage/{node}/{id}"), "storage": id, "node": node,
                "type": "storage", "plugintype": storage.def.kind.name(),
                "shared": u8::from(storage.def.shared),
                "content": storage.def.content.iter().cloned().collect::<Vec<_>>().join(","),
                "status": if report.is_some() { "available" } else { "unknown" },
            });
            if let Some(report) = report {
                row["maxdisk"] = json!(report.total);
                row["disk"] = json!(report.used);
            }
            rows.push(row);
        }
    }
    rows
}

fn node_row(world: &World, name: &str, audit: bool) -> Value {
    let now = world.now();
    let Some(node) = world.nodes.get(name) else {
        return Value::Null;
    };
    let reported = world
        .reports
        .nodes
        .get(name)
        .is_some_and(|time| time + FRESH > now);
    let status = match (node.up, reported) {
        (true, true) => "online",
        (true, false) => "unknown",
        (false, _) => "offline",
    };
    let mut row = json!({
        "id": format!("node/{name}"), "node": name, "type": "node", "status": status,
    });
    if status == "online" {
        row["level"] = json!("");
        row["cgroup-mode"] = json!(2);
        if audit {
            let usage = world.node_usage(name);
            row["uptime"] = json!(now.saturating_sub(node.started));
            row["cpu"] = json!(usage.cpu);
            row["maxcpu"] = json!(node.cpus);
            row["mem"] = json!(usage.mem);
            row["maxmem"] = json!(node.memory);
            row["disk"] = json!(node.disk / 20);
            row["maxdisk"] = json!(node.disk);
        }
        if world.release.is_9() {
            row["host-arch"] = json!("x86_64");
        }
    }
    if let Some(state) = world.ha.node_state(world, name) {
        row["hastate"] = json!(state);
    }
    row
}

/// The rows `caller` may see at the node `entry`, as JSON.
pub(crate) fn list(world: &World, caller: &Caller, entry: &str, kind: Option<&str>) -> Vec<u8> {
    let access = &world.access;
    let everything = caller.is_root();
    let may = |path: &str, name: &str| everything || access.may(caller, path, name);
    let wanted = |name: &str| kind.is_none_or(|kind| kind == name);
    let pools: BTreeMap<u32, &str> = access
        .pools
        .iter()
        .flat_map(|(name, pool)| pool.guests.iter().map(move |vmid| (*vmid, name.as_str())))
        .collect();
    let mut rows = Vec::new();
    if kind.is_none() {
        for (id, _) in access
            .pools
            .iter()
            .filter(|(id, _)| may(&format!("/pool/{id}"), "Pool.Audit"))
        {
            rows.push(Row::Other(
                json!({ "id": format!("/pool/{id}"), "pool": id, "type": "pool" }),
            ));
        }
    }
    if wanted("vm") {
        let seen = access.may_on_guests(caller, "VM.Audit");
        for guest in world.guests.iter() {
            if seen(guest.vmid) {
                let pool = pools.get(&guest.vmid).copied();
                let pool = pool.filter(|id| may(&format!("/pool/{id}"), "Pool.Audit"));
                rows.push(Row::Guest(Box::new(guest_row(world, guest, pool))));
            }
        }
    }
    if wanted("node") {
        for (name, _) in world.members(entry) {
            let audit = may(&format!("/nodes/{name}"), "Sys.Audit");
            rows.push(Row::Other(node_row(world, name, audit)));
        }
    }
    if wanted("storage") {
        let seen = |id: &str| {
            let path = format!("/storage/{id}");
            may(&path, "Datastore.Audit") || may(&path, "Datastore.AllocateSpace")
        };
        rows.extend(
            storage_rows(world, entry, &seen)
                .into_iter()
                .map(Row::Other),
        );
    }
    if wanted("sdn") {
        rows.extend(
            world
                .sdn_rows(&|zone| may(&format!("/sdn/zones/{zone}"), "SDN.Audit"))
                .into_iter()
                .map(Row::Other),
        );
    }
    serde_json::to_vec(&rows).unwrap_or_default()
}

/// The members of a pool, as rows.
pub(crate) fn pool_members(world: &World, pool: &Pool, kind: Option<&str>, here: &str) -> Value {
    let mut rows = Vec::new();
    for guest in pool
        .guests
        .iter()
        .filter_map(|vmid| world.guests.get(*vmid))
    {
        if kind.is_none_or(|kind| kind == guest.kind.name()) {
            // A pool shows what the nodes report of its members, not what their configuration says.
            let mut row = guest_row(world, guest, None);
            (row.tags, row.lock, row.hastate) = (None, None, None);
            rows.push(json!(row));
        }
    }
    if kind.is_none_or(|kind| kind == "storage") {
        // A storage is a member once: as the node that was asked sees it, or else the first that does.
        let seen = storage_rows(world, here, &|id| pool.storages.contains(id));
        for id in &pool.storages {
            let mut of = seen.iter().filter(|row| row["storage"] == id.as_str());
            let first = of.clone().next();
            rows.extend(of.find(|row| row["node"] == here).or(first).cloned());
        }
    }
    Value::Array(rows)
}
