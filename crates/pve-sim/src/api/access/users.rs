//! `/access/users` and passwords.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{audit_user, create_user, remove_user, update_user};
use crate::access::{Subject, User};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::Perm;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, flag, format, int, text};

/// Options of a user that are only kept and shown.
const DETAILS: [&str; 5] = ["email", "firstname", "lastname", "comment", "keys"];

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/access/users", list)
            .perm(Perm::User)
            .protected()
            .params([flag("enabled"), flag("full")]),
        post("/access/users", create)
            .perm(Perm::Rule(create_user))
            .params(options())
            .params([
                user_param(),
                text("password").min_len(8).max_len(64).optional(),
            ]),
        get("/access/users/{userid}", read)
            .perm(Perm::Rule(audit_user))
            .params([user_param()]),
        put("/access/users/{userid}", update)
            .perm(Perm::Rule(update_user))
            .params(options())
            .params([user_param(), flag("append").requires("groups")]),
        delete("/access/users/{userid}", remove)
            .perm(Perm::Rule(remove_user))
            .params([user_param()]),
        put("/access/password", password)
            .perm(Perm::Or(vec![
                Perm::SelfParam("userid"),
                Perm::Rule(remove_user),
            ]))
            .no_token()
            .params([
                user_param(),
                text("password").min_len(8).max_len(64),
                text("confirmation-password")
                    .min_len(5)
                    .max_len(64)
                    .optional(),
            ]),
    ]
}

/// The user in the path or body.
pub(super) fn user_param() -> Param {
    text("userid").format(format::USER).max_len(64)
}

fn options() -> [Param; 8] {
    [
        flag("enable"),
        int("expire").min(0).optional(),
        text("groups").format(format::GROUP_LIST).optional(),
        text("email").format(format::EMAIL).max_len(254).optional(),
        text("firstname").max_len(1024).optional(),
        text("lastname").max_len(1024).optional(),
        text("comment").max_len(2048).optional(),
        text("keys")
            .max_len(4096)
            .pattern(|it| {
                it.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "!=".contains(c))
            })
            .optional(),
    ]
}

/// The user of the parameter `userid`.
pub(super) fn user<'a>(call: &'a Call<'_>) -> Result<&'a User, Failure> {
    let id = call.params.text("userid");
    call.world.access.users.get(id).ok_or_else(|| no_user(id))
}

pub(super) fn no_user(id: &str) -> Failure {
    Failure::die(format!("no such user ('{id}')"))
}

fn fields(user: &User) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("enable".into(), json!(u8::from(user.enable)));
    map.insert("expire".into(), json!(user.expire));
    for (name, value) in &user.details {
        map.insert(name.clone(), json!(value));
    }
    map
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let full = call.params.flag("full");
    let enabled = call.params.bool("enabled");
    let all = call.may("/access/groups", "User.Modify") || call.may("/access/groups", "Sys.Audit");
    let mut rows = Vec::new();
    for (id, user) in &call.world.access.users {
        let seen = all || id == call.caller.user();
        if !seen || enabled.is_some_and(|wanted| wanted != user.enable) {
            continue;
        }
        let mut map = fields(user);
        map.insert("userid".into(), json!(id));
        let realm = id.rsplit_once('@').map_or("", |(_, realm)| realm);
        let kind = call
            .world
            .access
            .domains
            .get(realm)
            .map(|domain| domain.kind.clone());
        map.insert("realm-type".into(), json!(kind));
        if full {
            map.insert(
                "groups".into(),
                json!(
                    Vec::from_iter(&user.groups)
                        .iter()
                        .map(|it| it.as_str())
                        .collect::<Vec<_>>()
                        .join(",")
                ),
            );
            let tokens = user.tokens.iter().map(|(name, token)| {
                let mut map = token.fields();
                map.insert("tokenid".into(), json!(name));
                Value::Object(map)
            });
            let tokens = (!user.tokens.is_empty()).then(|| tokens.collect::<Value>());
            map.insert("tokens".into(), json!(tokens));
        }
        rows.push(Value::Object(map));
    }
    Ok(Value::Array(rows).into())
}

fn groups(call: &Call<'_>) -> Result<Option<BTreeSet<String>>, Failure> {
    if !call.params.has("groups") {
        return Ok(None);
    }
    let names: BTreeSet<String> = call
        .params
        .list("groups")
        .into_iter()
        .map(str::to_owned)
        .collect();
    match names
        .iter()
        .find(|name| !call.world.access.groups.contains_key(*name))
    {
        Some(name) => Err(Failure::die(format!("no such group '{name}'"))),
        None => Ok(Some(names)),
    }
}

fn apply(call: &Call<'_>, user: &mut User) -> Result<(), Failure> {
    if let Some(names) = groups(call)? {
        if !call.params.flag("append") {
            user.groups.clear();
        }
        user.groups.extend(names);
    }
    if let Some(enable) = call.params.bool("enable") {
        user.enable = enable;
    }
    if let Some(expire) = call.params.uint("expire") {
        user.expire = expire;
    }
    for name in DETAILS {
        if let Some(value) = call.params.get(name) {
            user.details.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(())
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("userid").to_owned();
    let failed = |text: String| Failure::die(format!("create user failed: {text}"));
    if call.world.access.users.contains_key(&id) {
        return Err(failed(format!("user '{id}' already exists")));
    }
    let realm = id.rsplit_once('@').map_or("", |(_, realm)| realm);
    // A realm is only asked for when it has to keep a password.
    if call.params.has("password") && !call.world.access.domains.contains_key(realm) {
        return Err(failed(format!("auth domain '{realm}' does not exist")));
    }
    let mut user = User {
        enable: true,
        ..User::default()
    };
    apply(call, &mut user).map_err(|failure| failed(failure.message))?;
    call.world.access.users.insert(id.clone(), user);
    if let Some(password) = call.params.get("password") {
        call.world.access.set_password(&id, password);
    }
    Ok(Reply::null())
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let user = user(call)?;
    let mut map = fields(user);
    map.insert("groups".into(), json!(user.groups));
    let tokens: Map<String, Value> = user
        .tokens
        .iter()
        .map(|(name, token)| (name.clone(), Value::Object(token.fields())))
        .collect();
    if !tokens.is_empty() {
        map.insert("tokens".into(), Value::Object(tokens));
    }
    Ok(Value::Object(map).into())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let failed = |failure: Failure| {
        let text = format!("update user failed: {}", failure.message);
        Failure {
            message: text,
            ..failure
        }
    };
    let mut changed = user(call).map_err(failed)?.clone();
    apply(call, &mut changed).map_err(failed)?;
    let id = call.params.text("userid").to_owned();
    call.world.access.users.insert(id, changed);
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("userid").to_owned();
    // Nobody looks whether the user is there, and root comes back with the next reading.
    if id == "root@pam" {
        return Ok(Reply::null());
    }
    let access = &mut call.world.access;
    access.users.remove(&id);
    let tokens = format!("{id}!");
    for entries in access.acl.values_mut() {
        entries.retain(|(subject, name, _), _| {
            !(*subject == Subject::User && *name == id || name.starts_with(&tokens))
        });
    }
    Ok(Reply::null())
}

fn password(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("userid").to_owned();
    user(call)?;
    if id == "root@pam" && !call.caller.is_root() {
        return Err(Failure::denied_all());
    }
    let new = call.params.text("password").to_owned();
    call.world.access.set_password(&id, &new);
    Ok(Reply::null())
}
