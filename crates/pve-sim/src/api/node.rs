//! `/nodes`: the hosts themselves.

mod apt;
mod capabilities;
mod certificates;
mod disks;
mod execute;
mod hardware;
mod journal;
mod network;
mod services;
mod settings;
mod status;

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::node::Node;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, get};
use crate::schema::choice;

const TIMES: &[&str] = &["hour", "day", "week", "month", "year", "decade"];

pub(super) fn routes(release: Release) -> Vec<Route> {
    let audit = || all("/nodes/{node}", &["Sys.Audit"]);
    let mut routes = vec![
        get("/nodes", list).perm(Perm::User),
        get("/nodes/{node}", |_| {
            let names = [
                "aplinfo",
                "apt",
                "capabilities",
                "ceph",
                "certificates",
                "config",
                "disks",
                "dns",
                "firewall",
                "hardware",
                "hosts",
                "journal",
                "lxc",
                "migrateall",
                "netstat",
                "network",
                "qemu",
                "query-oci-repo-tags",
                "query-url-metadata",
                "replication",
                "report",
                "rrd",
                "rrddata",
                "scan",
                "sdn",
                "services",
                "spiceshell",
                "startall",
                "status",
                "stopall",
                "storage",
                "subscription",
                "suspendall",
                "syslog",
                "tasks",
                "termproxy",
                "time",
                "version",
                "vncshell",
                "vzdump",
                "wakeonlan",
            ];
            Ok(names
                .map(|name| json!({ "name": name }))
                .into_iter()
                .collect::<Value>()
                .into())
        })
        .perm(Perm::User),
        get("/nodes/{node}/rrddata", rrddata).perm(audit()).params([
            choice(
                "timeframe",
                if release.is_9() { TIMES } else { &TIMES[..5] },
            ),
            choice("cf", &["AVERAGE", "MAX"]).optional(),
        ]),
    ];
    routes.extend(capabilities::routes(release));
    routes.extend(status::routes());
    routes.extend(network::routes(release));
    routes.extend(hardware::routes());
    routes.extend(execute::routes());
    routes.extend(settings::routes(release));
    routes.extend(services::routes(release));
    routes.extend(apt::routes());
    routes.extend(certificates::routes());
    routes.extend(disks::routes());
    routes.extend(journal::routes(release));
    routes
}

/// The fingerprint a node's certificate would have: stable, and different for every node.
pub(super) fn fingerprint(cluster: &str, node: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let hash = Sha256::digest(format!("certificate of {node} in {cluster}"));
    hash.iter()
        .map(|byte| format!("{byte:02X}"))
        .collect::<Vec<_>>()
        .join(":")
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let rows = world.nodes.iter().map(|(name, node)| {
        let online = world.reaches(call.entry, name);
        let mut row = json!({
            "id": format!("node/{name}"), "node": name, "type": "node",
            "status": if online { "online" } else { "offline" },
            "ssl_fingerprint": fingerprint(&world.name, name),
        });
        if online {
            row["level"] = json!("");
            if call.may(&format!("/nodes/{name}"), "Sys.Audit") {
                let usage = world.node_usage(name);
                row["uptime"] = json!(world.now().saturating_sub(node.started));
                row["cpu"] = json!(usage.cpu);
                row["maxcpu"] = json!(node.cpus);
                row["mem"] = json!(usage.mem);
                row["maxmem"] = json!(node.memory);
                row["disk"] = json!(node.disk / 20);
                row["maxdisk"] = json!(node.disk);
            }
        }
        row
    });
    Ok(rows.collect::<Value>().into())
}

/// The node in the path, to be changed.
fn node_mut<'a>(call: &'a mut Call<'_>) -> Result<&'a mut Node, Failure> {
    let name = call.params.text("node");
    let node = call.world.nodes.get_mut(name);
    node.ok_or_else(|| Failure::die(format!("no such cluster node '{name}'")))
}

fn rrddata(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let step = match call.params.text("timeframe") {
        "hour" => 60,
        "day" => 1800,
        "week" => 10_800,
        "month" => 43_200,
        _ => 604_800,
    };
    let last = call.world.now() / step * step;
    let node = call.world.node(call.params.text("node"))?;
    let usage = call.world.node_usage(call.params.text("node"));
    let rows = (0..70).rev().map(|back| {
        let time = last.saturating_sub(back * step);
        if time < node.started || back != 0 {
            return json!({ "time": time });
        }
        json!({
            "time": time, "maxcpu": node.cpus, "cpu": usage.cpu, "memtotal": node.memory,
            "memused": usage.mem, "roottotal": node.disk, "rootused": node.disk / 20,
        })
    });
    Ok(rows.collect::<Value>().into())
}
