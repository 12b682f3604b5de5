//! `/access/roles`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::access::privilege;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, flag, format, text};

pub(super) fn routes() -> Vec<Route> {
    let modify = || all("/access", &["Sys.Modify"]);
    vec![
        get("/access/roles", list).perm(Perm::User),
        post("/access/roles", create)
            .perm(modify())
            .params(params()),
        get("/access/roles/{roleid}", read).perm(Perm::User),
        put("/access/roles/{roleid}", update)
            .perm(modify())
            .params(params())
            .params([flag("append").requires("privs")]),
        delete("/access/roles/{roleid}", remove).perm(modify()),
    ]
}

fn params() -> [Param; 2] {
    [
        text("roleid").format(format::ROLE),
        text("privs").format(format::PRIVILEGE_LIST).optional(),
    ]
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let release = call.world.release;
    let built_in = privilege::BUILT_IN.iter().map(|name| {
        let privileges: Vec<_> = privilege::role(name, release)
            .unwrap_or_default()
            .into_iter()
            .collect();
        json!({ "roleid": name, "privs": privileges.join(","), "special": 1 })
    });
    let own = call.world.access.roles.iter().map(|(name, privileges)| {
        let privileges: Vec<_> = privileges.iter().map(String::as_str).collect();
        json!({ "roleid": name, "privs": privileges.join(","), "special": 0 })
    });
    Ok(built_in.chain(own).collect::<Value>().into())
}

fn privileges(call: &Call<'_>) -> BTreeSet<String> {
    call.params
        .list("privs")
        .into_iter()
        .map(str::to_owned)
        .collect()
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("roleid").to_owned();
    if id.to_ascii_lowercase().starts_with("pve") {
        let text = "cannot use role ID starting with the (case-insensitive) 'PVE' namespace";
        return Err(Failure::param("roleid", text));
    }
    if call.world.access.role(&id).is_some() {
        return Err(Failure::die(format!(
            "create role failed: role '{id}' already exists"
        )));
    }
    let privileges = privileges(call);
    call.world.access.roles.insert(id, privileges);
    Ok(Reply::null())
}

fn missing_in(act: &str, id: &str) -> Failure {
    Failure::die(format!("{act} role failed: role '{id}' does not exist"))
}

fn missing(id: &str) -> Failure {
    Failure::die(format!("role '{id}' does not exist"))
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("roleid");
    let role = call.world.access.role(id).ok_or_else(|| missing(id))?;
    let map: Map<String, Value> = role.into_iter().map(|name| (name, json!(1))).collect();
    Ok(Value::Object(map).into())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("roleid").to_owned();
    if privilege::role(&id, call.world.release).is_some() {
        let text = format!("auto-generated role '{id}' cannot be modified");
        return Err(Failure::die(text));
    }
    let new = privileges(call);
    let append = call.params.flag("append");
    let role = call
        .world
        .access
        .roles
        .get_mut(&id)
        .ok_or_else(|| missing_in("update", &id))?;
    if !append {
        role.clear();
    }
    role.extend(new);
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("roleid").to_owned();
    if privilege::role(&id, call.world.release).is_some() {
        let text = format!("auto-generated role '{id}' cannot be deleted");
        return Err(Failure::die(text));
    }
    let access = &mut call.world.access;
    access
        .roles
        .remove(&id)
        .ok_or_else(|| missing_in("delete", &id))?;
    for entries in access.acl.values_mut() {
        entries.retain(|(_, _, role), _| *role != id);
    }
    Ok(Reply::null())
}
