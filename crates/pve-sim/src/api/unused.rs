//! What a fresh PVE says about features nobody has set up yet: certificates by ACME, letters about
//! events, processor models of one's own, realms that synchronise, routed fabrics.
//!
//! Only their reading calls are here. They show what every installation begins with; there is no
//! way to change it, so nothing else can be true.

use serde_json::{Value, json};

use crate::api::index;
use crate::call::{Call, Reply};
use crate::digest;
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, get};
use crate::schema::{choice, flag, format, text};

fn nothing(_: &mut Call<'_>) -> Result<Reply, Failure> {
    Ok(Value::Array(Vec::new()).into())
}

pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut routes = acme();
    routes.extend(notifications());
    routes.extend([
        get("/access/openid", |_| {
            Ok(index("subdir", &["auth-url", "login"]))
        })
        .perm(Perm::User),
        get("/cluster/jobs/realm-sync", nothing).perm(all("/", &["Sys.Audit"])),
    ]);
    if release.is_9() {
        routes.extend(processors());
        routes.extend(fabrics());
    }
    routes
}

/// Where certificates can be had, and by which proof of a name.
fn acme() -> Vec<Route> {
    let account = || text("name").format(format::CONFIG_ID);
    vec![
        get("/cluster/acme", |_| {
            let names = [
                "account",
                "challenge-schema",
                "directories",
                "meta",
                "plugins",
                "tos",
            ];
            Ok(index("name", &names))
        })
        .perm(Perm::User),
        get("/cluster/acme/account", nothing)
            .perm(Perm::User)
            .protected(),
        get("/cluster/acme/account/{name}", |call| {
            let name = call.params.text("name");
            let text = format!("ACME account config file '{name}' does not exist.");
            Err(Failure::param("name", text))
        })
        .protected()
        .params([account()]),
        get("/cluster/acme/directories", |_| {
            let at = |name: &str, host: &str| {
                json!({ "name": name, "url": format!("https://{host}.api.letsencrypt.org/directory") })
            };
            Ok(json!([
                at("Let's Encrypt V2", "acme-v02"),
                at("Let's Encrypt V2 Staging", "acme-staging-v02"),
            ])
            .into())
        })
        .perm(Perm::User),
        get("/cluster/acme/plugins", |call| {
            let wanted = call.params.get("type");
            let mut rows = vec![plugin()];
            rows.retain(|row| wanted.is_none_or(|kind| row["type"] == kind));
            Ok(Value::Array(rows).into())
        })
        .perm(all("/", &["Sys.Modify"]))
        .protected()
        .params([choice("type", &["dns", "standalone"]).optional()]),
        get("/cluster/acme/plugins/{id}", |call| {
            let id = call.params.text("id");
            if id == "standalone" {
                return Ok(plugin().into());
            }
            Err(Failure::die(format!("ACME plugin '{id}' not defined")))
        })
        .perm(all("/", &["Sys.Modify"]))
        .protected()
        .params([text("id").format(format::CONFIG_ID)]),
        get("/nodes/{node}/certificates/acme", |_| {
            Ok(index("name", &["certificate"]))
        })
        .perm(Perm::User),
    ]
}

/// The one proof that needs nothing but the node itself.
fn plugin() -> Value {
    json!({ "plugin": "standalone", "type": "standalone", "digest": digest::sha1(b"") })
}

const ENDPOINTS: &[&str] = &["gotify", "sendmail", "smtp", "webhook"];

/// Every event goes to root, by the node's own mail.
fn notifications() -> Vec<Route> {
    let on = |privilege: &'static [&'static str]| all("/mapping/notifications", privilege);
    let see = || Perm::Or(vec![on(&["Mapping.Modify"]), on(&["Mapping.Audit"])]);
    let or_use = || {
        Perm::Or(vec![
            on(&["Mapping.Modify"]),
            on(&["Mapping.Audit"]),
            on(&["Mapping.Use"]),
        ])
    };
    let name = || text("name").format(format::CONFIG_ID);
    vec![
        get("/cluster/notifications", |_| {
            let names = [
                "endpoints",
                "matcher-field-values",
                "matcher-fields",
                "matchers",
                "targets",
            ];
            Ok(index("name", &names))
        })
        .perm(Perm::User),
        get("/cluster/notifications/endpoints", |_| {
            Ok(index("name", ENDPOINTS))
        })
        .perm(Perm::User),
        get("/cluster/notifications/endpoints/gotify", nothing)
            .perm(on(&["Mapping.Audit"]))
            .protected(),
        get("/cluster/notifications/endpoints/smtp", nothing)
            .perm(see())
            .protected(),
        get("/cluster/notifications/endpoints/webhook", nothing)
            .perm(on(&["Mapping.Audit"]))
            .protected(),
        get("/cluster/notifications/endpoints/sendmail", |_| {
            Ok(json!([mail_to_root()]).into())
        })
        .perm(see())
        .protected(),
        get("/cluster/notifications/endpoints/sendmail/{name}", |call| {
            find(call, mail_to_root(), "endpoint")
        })
        .perm(see())
        .protected()
        .params([name()]),
        get("/cluster/notifications/targets", |_| {
            let mail = mail_to_root();
            Ok(json!([{
                "name": mail["name"], "type": "sendmail",
                "origin": mail["origin"], "comment": mail["comment"],
            }])
            .into())
        })
        .perm(or_use())
        .protected(),
        get("/cluster/notifications/matchers", |_| {
            Ok(json!([default_matcher()]).into())
        })
        .perm(or_use())
        .protected(),
        get("/cluster/notifications/matchers/{name}", |call| {
            find(call, default_matcher(), "matcher")
        })
        .perm(see())
        .protected()
        .params([name()]),
        get("/cluster/notifications/matcher-fields", |_| {
            Ok(index("name", &["type", "hostname", "job-id"]))
        })
        .perm(see()),
        get("/cluster/notifications/matcher-field-values", |call| {
            let kinds = [
                "fencing",
                "package-updates",
                "replication",
                "system-mail",
                "vzdump",
            ];
            let of = |field: &str, value: &str| json!({ "field": field, "value": value });
            let kinds = kinds.iter().map(|kind| of("type", kind));
            let nodes = call.world.nodes.keys().map(|node| of("hostname", node));
            Ok(kinds.chain(nodes).collect::<Value>().into())
        })
        .perm(see())
        .protected(),
    ]
}

/// One of what there is one of.
fn find(call: &Call<'_>, only: Value, word: &str) -> Result<Reply, Failure> {
    let name = call.params.text("name");
    if only["name"] == name {
        return Ok(only.into());
    }
    // Letters are the one place where PVE does say 404.
    Err(Failure::die(format!("{word} '{name}' not found")).with_status(404))
}

fn mail_to_root() -> Value {
    json!({
        "name": "mail-to-root", "origin": "builtin", "mailto-user": ["root@pam"],
        "comment": "Send mails to root@pam's email address",
    })
}

fn default_matcher() -> Value {
    json!({
        "name": "default-matcher", "origin": "builtin", "mode": "all", "target": ["mail-to-root"],
        "comment": "Route all notifications to mail-to-root",
    })
}

/// Processor models of one's own.
fn processors() -> Vec<Route> {
    let model = "/cluster/qemu/custom-cpu-models/{cputype}";
    let on = |privilege: &'static [&'static str]| all("/mapping/cpu/{cputype}", privilege);
    vec![
        get("/cluster/qemu", |_| {
            Ok(index("name", &["cpu-flags", "custom-cpu-models"]))
        })
        .perm(Perm::User),
        get("/cluster/qemu/custom-cpu-models", nothing).perm(Perm::User),
        get(model, |call| {
            let name = call.params.text("cputype");
            let name = name.strip_prefix("custom-").unwrap_or(name);
            Err(Failure::die(format!("Custom cputype '{name}' not found")))
        })
        .perm(Perm::Or(vec![
            on(&["Mapping.Audit"]),
            on(&["Mapping.Use"]),
            on(&["Mapping.Modify"]),
        ])),
    ]
}

/// Networks routed between the nodes.
fn fabrics() -> Vec<Route> {
    let versions = || ["pending", "running"].map(flag);
    vec![
        get("/cluster/sdn/fabrics", |_| {
            Ok(index("subdir", &["fabric", "node", "all"]))
        })
        .perm(all("/sdn/fabrics", &["SDN.Audit"])),
        get("/cluster/sdn/fabrics/all", |_| {
            Ok(json!({ "fabrics": [], "nodes": [] }).into())
        })
        .perm(Perm::User)
        .params(versions()),
        get("/cluster/sdn/fabrics/fabric", nothing)
            .perm(Perm::User)
            .params(versions()),
        get("/cluster/sdn/fabrics/node", nothing)
            .perm(Perm::User)
            .params(versions()),
        get("/cluster/sdn/prefix-lists", nothing)
            .perm(Perm::User)
            .params(versions())
            .params([flag("verbose")]),
        get("/cluster/sdn/route-maps", nothing)
            .perm(Perm::User)
            .params([flag("running")]),
        get("/cluster/sdn/route-maps/entries", nothing)
            .perm(Perm::User)
            .params(versions()),
    ]
}
