//! `/cluster/ha/status`: what the manager thinks.

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::route::{Route, get};

pub(super) fn routes() -> Vec<Route> {
    let audit = || all("/", &["Sys.Audit"]);
    vec![
        get("/cluster/ha/status", |_| {
            Ok(json!([{ "name": "current" }, { "name": "manager_status" }]).into())
        })
        .perm(Perm::User),
        get("/cluster/ha/status/current", current).perm(audit()),
        get("/cluster/ha/status/manager_status", manager).perm(audit()),
    ]
}

/// The node whose manager decides: the first that has quorum.
fn master<'a>(call: &'a Call<'_>) -> Option<&'a str> {
    let world = &*call.world;
    let alive = |name: &str| world.nodes.get(name).is_some_and(|it| it.up) && world.quorate(name);
    world
        .nodes
        .keys()
        .map(String::as_str)
        .find(|name| alive(name))
}

fn current(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let ha = &world.ha;
    let quorate = world.quorate(call.entry);
    let mut rows = vec![json!({
        "id": "quorum", "type": "quorum", "node": call.entry,
        "status": if quorate { "OK" } else { "No quorum on node!" }, "quorate": u8::from(quorate),
    })];
    if world.release.is_9() {
        let armed = !ha.services.is_empty();
        rows.push(json!({
            "id": "fencing", "type": "fencing", "node": call.entry,
            "armed-state": if armed { "armed" } else { "standby" },
            "status": if armed { "armed (CRM watchdog armed)" } else { "standby (CRM watchdog standby)" },
        }));
    }
    if !ha.services.is_empty() {
        if let Some(master) = master(call) {
            rows.push(json!({
                "id": "master", "type": "master", "node": master,
                "status": format!("{master} (active)"), "timestamp": world.now(),
            }));
        }
        for (name, node) in &world.nodes {
            let busy = ha.services.values().any(|service| service.node == *name);
            let state = match (node.up, busy) {
                (false, _) => "old timestamp - dead?",
                (true, true) => "active",
                (true, false) => "idle",
            };
            rows.push(json!({
                "id": format!("lrm:{name}"), "type": "lrm", "node": name,
                "status": format!("{name} ({state})"), "timestamp": world.now(),
            }));
        }
    }
    for (sid, resource) in &ha.resources {
        let service = ha.services.get(sid);
        let vmid = sid.split_once(':').and_then(|(_, id)| id.parse().ok());
        let home = vmid
            .and_then(|vmid| world.guests.get(vmid))
            .map(|guest| guest.node.clone());
        let node = service
            .map(|it| it.node.clone())
            .or(home)
            .unwrap_or_default();
        let state = service.map_or("queued", |it| it.state.as_str());
        let mut row = json!({
            "id": format!("service:{sid}"), "type": "service", "sid": sid, "node": node,
            "state": state, "status": format!("{sid} ({node}, {state})"),
            "request_state": resource.state, "max_restart": resource.max_restart,
            "max_relocate": resource.max_relocate,
        });
        if service.is_some() {
            row["crm_state"] = json!(state);
        }
        if world.release.is_9() {
            row["failback"] = json!(u8::from(resource.failback));
        }
        if let Some(group) = &resource.group {
            row["group"] = json!(group);
        }
        if let Some(comment) = &resource.comment {
            row["comment"] = json!(comment);
        }
        rows.push(row);
    }
    Ok(Value::Array(rows).into())
}

fn manager(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let nodes: serde_json::Map<String, Value> = world
        .nodes
        .keys()
        .map(|name| {
            (
                name.clone(),
                json!(world.ha.node_state(world, name).unwrap_or("online")),
            )
        })
        .collect();
    let services: serde_json::Map<String, Value> = world
        .ha
        .services
        .iter()
        .map(|(sid, it)| (sid.clone(), json!({ "node": it.node, "state": it.state })))
        .collect();
    let status = json!({
        "master_node": master(call), "node_status": nodes, "service_status": services,
        "timestamp": world.now(),
    });
    let quorum = json!({ "node": call.entry, "quorate": u8::from(world.quorate(call.entry)) });
    Ok(json!({ "manager_status": status, "quorum": quorum, "lrm_status": {} }).into())
}
