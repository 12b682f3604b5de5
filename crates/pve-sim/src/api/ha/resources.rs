//! `/cluster/ha/resources`.

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::digest;
use crate::failure::Failure;
use crate::guest::Kind;
use crate::ha::Resource;
use crate::params::Params;
use crate::permission::all;
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::{self, Format};
use crate::schema::{Param, choice, flag, int, text};

const STATES: &[&str] = &["started", "stopped", "enabled", "disabled", "ignored"];

pub(super) fn routes(release: Release) -> Vec<Route> {
    let audit = || all("/", &["Sys.Audit"]);
    let console = || all("/", &["Sys.Console"]);
    let sid = || text("sid").format(Format::One(is_sid));
    vec![
        get("/cluster/ha/resources", list)
            .perm(audit())
            .params([choice("type", &["ct", "vm"]).optional()]),
        post("/cluster/ha/resources", create)
            .perm(console())
            .params(options(release))
            .params([sid(), choice("type", &["ct", "vm"]).optional()]),
        get("/cluster/ha/resources/{sid}", read)
            .perm(audit())
            .params([sid()]),
        put("/cluster/ha/resources/{sid}", update)
            .perm(console())
            .params(options(release))
            .params([
                sid(),
                text("delete").format(format::CONFIG_ID_LIST).optional(),
                crate::schema::digest(),
            ]),
        delete("/cluster/ha/resources/{sid}", remove)
            .perm(console())
            .params([sid()])
            .params(release.is_9().then(|| flag("purge"))),
        post("/cluster/ha/resources/{sid}/migrate", relocate)
            .perm(console())
            .params([sid(), text("node").format(format::NODE)]),
        post("/cluster/ha/resources/{sid}/relocate", |call| {
            relocate(call)
        })
        .perm(console())
        .params([sid(), text("node").format(format::NODE)]),
    ]
}

fn options(release: Release) -> Vec<Param> {
    let mut params = vec![
        choice("state", STATES).optional(),
        int("max_restart").min(0).optional(),
        int("max_relocate").min(0).optional(),
        text("comment").max_len(4096).optional(),
        text("group").format(format::CONFIG_ID).optional(),
    ];
    if release.is_9() {
        params.push(flag("failback"));
        params.push(flag("auto-rebalance"));
    }
    params
}

/// `vm:100`, `ct:100`, or the bare id.
fn is_sid(value: &str) -> Result<(), String> {
    let id = match value.split_once(':') {
        Some(("vm" | "ct", id)) => id,
        Some(_) => "",
        None => value,
    };
    if id.len() >= 3 && id.parse::<u32>().is_ok() {
        Ok(())
    } else {
        Err(format!("unable to parse resource id '{value}'"))
    }
}

/// The full id of the resource in the parameter `sid`, if the guest exists.
fn full_sid(call: &Call<'_>) -> Result<String, Failure> {
    let given = call.params.text("sid");
    let (kind, id) = match given.split_once(':') {
        Some((kind, id)) => (Some(kind), id),
        None => (None, given),
    };
    let guest = id.parse().ok().and_then(|vmid| call.world.guests.get(vmid));
    let of_guest = guest.map(|guest| if guest.kind == Kind::Qemu { "vm" } else { "ct" });
    match (kind, of_guest) {
        (Some(kind), Some(own)) if kind == own => Ok(format!("{kind}:{id}")),
        (None, Some(own)) => Ok(format!("{own}:{id}")),
        (kind, _) => {
            let sid = format!("{}:{id}", kind.unwrap_or("vm"));
            Err(Failure::die(format!(
                "resource '{sid}' does not exist in cluster"
            )))
        }
    }
}

fn show(sid: &str, resource: &Resource, digest: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("sid".into(), json!(sid));
    map.insert("type".into(), json!(sid.split(':').next()));
    map.insert("state".into(), json!(resource.state));
    map.insert("digest".into(), json!(digest));
    let normal = Resource::default();
    if resource.max_restart != normal.max_restart {
        map.insert("max_restart".into(), json!(resource.max_restart));
    }
    if resource.max_relocate != normal.max_relocate {
        map.insert("max_relocate".into(), json!(resource.max_relocate));
    }
    if let Some(group) = &resource.group {
        map.insert("group".into(), json!(group));
    }
    if let Some(comment) = &resource.comment {
        map.insert("comment".into(), json!(comment));
    }
    if !resource.failback {
        map.insert("failback".into(), json!(0));
    }
    for (name, value) in &resource.options {
        map.insert(
            name.clone(),
            json!(value.parse::<u64>().unwrap_or_default()),
        );
    }
    map
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let digest = digest::of(&call.world.ha.resources);
    let kind = call.params.get("type");
    let rows = call.world.ha.resources.iter();
    let rows = rows.filter(|(sid, _)| kind.is_none_or(|kind| sid.starts_with(kind)));
    Ok(rows
        .map(|(sid, it)| Value::Object(show(sid, it, &digest)))
        .collect::<Value>()
        .into())
}

fn apply(resource: &mut Resource, params: &Params) {
    if let Some(state) = params.get("state") {
        let state = if state == "enabled" { "started" } else { state };
        state.clone_into(&mut resource.state);
    }
    let number = |name: &str| {
        params
            .uint(name)
            .and_then(|value| u32::try_from(value).ok())
    };
    if let Some(value) = number("max_restart") {
        resource.max_restart = value;
    }
    if let Some(value) = number("max_relocate") {
        resource.max_relocate = value;
    }
    if let Some(group) = params.get("group") {
        resource.group = Some(group.to_owned());
    }
    if let Some(comment) = params.get("comment") {
        resource.comment = Some(comment.to_owned());
    }
    if let Some(failback) = params.bool("failback") {
        resource.failback = failback;
    }
    if let Some(value) = params.get("auto-rebalance") {
        resource
            .options
            .insert("auto-rebalance".to_owned(), value.to_owned());
    }
}

fn check_group(call: &Call<'_>) -> Result<(), Failure> {
    match call.params.get("group") {
        Some(_) if call.world.release.is_9() => {
            let text = "invalid parameter 'group': ha groups have been migrated to rules";
            Err(Failure::die(text))
        }
        Some(group) if !call.world.ha.groups.contains_key(group) => {
            Err(Failure::die(format!("HA group '{group}' does not exist")))
        }
        _ => Ok(()),
    }
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let sid = full_sid(call)?;
    check_group(call)?;
    if call.world.ha.resources.contains_key(&sid) {
        let text = format!("create resource failed: resource ID '{sid}' already defined");
        return Err(Failure::die(text));
    }
    let mut resource = Resource::default();
    apply(&mut resource, &call.params);
    call.world.ha.resources.insert(sid, resource);
    Ok(Reply::null())
}

fn missing(sid: &str) -> Failure {
    Failure::die(format!("no such resource '{sid}'"))
}

/// The id of a resource that is managed.
fn managed(call: &Call<'_>) -> Result<String, Failure> {
    let given = call.params.text("sid");
    let resources = &call.world.ha.resources;
    let names = [
        given.to_owned(),
        format!("vm:{given}"),
        format!("ct:{given}"),
    ];
    let found = names.into_iter().find(|sid| resources.contains_key(sid));
    found.ok_or_else(|| missing(given))
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let sid = managed(call)?;
    let resources = &call.world.ha.resources;
    Ok(Value::Object(show(&sid, &resources[&sid], &digest::of(resources))).into())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    check_group(call)?;
    change(call)
        .map_err(|failure| Failure::die(format!("update resource failed: {}", failure.message)))?;
    Ok(Reply::null())
}

/// Options that can go back to what they are without a word.
const REMOVABLE: &[&str] = &[
    "auto-rebalance",
    "comment",
    "failback",
    "group",
    "max_relocate",
    "max_restart",
    "state",
];

fn change(call: &mut Call<'_>) -> Result<(), Failure> {
    let params = call.params.clone();
    digest::check(params.get("digest"), &call.world.ha.resources)?;
    let sid = managed(call)?;
    let mut gone = params.list("delete").into_iter();
    if let Some(name) = gone.find(|name| !REMOVABLE.contains(name)) {
        return Err(Failure::die(format!("no such option '{name}'")));
    }
    let ha = &mut call.world.ha;
    if let Some(resource) = ha.resources.get_mut(&sid) {
        apply(resource, &params);
        let normal = Resource::default();
        for name in params.list("delete") {
            match name {
                "group" => resource.group = None,
                "comment" => resource.comment = None,
                "max_restart" => resource.max_restart = normal.max_restart,
                "max_relocate" => resource.max_relocate = normal.max_relocate,
                "failback" => resource.failback = normal.failback,
                "state" => resource.state.clone_from(&normal.state),
                other => {
                    resource.options.remove(other);
                }
            }
        }
    }
    if let Some(state) = params.get("state")
        && let Some(vmid) = sid.split_once(':').and_then(|(_, id)| id.parse().ok())
    {
        let state = if state == "enabled" { "started" } else { state };
        ha.request(vmid, state);
    }
    Ok(())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let sid = managed(call).map_err(|_| {
        let given = call.params.text("sid");
        let kind = if given.contains(':') { "" } else { "vm:" };
        Failure::die(format!(
            "cannot delete service '{kind}{given}', not HA managed!"
        ))
    })?;
    let purge = call.params.bool("purge").unwrap_or(true);
    let ha = &mut call.world.ha;
    if purge {
        if let Some(vmid) = sid.split_once(':').and_then(|(_, id)| id.parse().ok()) {
            ha.forget(vmid);
        }
    } else {
        ha.resources.remove(&sid);
        ha.services.remove(&sid);
    }
    Ok(Reply::null())
}

fn relocate(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let sid = managed(call)?;
    let node = call.params.text("node").to_owned();
    call.world.node(&node)?;
    if let Some(vmid) = sid.split_once(':').and_then(|(_, id)| id.parse().ok()) {
        call.world.ha.request_migrate(vmid, &node);
    }
    Ok(json!({ "sid": sid, "requested-node": node }).into())
}
