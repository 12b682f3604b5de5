//! `/cluster` itself: resources, status, free ids, datacenter options, the log.

mod config;
mod options;

use serde_json::{Value, json};

use crate::api::index;
use crate::call::{Call, Reply};
use crate::clock::calendar;
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::resources;
use crate::route::{Route, get};
use crate::schedule::Schedule;
use crate::schema::format::backup;
use crate::schema::{choice, int, text, vmid};

pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut routes = vec![
        get("/cluster", |_| {
            let names = [
                "acme",
                "backup",
                "backup-info",
                "bulk-action",
                "ceph",
                "config",
                "firewall",
                "ha",
                "jobs",
                "log",
                "mapping",
                "metrics",
                "notifications",
                "nextid",
                "options",
                "qemu",
                "replication",
                "resources",
                "status",
                "tasks",
                "sdn",
            ];
            Ok(names
                .map(|name| json!({ "name": name }))
                .into_iter()
                .collect::<Value>()
                .into())
        })
        .perm(Perm::User),
        get("/cluster/resources", |call| {
            let kind = call.params.get("type");
            Ok(Reply::Json(resources::list(
                call.world,
                call.caller,
                call.entry,
                kind,
            )))
        })
        .perm(Perm::User)
        .params([choice("type", &["vm", "storage", "node", "sdn"]).optional()]),
        get("/cluster/status", status)
            .perm(all("/", &["Sys.Audit"]))
            .protected(),
        get("/cluster/nextid", nextid)
            .perm(Perm::User)
            .params([vmid("vmid").optional()]),
        get("/cluster/log", log)
            .perm(Perm::User)
            .params([int("max").min(1).optional()]),
        get("/cluster/jobs", |_| {
            Ok(index("subdir", &["schedule-analyze"]))
        })
        .perm(Perm::User),
        get("/cluster/jobs/schedule-analyze", analyze)
            .perm(Perm::User)
            .params([
                text("schedule").format(backup::CALENDAR_EVENT).max_len(128),
                int("iterations").min(1).max(100).optional(),
                int("starttime").optional(),
            ]),
    ];
    routes.extend(config::routes());
    routes.extend(options::routes(release));
    routes
}

fn status(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (world, entry) = (&*call.world, call.entry);
    let mut rows = Vec::new();
    let alone = world.members(entry).count() == 1;
    if !alone {
        rows.push(json!({
            "type": "cluster", "id": "cluster", "name": world.name, "nodes": world.nodes.len(),
            "quorate": u8::from(world.quorate(entry)), "version": world.nodes.len(),
        }));
    }
    for (name, node) in world.members(entry) {
        rows.push(json!({
            "type": "node", "id": format!("node/{name}"), "name": name, "ip": node.ip,
            "nodeid": if alone { 0 } else { node.id }, "level": "",
            "local": u8::from(name == entry), "online": u8::from(world.reaches(entry, name)),
        }));
    }
    Ok(Value::Array(rows).into())
}

fn nextid(call: &mut Call<'_>) -> Result<Reply, Failure> {
    if let Some(vmid) = call.params.vmid("vmid") {
        return if call.world.guests.exists(vmid) {
            Err(Failure::param("vmid", format!("VM {vmid} already exists")))
        } else {
            Ok(json!(vmid.to_string()).into())
        };
    }
    let (lower, upper) = options::next_id_range(call.world);
    match (lower..upper).find(|vmid| !call.world.guests.exists(*vmid)) {
        Some(vmid) => Ok(json!(vmid.to_string()).into()),
        None => Err(Failure::die(format!(
            "unable to get any free VMID in range [{lower}, {upper}]"
        ))),
    }
}

fn log(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let max = usize::try_from(call.params.uint("max").unwrap_or(50)).unwrap_or(usize::MAX);
    let all = call.may("/", "Sys.Syslog");
    let entries = call.world.journal.newest();
    let rows = entries
        .filter(|entry| all || entry.user.split('!').next() == Some(call.caller.user()))
        .take(max)
        .map(|entry| {
            json!({
                "uid": entry.uid.to_string(), "id": format!("{}:{}", entry.uid, entry.node),
                "time": entry.time, "node": entry.node, "user": entry.user, "tag": entry.tag,
                "pri": entry.pri, "pid": 1000, "msg": entry.msg,
            })
        });
    Ok(rows.collect::<Value>().into())
}

/// The next times a calendar event names.
fn analyze(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let schedule = Schedule::parse(call.params.text("schedule"));
    let count = call.params.uint("iterations").unwrap_or(10);
    let mut at = call.params.uint("starttime").unwrap_or(call.world.now());
    let mut rows = Vec::new();
    while let Some(next) = schedule.as_ref().and_then(|it| it.next(at)) {
        let time = calendar(next);
        rows.push(json!({
            "timestamp": next,
            "utc": format!(
                "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
                time.year, time.month, time.day, time.hour, time.minute, time.second
            ),
        }));
        at = next;
        if u64::try_from(rows.len()).is_ok_and(|made| made >= count) {
            break;
        }
    }
    Ok(Value::Array(rows).into())
}
