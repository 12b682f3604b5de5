//! `/cluster/config`: how the nodes of a cluster find each other.

use serde_json::{Map, Value, json};

use crate::api::index;
use crate::api::node::fingerprint;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::all;
use crate::route::{Route, delete, get};
use crate::schema::{format, text};
use crate::world::World;

pub(super) fn routes() -> Vec<Route> {
    let audit = || all("/", &["Sys.Audit"]);
    vec![
        get("/cluster/config", |_| {
            let names = ["apiversion", "join", "nodes", "qdevice", "totem"];
            Ok(index("name", &names))
        })
        .perm(audit()),
        get("/cluster/config/apiversion", |_| Ok(json!(1).into())).perm(audit()),
        get("/cluster/config/nodes", |call| {
            let rows = members(call.world).into_iter().map(Value::Object);
            Ok(rows.collect::<Value>().into())
        })
        .perm(audit()),
        delete("/cluster/config/nodes/{node}", remove),
        get("/cluster/config/totem", |call| Ok(totem(call.world).into())).perm(audit()),
        get("/cluster/config/qdevice", |_| Ok(json!({}).into()))
            .perm(audit())
            .protected(),
        get("/cluster/config/join", join)
            .perm(audit())
            .params([text("node").format(format::NODE).optional()]),
    ]
}

/// A node that stands alone has no such configuration.
fn in_cluster(world: &World) -> bool {
    world.nodes.len() > 1
}

fn members(world: &World) -> Vec<Map<String, Value>> {
    let nodes = world.nodes.iter().filter(|_| in_cluster(world));
    let rows = nodes.map(|(name, node)| {
        let mut row = Map::new();
        row.insert("node".into(), json!(name));
        row.insert("name".into(), json!(name));
        row.insert("nodeid".into(), json!(node.id.to_string()));
        row.insert("quorum_votes".into(), json!("1"));
        row.insert("ring0_addr".into(), json!(node.ip));
        row
    });
    rows.collect()
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.node();
    if !in_cluster(call.world) || !call.world.nodes.contains_key(&name) {
        let text = format!("Node/IP: '{name}' is not a known host of the cluster.");
        return Err(Failure::die(text));
    }
    if name == call.entry {
        return Err(Failure::die("Cannot delete myself from cluster!"));
    }
    Ok(Reply::later(|cluster| async move {
        cluster.remove_node(&name);
        Ok(Reply::null())
    }))
}

fn totem(world: &World) -> Value {
    if !in_cluster(world) {
        return json!({});
    }
    json!({
        "cluster_name": world.name, "config_version": world.nodes.len().to_string(),
        "interface": { "0": { "linknumber": "0" } }, "ip_version": "ipv4-6", "link_mode": "passive",
        "secauth": "on", "version": "2",
    })
}

fn join(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let name = call.params.get("node").unwrap_or(call.entry);
    world.node(name)?;
    if !in_cluster(world) {
        let text = "node is not in a cluster, no join info available!";
        return Err(Failure::die(text));
    }
    let nodes = members(world).into_iter().map(|mut row| {
        row.remove("node");
        let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
        let print = fingerprint(&world.name, name);
        row.insert("pve_fp".into(), json!(print));
        let address = row.get("ring0_addr").cloned();
        row.insert("pve_addr".into(), address.unwrap_or_default());
        Value::Object(row)
    });
    let nodes: Value = nodes.collect();
    Ok(json!({
        "config_digest": crate::digest::of(&nodes), "nodelist": nodes, "preferred_node": name,
        "totem": totem(world),
    })
    .into())
}
