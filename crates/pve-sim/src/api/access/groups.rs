//! `/access/groups`.

use serde_json::{Map, Value, json};

use crate::access::{Group, Subject};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all, any};
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, format, text};

pub(super) fn routes() -> Vec<Route> {
    let allocate = || all("/access/groups", &["Group.Allocate"]);
    vec![
        get("/access/groups", list).perm(Perm::User),
        post("/access/groups", create)
            .perm(allocate())
            .params(params()),
        get("/access/groups/{groupid}", read)
            .perm(any("/access/groups", &["Sys.Audit", "Group.Allocate"])),
        put("/access/groups/{groupid}", update)
            .perm(allocate())
            .params(params()),
        delete("/access/groups/{groupid}", remove).perm(allocate()),
    ]
}

fn params() -> [Param; 2] {
    [
        text("groupid").format(format::GROUP),
        text("comment").optional(),
    ]
}

/// The members of a group, joined.
fn members(call: &Call<'_>, group: &str) -> Vec<String> {
    let users = call.world.access.users.iter();
    users
        .filter(|(_, user)| user.groups.contains(group))
        .map(|(id, _)| id.clone())
        .collect()
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let mut rows = Vec::new();
    for (id, group) in &call.world.access.groups {
        let path = format!("/access/groups/{id}");
        let seen = ["User.Modify", "Sys.Audit", "Group.Allocate"];
        if !seen.iter().any(|name| call.may(&path, name)) {
            continue;
        }
        let mut map = Map::new();
        map.insert("groupid".into(), json!(id));
        map.insert("users".into(), json!(members(call, id).join(",")));
        if let Some(comment) = &group.comment {
            map.insert("comment".into(), json!(comment));
        }
        rows.push(Value::Object(map));
    }
    Ok(Value::Array(rows).into())
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("groupid").to_owned();
    let comment = call.params.get("comment").map(str::to_owned);
    if call.world.access.groups.contains_key(&id) {
        let text = format!("create group failed: group '{id}' already exists");
        return Err(Failure::die(text));
    }
    call.world.access.groups.insert(id, Group { comment });
    Ok(Reply::null())
}

fn missing_in(act: &str, id: &str) -> Failure {
    Failure::die(format!("{act} group failed: group '{id}' does not exist"))
}

fn missing(id: &str) -> Failure {
    Failure::die(format!("group '{id}' does not exist"))
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("groupid");
    let group = call
        .world
        .access
        .groups
        .get(id)
        .ok_or_else(|| missing(id))?;
    let mut map = Map::new();
    map.insert("members".into(), json!(members(call, id)));
    if let Some(comment) = &group.comment {
        map.insert("comment".into(), json!(comment));
    }
    Ok(Value::Object(map).into())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("groupid");
    let group = call
        .world
        .access
        .groups
        .get_mut(id)
        .ok_or_else(|| missing_in("update", id))?;
    if let Some(comment) = call.params.get("comment") {
        group.comment = Some(comment.to_owned());
    }
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("groupid").to_owned();
    let access = &mut call.world.access;
    access
        .groups
        .remove(&id)
        .ok_or_else(|| missing_in("delete", &id))?;
    for user in access.users.values_mut() {
        user.groups.remove(&id);
    }
    for entries in access.acl.values_mut() {
        entries.retain(|(subject, name, _), _| !(*subject == Subject::Group && *name == id));
    }
    Ok(Reply::null())
}
