//! API tokens of users.

use serde_json::{Map, Value, json};

use super::modify_user;
use super::users::{no_user, user, user_param};
use crate::access::{Subject, Token};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::Perm;
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, flag, format, int, text};

pub(super) fn routes(release: Release) -> Vec<Route> {
    let own = || Perm::Or(vec![Perm::SelfParam("userid"), Perm::Rule(modify_user)]);
    let mut change = Vec::new();
    if release.is_9() {
        change.push(text("delete").format(format::CONFIG_ID_LIST).optional());
        change.push(flag("regenerate"));
    }
    vec![
        get("/access/users/{userid}/token", list)
            .perm(own())
            .params([user_param()]),
        get("/access/users/{userid}/token/{tokenid}", read)
            .perm(own())
            .params(ids()),
        post("/access/users/{userid}/token/{tokenid}", create)
            .perm(own())
            .params(ids())
            .params(options()),
        put("/access/users/{userid}/token/{tokenid}", update)
            .perm(own())
            .params(ids())
            .params(options())
            .params(change),
        delete("/access/users/{userid}/token/{tokenid}", remove)
            .perm(own())
            .params(ids()),
    ]
}

fn ids() -> [Param; 2] {
    [user_param(), text("tokenid").pattern(format::is_token_name)]
}

fn options() -> [Param; 3] {
    [
        text("comment").optional(),
        int("expire").min(0).optional(),
        flag("privsep"),
    ]
}

impl Token {
    /// The fields PVE shows of a token.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("expire".into(), json!(self.expire));
        map.insert("privsep".into(), json!(u8::from(self.privsep)));
        if let Some(comment) = &self.comment {
            map.insert("comment".into(), json!(comment));
        }
        map
    }
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rows = user(call)?.tokens.iter().map(|(name, token)| {
        let mut map = token.fields();
        map.insert("tokenid".into(), json!(name));
        Value::Object(map)
    });
    Ok(rows.collect::<Value>().into())
}

fn token<'a>(call: &'a mut Call<'_>) -> Result<&'a mut Token, Failure> {
    let id = call.params.text("userid");
    let user = call
        .world
        .access
        .users
        .get_mut(id)
        .ok_or_else(|| no_user(id))?;
    let name = call.params.text("tokenid");
    user.tokens
        .get_mut(name)
        .ok_or_else(|| Failure::die(format!("no such token '{name}' for user '{id}'")))
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let map = token(call)?.fields();
    Ok(Value::Object(map).into())
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("userid").to_owned();
    let name = call.params.text("tokenid").to_owned();
    if user(call)?.tokens.contains_key(&name) {
        return Err(Failure::param("tokenid", "Token already exists."));
    }
    let secret = call.world.uuid();
    let token = Token {
        secret: secret.clone(),
        privsep: call.params.bool("privsep").unwrap_or(true),
        expire: call.params.uint("expire").unwrap_or(0),
        comment: call.params.get("comment").map(str::to_owned),
    };
    // PVE echoes what it was given, as text.
    let mut info = Map::new();
    info.insert("privsep".into(), json!(u8::from(token.privsep).to_string()));
    for name in ["comment", "expire"] {
        if let Some(value) = call.params.get(name) {
            info.insert(name.into(), json!(value));
        }
    }
    if let Some(user) = call.world.access.users.get_mut(&id) {
        user.tokens.insert(name.clone(), token);
    }
    Ok(json!({ "full-tokenid": format!("{id}!{name}"), "value": secret, "info": info }).into())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let secret = params.flag("regenerate").then(|| call.world.uuid());
    let id = format!("{}!{}", params.text("userid"), params.text("tokenid"));
    let token = token(call)?;
    if let Some(privsep) = params.bool("privsep") {
        token.privsep = privsep;
    }
    if let Some(expire) = params.uint("expire") {
        token.expire = expire;
    }
    if let Some(comment) = params.get("comment") {
        token.comment = Some(comment.to_owned());
    }
    for name in params.list("delete") {
        match name {
            "comment" => token.comment = None,
            "expire" => token.expire = 0,
            other => {
                return Err(Failure::param(
                    "delete",
                    format!("unknown option '{other}'"),
                ));
            }
        }
    }
    let mut map = token.fields();
    for name in ["expire", "privsep", "comment"] {
        if let Some(value) = params.get(name) {
            map.insert(name.into(), json!(value));
        }
    }
    if let Some(secret) = secret {
        token.secret.clone_from(&secret);
        return Ok(json!({ "full-tokenid": id, "value": secret, "info": map }).into());
    }
    Ok(Value::Object(map).into())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    token(call)?;
    let (id, name) = (call.params.text("userid"), call.params.text("tokenid"));
    let full = format!("{id}!{name}");
    let access = &mut call.world.access;
    if let Some(user) = access.users.get_mut(id) {
        user.tokens.remove(name);
    }
    for entries in access.acl.values_mut() {
        entries.retain(|(subject, who, _), _| !(*subject == Subject::Token && *who == full));
    }
    Ok(Reply::null())
}
