//! `/access/ticket`: how a user gets in.

use serde_json::{Value, json};

use crate::access::ticket::{Entry, Login};
use crate::access::{Access, Caller};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::Perm;
use crate::route::{Route, get, post};
use crate::schema::{flag, format, text};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/access/ticket", |_| Ok(Reply::null())).perm(Perm::World),
        post("/access/ticket", create)
            .perm(Perm::World)
            .without_quorum()
            .no_token()
            .params([
                text("username").max_len(64),
                text("password"),
                text("realm").format(format::REALM).max_len(32).optional(),
                text("otp").optional(),
                text("path").max_len(64).requires("privs").optional(),
                text("privs")
                    .format(format::PRIVILEGE_LIST)
                    .max_len(64)
                    .requires("path")
                    .optional(),
                text("tfa-challenge").optional(),
                flag("new-format"),
            ]),
    ]
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = &call.params;
    let mut user = params.text("username").to_owned();
    if let Some(realm) = params.get("realm") {
        user = format!("{user}@{realm}");
    }
    let now = call.world.now();
    let login = Login {
        user: &user,
        password: params.text("password"),
        otp: params.get("otp"),
        challenge: params.get("tfa-challenge"),
    };
    let entry = call.world.access.login(&login, now)?;
    let (world, caller) = (&*call.world, Caller::user_id(&user));
    let access = &world.access;
    let mut data = json!({
        "username": user,
        "CSRFPreventionToken": access.key.csrf(&user, now),
    });
    match entry {
        Entry::Ticket => {
            data["ticket"] = json!(access.key.ticket(&user, now));
            data["cap"] = capabilities(access, &caller);
        }
        Entry::Challenge(challenge) => {
            data["ticket"] = json!(challenge);
            data["NeedTFA"] = json!(1);
        }
    }
    if world.nodes.len() > 1 && access.may(&caller, "/", "Sys.Audit") {
        data["clustername"] = json!(world.name);
    }
    Ok(data.into())
}

/// What the user may do, as the web interface wants to know it.
fn capabilities(access: &Access, caller: &Caller) -> Value {
    let areas: [(&str, &str, &[&str]); 7] = [
        ("dc", "/", &["Sys.", "SDN."]),
        ("vms", "/vms", &["VM.", "Permissions."]),
        ("storage", "/storage", &["Datastore.", "Permissions."]),
        ("access", "/access", &["User.", "Group.", "Permissions."]),
        ("nodes", "/nodes", &["Sys.", "Permissions."]),
        ("sdn", "/sdn", &["SDN.", "Permissions."]),
        ("mapping", "/mapping", &["Mapping.", "Permissions."]),
    ];
    let mut caps = serde_json::Map::new();
    for (area, path, prefixes) in areas {
        let mut rights = access.rights(caller, path);
        rights.retain(|name, _| prefixes.iter().any(|prefix| name.starts_with(prefix)));
        let rights: Value = rights.into_keys().map(|name| (name, json!(1))).collect();
        caps.insert(area.to_owned(), rights);
    }
    Value::Object(caps)
}
