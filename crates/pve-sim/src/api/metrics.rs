//! `/cluster/metrics`: servers that are sent statistics, and the statistics themselves.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::guest::view;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::storage::SERVER;
use crate::schema::{Param, choice, digest, flag, format, int, text};

/// Options that are numbers in answers.
const NUMBERS: &[&str] = &[
    "disable",
    "max-body-size",
    "mtu",
    "otel-max-body-size",
    "otel-timeout",
    "otel-verify-ssl",
    "port",
    "timeout",
    "verify-certificate",
];

pub(super) fn routes(release: Release) -> Vec<Route> {
    let audit = || all("/", &["Sys.Audit"]);
    let modify = || all("/", &["Sys.Modify"]);
    let id = || text("id").format(format::CONFIG_ID);
    let kinds: &[&str] = if release.is_9() {
        &["graphite", "influxdb", "opentelemetry"]
    } else {
        &["graphite", "influxdb"]
    };
    vec![
        get("/cluster/metrics", |_| {
            Ok(index("name", &["export", "server"]))
        })
        .perm(Perm::User),
        get("/cluster/metrics/server", list).perm(audit()),
        get("/cluster/metrics/server/{id}", read)
            .perm(audit())
            .params([id()]),
        post("/cluster/metrics/server/{id}", create)
            .perm(modify())
            .params(options(release))
            .params([id(), choice("type", kinds)]),
        put("/cluster/metrics/server/{id}", update)
            .perm(modify())
            .params(options(release))
            .params([
                id(),
                text("delete")
                    .format(format::CONFIG_ID_LIST)
                    .max_len(4096)
                    .optional(),
                digest(),
            ]),
        delete("/cluster/metrics/server/{id}", |call| {
            let id = call.params.text("id").to_owned();
            call.world.metrics.remove(&id);
            Ok(Reply::null())
        })
        .perm(modify())
        .params([id()]),
        get("/cluster/metrics/export", export)
            .perm(audit())
            .params([
                flag("history"),
                flag("local-only"),
                int("start-time").optional(),
            ])
            .params(release.is_9().then(|| text("node-list").optional())),
    ]
}

fn options(release: Release) -> Vec<Param> {
    let mut all = vec![
        text("server").format(SERVER),
        int("port").min(1).max(65_536),
        flag("disable"),
        int("mtu").min(512).max(65_536).optional(),
        int("timeout").min(0).optional(),
        choice("proto", &["udp", "tcp"]).optional(),
        text("path").optional(),
        choice("influxdbproto", &["udp", "http", "https"]).optional(),
        text("organization").optional(),
        text("bucket").optional(),
        text("token").optional(),
        text("api-path-prefix").optional(),
        int("max-body-size").min(1).optional(),
        flag("verify-certificate"),
    ];
    if release.is_9() {
        all.extend([
            choice("otel-protocol", &["http", "https"]).optional(),
            choice("otel-compression", &["none", "gzip"]).optional(),
            text("otel-path").optional(),
            text("otel-headers").max_len(1024).optional(),
            text("otel-resource-attributes").max_len(1024).optional(),
            int("otel-max-body-size").min(1024).optional(),
            int("otel-timeout").min(1).max(10).optional(),
            flag("otel-verify-ssl"),
        ]);
    }
    all
}

fn missing(id: &str) -> Failure {
    Failure::die(format!("status server entry '{id}' does not exist"))
}

fn show(options: &BTreeMap<String, String>) -> Map<String, Value> {
    // What lets somebody in stays with the server.
    let shown = options.iter().filter(|(name, _)| name.as_str() != "token");
    shown
        .map(|(name, value)| match value.parse::<u64>() {
            Ok(number) if NUMBERS.contains(&name.as_str()) => (name.clone(), json!(number)),
            _ => (name.clone(), json!(value)),
        })
        .collect()
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rows = call.world.metrics.iter().map(|(id, options)| {
        let options = show(options);
        let disable = options.get("disable").cloned().unwrap_or_else(|| json!(0));
        json!({
            "id": id, "type": options.get("type"), "server": options.get("server"),
            "port": options.get("port"), "disable": disable,
        })
    });
    Ok(rows.collect::<Value>().into())
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("id");
    let options = call.world.metrics.get(id).ok_or_else(|| missing(id))?;
    let mut map = show(options);
    map.insert("digest".into(), json!(crate::digest::of(options)));
    Ok(Value::Object(map).into())
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let id = params.text("id");
    if call.world.metrics.contains_key(id) {
        let text = format!("Metric server '{id}' already exists");
        return Err(Failure::die(text));
    }
    let given = params.iter().filter(|(name, _)| *name != "id");
    let options = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = options.collect();
    call.world.metrics.insert(id.to_owned(), options);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let id = params.text("id");
    let options = call.world.metrics.get_mut(id).ok_or_else(|| missing(id))?;
    crate::digest::check(params.get("digest"), options)?;
    for name in params.list("delete") {
        options.remove(name);
    }
    let skip = ["id", "delete", "digest"];
    for (name, value) in params.iter().filter(|(name, _)| !skip.contains(name)) {
        options.insert(name.to_owned(), value.to_owned());
    }
    Ok(Reply::null())
}

/// The statistics of now. A simulated host keeps no older ones.
fn export(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (world, now) = (&*call.world, call.world.now());
    let local = call.params.flag("local-only");
    let named = call.params.list("node-list");
    let mut data = Vec::new();
    let mut add = |id: &str, metric: &str, kind: &str, value: Value| {
        data.push(json!({
            "id": id, "metric": metric, "timestamp": now, "type": kind, "value": value,
        }));
    };
    let nodes = world.nodes.iter().filter(|(name, node)| {
        let wanted = named.is_empty() || named.contains(&name.as_str());
        node.up && wanted && (!local || name.as_str() == call.entry)
    });
    for (name, node) in nodes {
        let (id, usage) = (format!("node/{name}"), world.node_usage(name));
        add(&id, "cpu_current", "gauge", json!(usage.cpu));
        add(&id, "cpu_max", "gauge", json!(node.cpus));
        add(&id, "mem_used", "gauge", json!(usage.mem));
        add(&id, "mem_total", "gauge", json!(node.memory));
        add(&id, "disk_total", "gauge", json!(node.disk));
        add(&id, "disk_used", "gauge", json!(node.disk / 20));
        let uptime = now.saturating_sub(node.started);
        add(&id, "uptime", "gauge", json!(uptime));
        for guest in world.guests.on_node(name) {
            let id = format!("{}/{}", guest.kind.name(), guest.vmid);
            let usage = view::usage(world, guest);
            add(&id, "cpu_current", "gauge", json!(usage.cpu));
            add(&id, "cpu_max", "gauge", json!(usage.maxcpu));
            add(&id, "mem_used", "gauge", json!(usage.mem));
            add(&id, "mem_total", "gauge", json!(usage.maxmem));
            add(&id, "disk_total", "gauge", json!(usage.maxdisk));
            add(&id, "disk_read", "derive", json!(usage.diskread));
            add(&id, "disk_write", "derive", json!(usage.diskwrite));
            add(&id, "net_in", "derive", json!(usage.netin));
            add(&id, "net_out", "derive", json!(usage.netout));
            add(&id, "uptime", "gauge", json!(usage.uptime));
        }
        for storage in world.storages.iter().filter(|it| it.def.on_node(name)) {
            let (id, space) = (
                format!("storage/{name}/{}", storage.def.id),
                storage.space(name),
            );
            add(&id, "disk_total", "gauge", json!(space.total));
            add(&id, "disk_used", "gauge", json!(space.used));
            add(&id, "disk_available", "gauge", json!(space.avail));
        }
    }
    Ok(json!({ "data": data }).into())
}
