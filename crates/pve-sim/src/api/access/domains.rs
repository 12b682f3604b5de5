//! `/access/domains`: authentication realms.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::access::Domain;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all, any};
use crate::route::{Route, delete, get, post, put};
use crate::schema::{choice, digest, flag, format, text};

pub(super) fn routes() -> Vec<Route> {
    let allocate = || all("/access/realm", &["Realm.Allocate"]);
    let realm = || text("realm").format(format::REALM).max_len(32);
    vec![
        get("/access/domains", list).perm(Perm::World),
        post("/access/domains", create)
            .perm(allocate())
            .open()
            .params([
                realm(),
                choice("type", &["ad", "ldap", "openid", "pam", "pve"]),
                text("comment").max_len(4096).optional(),
                flag("default"),
            ]),
        get("/access/domains/{realm}", read)
            .perm(any("/access/realm", &["Realm.Allocate", "Sys.Audit"]))
            .params([realm()]),
        put("/access/domains/{realm}", update)
            .perm(allocate())
            .open()
            .params([
                realm(),
                text("comment").max_len(4096).optional(),
                flag("default"),
                text("delete").format(format::CONFIG_ID_LIST).optional(),
                digest(),
            ]),
        delete("/access/domains/{realm}", remove)
            .perm(allocate())
            .params([realm()]),
    ]
}

fn missing(realm: &str) -> Failure {
    Failure::die(format!("domain '{realm}' does not exist"))
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rows = call.world.access.domains.iter().map(|(realm, domain)| {
        let mut map = Map::new();
        map.insert("realm".into(), json!(realm));
        map.insert("type".into(), json!(domain.kind));
        if let Some(comment) = domain.options.get("comment") {
            map.insert("comment".into(), json!(comment));
        }
        if domain
            .options
            .get("default")
            .is_some_and(|value| value == "1")
        {
            map.insert("default".into(), json!(1));
        }
        Value::Object(map)
    });
    Ok(rows.collect::<Value>().into())
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let realm = call.params.text("realm");
    let domain = call
        .world
        .access
        .domains
        .get(realm)
        .ok_or_else(|| missing(realm))?;
    let mut map: Map<String, Value> = domain
        .options
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    map.insert("type".into(), json!(domain.kind));
    map.insert("digest".into(), json!(crate::digest::of(&domain.options)));
    Ok(Value::Object(map).into())
}

fn options(call: &Call<'_>) -> BTreeMap<String, String> {
    let skip = ["realm", "type", "delete", "digest"];
    let given = call.params.iter().filter(|(name, _)| !skip.contains(name));
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let realm = call.params.text("realm").to_owned();
    let kind = call.params.text("type").to_owned();
    if call.world.access.domains.contains_key(&realm) {
        let text = format!("add auth server failed: domain '{realm}' already exists");
        return Err(Failure::die(text));
    }
    if kind == "pam" || kind == "pve" {
        let text = format!("add auth server failed: unable to create builtin type '{kind}'");
        return Err(Failure::die(text));
    }
    let domain = Domain {
        kind,
        options: options(call),
    };
    call.world.access.domains.insert(realm, domain);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let realm = call.params.text("realm").to_owned();
    let new = options(call);
    let gone: Vec<String> = call
        .params
        .list("delete")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let domain = call
        .world
        .access
        .domains
        .get_mut(&realm)
        .ok_or_else(|| missing(&realm))?;
    crate::digest::check(call.params.get("digest"), &domain.options)?;
    domain.options.extend(new);
    domain.options.retain(|name, _| !gone.contains(name));
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let realm = call.params.text("realm").to_owned();
    if realm == "pam" || realm == "pve" {
        let text = format!("delete auth server failed: unable to delete builtin domain '{realm}'");
        return Err(Failure::die(text));
    }
    call.world
        .access
        .domains
        .remove(&realm)
        .ok_or_else(|| missing(&realm))?;
    Ok(Reply::null())
}
