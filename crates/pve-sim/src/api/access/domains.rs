//! `/access/domains`: authentication realms.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::access::Domain;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all, any};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Format, Param, choice, digest, flag, format, int, property, text};

const TEXTS: &[(&str, usize)] = &[
    ("base_dn", 256),
    ("bind_dn", 256),
    ("client-id", 256),
    ("client-key", 256),
    ("comment", 4096),
    ("filter", 2048),
    ("group_dn", 256),
    ("group_filter", 2048),
    ("issuer-url", 256),
];
const FREE: &[&str] = &["capath", "cert", "certkey", "password", "scopes"];
const FLAGS: &[&str] = &[
    "autocreate",
    "case-sensitive",
    "check-connection",
    "default",
    "groups-autocreate",
    "groups-overwrite",
    "query-userinfo",
    "secure",
    "verify",
];

/// Everything a realm can be told, whatever its type.
fn declared(release: Release) -> Vec<Param> {
    let mut all: Vec<Param> = FREE.iter().map(|name| text(name).optional()).collect();
    all.extend(
        TEXTS
            .iter()
            .map(|(name, len)| text(name).max_len(*len).optional()),
    );
    all.extend(FLAGS.iter().map(|name| flag(name)));
    let dense = |value: &str| !value.is_empty() && !value.contains(char::is_whitespace);
    let claim = |value: &str| {
        let part = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        format::word(value, part, part)
    };
    let plain = |name| text(name).pattern(is_plain).optional();
    let address = |name| text(name).format(format::ADDRESS).max_len(256).optional();
    all.extend([
        plain("acr-values"),
        text("domain").max_len(256).pattern(dense).optional(),
        text("group_classes")
            .format(Format::List(attribute))
            .optional(),
        text("group_name_attr")
            .format(Format::One(attribute))
            .max_len(256)
            .optional(),
        text("groups-claim").max_len(256).pattern(claim).optional(),
        choice("mode", &["ldap", "ldaps", "ldap+starttls"]).optional(),
        int("port").min(1).max(65_535).optional(),
        text("prompt").pattern(dense).optional(),
        address("server1"),
        address("server2"),
        choice("sslversion", &["tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3"]).optional(),
        text("sync-defaults-options")
            .property(&sync_options())
            .optional(),
        text("sync_attributes").pattern(is_attributes).optional(),
        text("tfa").property(&tfa_options()).max_len(128).optional(),
        text("user_attr")
            .max_len(256)
            .pattern(|it| it.len() > 1 && !it.contains(char::is_whitespace))
            .optional(),
        text("user_classes")
            .format(Format::List(attribute))
            .optional(),
    ]);
    if release.is_9() {
        all.push(plain("audiences"));
    }
    all
}

fn is_plain(value: &str) -> bool {
    let bad = |c: char| c.is_ascii_control() || " <>#\"".contains(c);
    !value.contains(bad)
}

/// `email=mail,firstname=givenName`
fn is_attributes(value: &str) -> bool {
    value.split(',').all(|pair| {
        let pair = pair.trim_start().split_once('=');
        pair.is_some_and(|(key, value)| {
            let part = |c: char| c.is_alphanumeric() || c == '_';
            format::word(key, part, part) && !value.is_empty()
        })
    })
}

fn attribute(value: &str) -> Result<(), String> {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if format::word(value, |c| c.is_ascii_alphabetic(), rest) {
        Ok(())
    } else {
        Err(format!(
            "value '{value}' does not look like a simple ldap attribute name"
        ))
    }
}

fn sync_options() -> Arc<property::Format> {
    property::Format::new([
        choice("scope", &["users", "groups", "both"]).optional(),
        text("remove-vanished").optional(),
        flag("enable-new"),
        flag("full"),
        flag("purge"),
    ])
    .shared()
}

fn tfa_options() -> Arc<property::Format> {
    property::Format::new([
        choice("type", &["yubico", "oath"]),
        text("id").optional(),
        text("key").optional(),
        text("url").optional(),
        int("digits").min(6).max(8).optional(),
        int("step").min(10).optional(),
    ])
    .shared()
}

pub(super) fn routes(release: Release) -> Vec<Route> {
    let allocate = || all("/access/realm", &["Realm.Allocate"]);
    let realm = || text("realm").format(format::REALM).max_len(32);
    vec![
        get("/access/domains", list).perm(Perm::World),
        post("/access/domains", create)
            .perm(allocate())
            .params(declared(release))
            .params([
                realm(),
                choice("type", &["ad", "ldap", "openid", "pam", "pve"]),
                text("username-claim").optional(),
            ]),
        get("/access/domains/{realm}", read)
            .perm(any("/access/realm", &["Realm.Allocate", "Sys.Audit"]))
            .params([realm()]),
        put("/access/domains/{realm}", update)
            .perm(allocate())
            .params(declared(release))
            .params([
                realm(),
                text("delete")
                    .format(format::CONFIG_ID_LIST)
                    .max_len(4096)
                    .optional(),
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
