//! `/cluster/ha/groups`: groups of nodes, which 9 has replaced by rules.

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::digest;
use crate::failure::Failure;
use crate::ha::Group;
use crate::params::Params;
use crate::permission::all;
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::{self, Format};
use crate::schema::{Param, choice, flag, text};

pub(super) fn routes() -> Vec<Route> {
    let audit = || all("/", &["Sys.Audit"]);
    let console = || all("/", &["Sys.Console"]);
    let group = || text("group").format(format::CONFIG_ID);
    vec![
        get("/cluster/ha/groups", list).perm(audit()),
        post("/cluster/ha/groups", create)
            .perm(console())
            .params(options())
            .params([group(), nodes(), choice("type", &["group"]).optional()]),
        get("/cluster/ha/groups/{group}", read)
            .perm(audit())
            .params([group()]),
        put("/cluster/ha/groups/{group}", update)
            .perm(console())
            .params(options())
            .params([
                group(),
                nodes().optional(),
                text("delete").format(format::CONFIG_ID_LIST).optional(),
                crate::schema::digest(),
            ]),
        delete("/cluster/ha/groups/{group}", remove)
            .perm(console())
            .params([group()]),
    ]
}

fn options() -> [Param; 3] {
    [
        flag("restricted"),
        flag("nofailback"),
        text("comment").max_len(4096).optional(),
    ]
}

/// Nodes with optional priorities.
pub(super) fn nodes() -> Param {
    text("nodes").format(Format::List(|item| {
        let (node, priority) = item.split_once(':').unwrap_or((item, "0"));
        let named = !node.is_empty() && node.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if named && priority.parse::<u32>().is_ok() {
            Ok(())
        } else {
            Err(format!("value '{item}' does not look like a valid HA node"))
        }
    }))
}

fn migrated(call: &Call<'_>, what: &str) -> Result<(), Failure> {
    if call.world.release.is_9() {
        Err(Failure::die(format!(
            "cannot {what} group: ha groups have been migrated to rules"
        )))
    } else {
        Ok(())
    }
}

fn show(id: &str, group: &Group, digest: &str) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("group".into(), json!(id));
    map.insert("type".into(), json!("group"));
    map.insert("nodes".into(), json!(group.nodes));
    map.insert("restricted".into(), json!(u8::from(group.restricted)));
    map.insert("nofailback".into(), json!(u8::from(group.nofailback)));
    map.insert("digest".into(), json!(digest));
    if let Some(comment) = &group.comment {
        map.insert("comment".into(), json!(comment));
    }
    map
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    migrated(call, "index")?;
    let digest = digest::of(&call.world.ha.groups);
    let rows = call.world.ha.groups.iter();
    Ok(rows
        .map(|(id, it)| Value::Object(show(id, it, &digest)))
        .collect::<Value>()
        .into())
}

fn missing(id: &str) -> Failure {
    Failure::die(format!("no such ha group '{id}'"))
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    migrated(call, "read")?;
    let id = call.params.text("group");
    let groups = &call.world.ha.groups;
    let group = groups.get(id).ok_or_else(|| missing(id))?;
    Ok(Value::Object(show(id, group, &digest::of(groups))).into())
}

fn apply(group: &mut Group, params: &Params) {
    if let Some(nodes) = params.get("nodes") {
        nodes.clone_into(&mut group.nodes);
    }
    if let Some(value) = params.bool("restricted") {
        group.restricted = value;
    }
    if let Some(value) = params.bool("nofailback") {
        group.nofailback = value;
    }
    if let Some(comment) = params.get("comment") {
        group.comment = Some(comment.to_owned());
    }
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    migrated(call, "create")?;
    let id = call.params.text("group").to_owned();
    if call.world.ha.groups.contains_key(&id) {
        let text = format!("create ha group failed: ha group ID '{id}' already defined");
        return Err(Failure::die(text));
    }
    let mut group = Group::default();
    apply(&mut group, &call.params);
    call.world.ha.groups.insert(id, group);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    migrated(call, "update")?;
    let params = call.params.clone();
    let id = params.text("group");
    digest::check(params.get("digest"), &call.world.ha.groups)?;
    let group = call
        .world
        .ha
        .groups
        .get_mut(id)
        .ok_or_else(|| missing(id))?;
    apply(group, &params);
    for name in params.list("delete") {
        match name {
            "comment" => group.comment = None,
            "restricted" => group.restricted = false,
            "nofailback" => group.nofailback = false,
            _ => {}
        }
    }
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    migrated(call, "delete")?;
    let id = call.params.text("group").to_owned();
    let used = call
        .world
        .ha
        .resources
        .iter()
        .find(|(_, it)| it.group.as_ref() == Some(&id));
    if let Some((sid, _)) = used {
        return Err(Failure::die(format!("ha group is used by service '{sid}'")));
    }
    call.world
        .ha
        .groups
        .remove(&id)
        .ok_or_else(|| missing(&id))?;
    Ok(Reply::null())
}
