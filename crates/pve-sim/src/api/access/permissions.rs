//! `/access/permissions`: what somebody may do.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::access::{Access, Caller};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::Perm;
use crate::route::{Route, get};
use crate::schema::{format, text};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/access/permissions", permissions)
            .perm(Perm::User)
            .params([
                text("userid").pattern(is_user_or_token).optional(),
                text("path").optional(),
            ]),
    ]
}

fn is_user_or_token(value: &str) -> bool {
    match value.split_once('!') {
        None => format::is_user(value),
        Some((user, token)) => format::is_user(user) && format::is_token_name(token),
    }
}

fn permissions(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let access = &call.world.access;
    let mut who = call.caller.clone();
    if let Some(id) = call
        .params
        .get("userid")
        .filter(|id| *id != call.caller.id())
    {
        let own_token = !call.caller.is_token() && id.split('!').next() == Some(call.caller.user());
        if !own_token {
            access.need(call.caller, "/access", &["Sys.Audit"])?;
        }
        who = match id.split_once('!') {
            None => Caller::user_id(id),
            Some((user, token)) => Caller::token(user, token),
        };
    }
    if !access.users.contains_key(who.user()) {
        return Err(Failure::die(format!("no such user ('{}')", who.user())));
    }
    let mut map = Map::new();
    if let Some(path) = call.params.get("path") {
        map.insert(path.to_owned(), rights(access, &who, path));
    } else {
        for path in paths(access, &who) {
            let rights = rights(access, &who, &path);
            if rights.as_object().is_some_and(|rights| !rights.is_empty()) {
                map.insert(path, rights);
            }
        }
    }
    Ok(Value::Object(map).into())
}

fn rights(access: &Access, who: &Caller, path: &str) -> Value {
    let rights = access.rights(who, path).into_iter();
    Value::Object(
        rights
            .map(|(name, flag)| (name, json!(u8::from(flag))))
            .collect(),
    )
}

/// The paths worth telling: those with entries, pool members, and for root the tops.
fn paths(access: &Access, who: &Caller) -> BTreeSet<String> {
    let mut paths: BTreeSet<String> = access.acl.keys().cloned().collect();
    if who.user() == "root@pam" {
        let tops = [
            "/",
            "/access",
            "/access/groups",
            "/nodes",
            "/pool",
            "/sdn",
            "/storage",
            "/vms",
        ];
        paths.extend(tops.map(str::to_owned));
    }
    for pool in access.pools.values() {
        paths.extend(pool.guests.iter().map(|vmid| format!("/vms/{vmid}")));
        paths.extend(
            pool.storages
                .iter()
                .map(|storage| format!("/storage/{storage}")),
        );
    }
    paths
}
