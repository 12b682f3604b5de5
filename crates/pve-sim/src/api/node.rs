//! `/nodes`: the hosts themselves.

mod capabilities;
mod execute;
mod hardware;
mod network;
mod status;

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, get, put};
use crate::schema::{choice, format, text};

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
        get("/nodes/{node}/dns", |call| {
            let node = call.world.node(call.params.text("node"))?;
            let mut map = serde_json::Map::new();
            map.insert("search".into(), json!(node.search_domain));
            for (at, server) in node.dns.iter().enumerate() {
                map.insert(format!("dns{}", at + 1), json!(server));
            }
            Ok(Value::Object(map).into())
        })
        .perm(audit()),
        put("/nodes/{node}/dns", set_dns)
            .perm(all("/nodes/{node}", &["Sys.Modify"]))
            .params([
                text("search"),
                text("dns1").format(format::IP).optional(),
                text("dns2").format(format::IP).optional(),
                text("dns3").format(format::IP).optional(),
            ]),
        get("/nodes/{node}/time", |call| {
            let now = call.world.now();
            Ok(json!({ "timezone": "UTC", "time": now, "localtime": now }).into())
        })
        .perm(audit()),
        get("/nodes/{node}/hosts", |call| {
            let hosts = call.world.nodes.iter();
            let data: String = hosts
                .flat_map(|(name, node)| [node.ip.as_str(), " ", name, "\n"])
                .collect();
            Ok(json!({ "data": data, "digest": crate::digest::sha1(data.as_bytes()) }).into())
        })
        .perm(all("/", &["Sys.Audit"])),
        get("/nodes/{node}/subscription", |_| {
            Ok(json!({
                "status": "notfound", "message": "There is no subscription key", "serverid": null,
                "url": "https://www.proxmox.com/en/proxmox-virtual-environment/pricing",
            })
            .into())
        })
        .perm(Perm::User),
        get("/nodes/{node}/services", services).perm(audit()),
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
    routes
}

/// The fingerprint a node's certificate would have: stable, and different for every node.
fn fingerprint(cluster: &str, node: &str) -> String {
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

fn set_dns(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let name = params.text("node");
    let node = call.world.nodes.get_mut(name);
    let node = node.ok_or_else(|| Failure::die(format!("no such cluster node '{name}'")))?;
    params.text("search").clone_into(&mut node.search_domain);
    let servers = ["dns1", "dns2", "dns3"]
        .into_iter()
        .filter_map(|name| params.get(name));
    node.dns = servers.map(str::to_owned).collect();
    Ok(Reply::null())
}

fn services(_: &mut Call<'_>) -> Result<Reply, Failure> {
    let names = [
        "chrony",
        "corosync",
        "cron",
        "ksmtuned",
        "lxcfs",
        "postfix",
        "proxmox-firewall",
        "pve-cluster",
        "pve-firewall",
        "pve-ha-crm",
        "pve-ha-lrm",
        "pvedaemon",
        "pvefw-logger",
        "pveproxy",
        "pvescheduler",
        "pvestatd",
        "qmeventd",
        "spiceproxy",
        "sshd",
        "syslog",
        "systemd-journald",
    ];
    let rows = names.map(|name| {
        json!({
            "service": name, "name": name, "desc": name, "state": "running",
            "active-state": "active", "unit-state": "enabled",
        })
    });
    Ok(rows.into_iter().collect::<Value>().into())
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
