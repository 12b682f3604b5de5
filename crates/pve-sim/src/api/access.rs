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

/// Whether `caller` may manage the user named by the parameter `userid`: with the privilege on
/// one of the groups the user is in, or on all groups.
fn user_group(
    world: &World,
    caller: &Caller,
    params: &Params,
    any: &[&str],
) -> Result<(), Failure> {
    let may = |path: &str| any.iter().any(|name| world.access.may(caller, path, name));
    let groups = world
        .access
        .users
        .get(params.text("userid"))
        .map(|user| user.groups.clone());
    let on_group = groups
        .unwrap_or_default()
        .iter()
        .any(|group| may(&format!("/access/groups/{group}")));
    if may("/access/groups") || on_group {
        Ok(())
    } else {
        Err(Failure::denied(format!(
            "/access/groups, {}",
            any.join("|")
        )))
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
    user_group(world, caller, params, &["User.Modify"])
}

fn audit_user(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    user_group(world, caller, params, &["User.Modify", "Sys.Audit"])
}

fn allocate_user(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    user_realm(world, caller, params)?;
    user_group(world, caller, params, &["User.Modify"])
}
