//! `/access`: users, groups, roles, tokens, realms and the access control list.

mod acl;
mod domains;
mod groups;
mod permissions;
mod roles;
mod tfa;
mod ticket;
mod tokens;
mod users;

use serde_json::{Value, json};

use crate::access::Caller;
use crate::failure::Failure;
use crate::params::Params;
use crate::permission::Perm;
use crate::release::Release;
use crate::route::{Route, get};
use crate::world::World;

pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut routes = vec![
        get("/access", |_| {
            let dirs = [
                "users",
                "groups",
                "roles",
                "acl",
                "domains",
                "openid",
                "tfa",
                "ticket",
                "permissions",
                "password",
            ];
            Ok(dirs
                .map(|dir| json!({ "subdir": dir }))
                .into_iter()
                .collect::<Value>()
                .into())
        })
        .perm(Perm::User),
    ];
    routes.extend(ticket::routes());
    routes.extend(tfa::routes());
    routes.extend(users::routes());
    routes.extend(tokens::routes(release));
    routes.extend(groups::routes());
    routes.extend(roles::routes());
    routes.extend(acl::routes());
    routes.extend(domains::routes(release));
    routes.extend(permissions::routes());
    routes
}

/// What is about to happen to the user of the parameter `userid`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// It is shown, or something of its own changes.
    See,
    /// It is made, in the groups of the parameter `groups`.
    Create,
    /// It changes, perhaps into those groups.
    Update,
}

/// Whether `caller` may do so: with one of the privileges on all groups, or on every group the
/// user is put into and on one it is in.
fn user_group(
    world: &World,
    caller: &Caller,
    params: &Params,
    any: &[&str],
    act: Act,
) -> Result<(), Failure> {
    let id = params.text("userid");
    let user = world.access.users.get(id);
    if act != Act::Create && user.is_none() {
        return Err(users::no_user(id));
    }
    let may = |path: &str| any.iter().any(|name| world.access.may(caller, path, name));
    if may("/access/groups") {
        return Ok(());
    }
    let on = |group: &str| may(&format!("/access/groups/{group}"));
    let denied = |path: &str| Err(Failure::denied(format!("{path}, {}", any.join("|"))));
    if act != Act::See {
        let into = params.list("groups");
        if into.is_empty() {
            return denied("/access/groups");
        }
        if let Some(group) = into.iter().find(|group| !on(group)) {
            return denied(&format!("/access/groups/{group}"));
        }
    }
    if act == Act::Create || user.is_some_and(|user| user.groups.iter().any(|group| on(group))) {
        Ok(())
    } else {
        Err(Failure::denied_all())
    }
}

/// The realm of the parameter `userid` must be open to `caller`.
fn user_realm(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    let realm = params
        .text("userid")
        .rsplit_once('@')
        .map_or("", |(_, realm)| realm);
    world.access.need(
        caller,
        &format!("/access/realm/{realm}"),
        &["Realm.AllocateUser"],
    )
}

fn modify_user(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    user_group(world, caller, params, &["User.Modify"], Act::See)
}

fn update_user(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    user_group(world, caller, params, &["User.Modify"], Act::Update)
}

fn audit_user(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    let any = &["User.Modify", "Sys.Audit"];
    user_group(world, caller, params, any, Act::See)
}

fn create_user(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    user_realm(world, caller, params)?;
    user_group(world, caller, params, &["User.Modify"], Act::Create)
}

fn remove_user(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    user_realm(world, caller, params)?;
    modify_user(world, caller, params)
}
