//! `/access/acl`: the access control list.

use serde_json::{Value, json};

use crate::access::{Caller, Subject};
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::params::Params;
use crate::permission::Perm;
use crate::route::{Route, get, put};
use crate::schema::{flag, format, text};
use crate::world::World;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/access/acl", list).perm(Perm::User),
        put("/access/acl", update)
            .perm(Perm::Rule(may_modify))
            .params([
                text("path"),
                text("roles").format(format::ROLE_LIST),
                text("users").format(format::USER_LIST).optional(),
                text("groups").format(format::GROUP_LIST).optional(),
                text("tokens").format(format::TOKEN_LIST).optional(),
                flag("propagate"),
                flag("delete"),
            ]),
    ]
}

/// Who may change entries on a path: with `Permissions.Modify`, or with the privilege to
/// allocate what the path is about.
fn may_modify(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    let path = params.text("path");
    let path = if path.is_empty() { "/" } else { path };
    let by_area = [
        ("/storage", "Datastore.Allocate"),
        ("/vms", "VM.Allocate"),
        ("/pool", "Pool.Allocate"),
    ];
    let mut names = vec!["Permissions.Modify"];
    names.extend(
        by_area
            .iter()
            .filter(|(area, _)| path.starts_with(area))
            .map(|(_, name)| *name),
    );
    if names
        .iter()
        .any(|name| world.access.may(caller, path, name))
    {
        Ok(())
    } else {
        Err(Failure::denied(format!("{path}, {}", names.join("|"))))
    }
}

/// Whether PVE knows things of this path.
pub(super) fn is_valid_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    let parts: Vec<_> = rest.split('/').collect();
    if rest.is_empty() {
        return true;
    }
    if parts.iter().any(|part| part.is_empty()) {
        return false;
    }
    let known: &[&str] = match parts[0] {
        "access" => &["groups", "realm"],
        "mapping" => &["dir", "hwrng", "pci", "usb", "notifications"],
        "sdn" => &["zones", "fabrics", "controllers", "dns", "ipams"],
        _ => &[],
    };
    match parts[..] {
        ["access" | "nodes" | "pool" | "sdn" | "storage" | "vms" | "mapping"]
        | ["nodes" | "storage", _]
        | ["pool", ..]
        | ["sdn", "zones", _, _, ..] => parts.len() <= 5,
        ["vms", id] => id.len() <= 9 && id.parse::<u32>().is_ok_and(|id| id >= 100),
        [_, area] | [_, area, _] => known.contains(&area),
        _ => false,
    }
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let mut rows = Vec::new();
    for (path, entries) in &call.world.access.acl {
        if !call.may(path, "Permissions.Modify") && !call.may("/access", "Sys.Audit") {
            continue;
        }
        for ((subject, name, role), propagate) in entries {
            rows.push(json!({
                "path": path, "type": subject, "ugid": name, "roleid": role,
                "propagate": u8::from(*propagate),
            }));
        }
    }
    Ok(Value::Array(rows).into())
}

/// The path with a slash in front and none doubled or at the end.
fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let params = call.params.clone();
    let given = ["users", "groups", "tokens"]
        .into_iter()
        .any(|name| params.has(name));
    if !given {
        let text = "either 'users', 'groups' or 'tokens' is required.";
        let errors = ["users", "groups", "tokens"].map(|name| (name.to_owned(), text.to_owned()));
        return Err(Failure::params(errors.into()));
    }
    let path = normal(params.text("path"));
    let path = path.as_str();
    // An entry of something that is gone can still be removed.
    if !is_valid_path(path) && !params.flag("delete") {
        let text = format!("invalid ACL path '{}'", params.text("path"));
        return Err(Failure::param("path", text));
    }
    let failed = |text: String| Failure::die(format!("ACL update failed: {text}"));
    let remove = params.flag("delete");
    let propagate = params.bool("propagate").unwrap_or(true);
    let access = &mut call.world.access;
    let mut changes = Vec::new();
    for role in params.list("roles") {
        if access.role(role).is_none() {
            return Err(failed(format!("role '{role}' does not exist")));
        }
        for name in params.list("users") {
            if !access.users.contains_key(name) {
                return Err(failed(format!("user '{name}' does not exist")));
            }
            changes.push((Subject::User, name.to_owned(), role.to_owned()));
        }
        for name in params.list("groups") {
            if !access.groups.contains_key(name) {
                return Err(failed(format!("group '{name}' does not exist")));
            }
            changes.push((Subject::Group, name.to_owned(), role.to_owned()));
        }
        for name in params.list("tokens") {
            let (user, token) = name.split_once('!').unwrap_or((name, ""));
            let exists = access
                .users
                .get(user)
                .is_some_and(|it| it.tokens.contains_key(token));
            if !exists {
                return Err(failed(format!("no such token '{token}' for user '{user}'")));
            }
            changes.push((Subject::Token, name.to_owned(), role.to_owned()));
        }
    }
    let entries = access.acl.entry(path.to_owned()).or_default();
    for change in changes {
        if remove {
            entries.remove(&change);
        } else {
            entries.insert(change, propagate);
        }
    }
    if entries.is_empty() {
        access.acl.remove(path);
    }
    Ok(Reply::null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_paths_can_carry_rights() {
        for path in [
            "/",
            "/vms",
            "/vms/100",
            "/pool/a/b",
            "/sdn/zones/localnetwork/vmbr0/5",
        ] {
            assert!(is_valid_path(path), "{path}");
        }
        for path in [
            "",
            "/bogus",
            "/vms/5",
            "/vms/abc",
            "/nodes/a/b",
            "/storage//x",
        ] {
            assert!(!is_valid_path(path), "{path}");
        }
    }
}
