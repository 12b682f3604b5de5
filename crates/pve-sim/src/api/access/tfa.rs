//! `/access/tfa`: second factors.

use rand::RngExt as _;
use serde_json::{Map, Value, json};

use super::users::{no_user, user, user_param};
use super::{audit_user, modify_user};
use crate::access::tfa::{Factor, Factors, Keys, Kind, RECOVERY_KEYS, Totp};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::params::Params;
use crate::permission::Perm;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, choice, flag, text};

const KINDS: &[&str] = &["totp", "u2f", "webauthn", "recovery", "yubico"];

pub(super) fn routes() -> Vec<Route> {
    let see = || Perm::Or(vec![Perm::SelfParam("userid"), Perm::Rule(audit_user)]);
    let change = || Perm::Or(vec![Perm::SelfParam("userid"), Perm::Rule(modify_user)]);
    vec![
        get("/access/tfa", list).perm(Perm::User).protected(),
        get("/access/tfa/{userid}", of_user)
            .perm(see())
            .protected()
            .params([user_param()]),
        post("/access/tfa/{userid}", create)
            .perm(change())
            .no_token()
            .params([
                user_param(),
                choice("type", KINDS),
                text("description").max_len(255).optional(),
                text("totp").optional(),
                text("value").optional(),
                text("challenge").optional(),
                password(),
            ]),
        get("/access/tfa/{userid}/{id}", read)
            .perm(see())
            .protected()
            .params([user_param()]),
        put("/access/tfa/{userid}/{id}", update)
            .perm(change())
            .no_token()
            .params([
                user_param(),
                text("description").max_len(255).optional(),
                flag("enable"),
                password(),
            ]),
        delete("/access/tfa/{userid}/{id}", remove)
            .perm(change())
            .no_token()
            .params([user_param(), password()]),
        get("/access/users/{userid}/tfa", kinds)
            .perm(see())
            .protected()
            .params([user_param(), flag("multiple")]),
        put("/access/users/{userid}/unlock-tfa", |call| {
            let id = call.params.text("userid").to_owned();
            let unlocked = factors(call, &id)?.unlock();
            Ok(json!(u8::from(unlocked)).into())
        })
        .perm(Perm::Rule(modify_user))
        .params([user_param()]),
    ]
}

/// The password of whoever changes a second factor.
fn password() -> Param {
    text("password").min_len(5).max_len(64).optional()
}

fn factors<'a>(call: &'a mut Call<'_>, id: &str) -> Result<&'a mut Factors, Failure> {
    let user = call.world.access.users.get_mut(id);
    Ok(&mut user.ok_or_else(|| no_user(id))?.tfa)
}

fn no_entry(id: &str) -> Failure {
    Failure::die(format!("no such TFA entry '{id}'"))
}

/// Only root changes root's factors, and everybody else gives their password once more.
fn confirmed(call: &Call<'_>) -> Result<(), Failure> {
    if call.caller.is_root() {
        return Ok(());
    }
    if call.params.text("userid") == "root@pam" {
        return Err(Failure::denied_all());
    }
    let Some(password) = call.params.get("password") else {
        let text = "password is required to modify TFA data";
        return Err(Failure::param("password", text));
    };
    let access = &call.world.access;
    access.check_password(call.caller.user(), password, call.world.now())
}

fn show(id: &str, factor: &Factor) -> Value {
    json!({
        "id": id, "type": factor.kind.name(), "description": factor.description,
        "created": factor.created, "enable": u8::from(factor.enable),
    })
}

fn rows(factors: &Factors) -> Value {
    let entries = factors.entries.iter();
    entries.map(|(id, factor)| show(id, factor)).collect()
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let mut shown = Vec::new();
    for (id, user) in &world.access.users {
        let mut params = Params::new();
        params.set("userid", id);
        let all = audit_user(world, call.caller, &params);
        if user.tfa.entries.is_empty() || id != call.caller.user() && all.is_err() {
            continue;
        }
        let mut row = Map::new();
        row.insert("userid".into(), json!(id));
        row.insert("entries".into(), rows(&user.tfa));
        if user.tfa.locked() {
            row.insert("totp-locked".into(), json!(1));
        }
        shown.push(Value::Object(row));
    }
    Ok(Value::Array(shown).into())
}

fn of_user(call: &mut Call<'_>) -> Result<Reply, Failure> {
    Ok(rows(&user(call)?.tfa).into())
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("id");
    let factor = user(call)?.tfa.entries.get(id);
    Ok(show(id, factor.ok_or_else(|| no_entry(id))?).into())
}

fn kinds(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let entries = &user(call)?.tfa.entries;
    let has = |name: &str| entries.values().any(|factor| factor.kind.name() == name);
    if call.params.flag("multiple") {
        let types = ["totp", "recovery"].into_iter().filter(|name| has(name));
        let types: Vec<&str> = types.collect();
        return Ok(json!({ "realm": null, "user": null, "types": types }).into());
    }
    let of_user = has("totp").then_some("oath");
    Ok(json!({ "realm": null, "user": of_user }).into())
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    confirmed(call)?;
    let params = call.params.clone();
    let (userid, now) = (params.text("userid").to_owned(), call.world.now());
    let description = params.text("description").to_owned();
    let (id, kind, answer) = match params.text("type") {
        "totp" => {
            let id = call.world.uuid();
            let answer = json!({ "id": id });
            (id, Kind::Totp(verified(&params, now)?), answer)
        }
        "recovery" => {
            let keys: Vec<String> = (0..RECOVERY_KEYS).map(|_| recovery_key(call)).collect();
            let answer = json!({ "id": "recovery", "recovery": keys });
            ("recovery".to_owned(), Kind::Recovery(Keys(keys)), answer)
        }
        // These need a service or a device that a simulation has not.
        other => {
            let text = format!("no {other} configuration available");
            return Err(Failure::die(text));
        }
    };
    let factors = factors(call, &userid)?;
    if factors.entries.contains_key(&id) {
        let text = "user already has recovery keys";
        return Err(Failure::die(text));
    }
    let factor = Factor {
        description,
        created: now,
        enable: true,
        kind,
    };
    factors.entries.insert(id, factor);
    Ok(answer.into())
}

/// The secret of a new factor, once its owner has shown that it makes the right codes.
fn verified(params: &Params, now: u64) -> Result<Totp, Failure> {
    let Some(uri) = params.get("totp") else {
        return Err(Failure::die("missing 'totp' parameter"));
    };
    let totp = Totp::from_uri(uri).ok_or_else(|| Failure::die("failed to parse totp uri"))?;
    let Some(code) = params.get("value") else {
        return Err(Failure::die("missing 'value' parameter"));
    };
    // The code that proves it may still be used to log in.
    if totp.clone().accept(code, now) {
        Ok(totp)
    } else {
        Err(Failure::die("failed to verify TOTP challenge"))
    }
}

fn recovery_key(call: &mut Call<'_>) -> String {
    let rng = &mut call.world.rng;
    let part = |bits: u16| format!("{bits:04x}");
    let parts: [u16; 4] = rng.random();
    parts.map(part).join("-")
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    confirmed(call)?;
    let params = call.params.clone();
    let id = params.text("id");
    let factors = factors(call, params.text("userid"))?;
    let factor = factors.entries.get_mut(id).ok_or_else(|| no_entry(id))?;
    if let Some(description) = params.get("description") {
        description.clone_into(&mut factor.description);
    }
    if let Some(enable) = params.bool("enable") {
        factor.enable = enable;
    }
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    confirmed(call)?;
    let params = call.params.clone();
    let id = params.text("id");
    let factors = factors(call, params.text("userid"))?;
    factors.entries.remove(id).ok_or_else(|| no_entry(id))?;
    Ok(Reply::null())
}
