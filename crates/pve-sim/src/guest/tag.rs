//! Who may give and take which tags: `user-tag-access` and `registered-tags` of the datacenter.

use std::collections::BTreeSet;

use super::Guest;
use crate::call::Call;
use crate::failure::Failure;
use crate::params::{Params, split_list};

/// The tags somebody without rights on the whole datacenter may use.
enum Allowed {
    Any,
    These(BTreeSet<String>),
}

fn set(text: &str) -> BTreeSet<String> {
    split_list(text).into_iter().map(str::to_owned).collect()
}

fn allowed(call: &Call<'_>) -> Allowed {
    let access = call.world.options.get("user-tag-access");
    let access = access.map_or("", String::as_str);
    let value = |key: &str| {
        let mut parts = access.split(',').filter_map(|part| part.split_once('='));
        parts.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    match value("user-allow") {
        None | Some("free") => Allowed::Any,
        Some("none") => Allowed::These(BTreeSet::new()),
        Some(how) => {
            let mut tags = set(value("user-allow-list").unwrap_or_default());
            if how == "existing" {
                let seen = |guest: &&Guest| call.may(&format!("/vms/{}", guest.vmid), "VM.Audit");
                let guests = call.world.guests.iter().filter(seen);
                tags.extend(guests.flat_map(|guest| set(guest.tags().unwrap_or_default())));
            }
            Allowed::These(tags)
        }
    }
}

/// The right to change the tags of a guest to what `params` say.
pub(crate) fn check(call: &Call<'_>, vmid: u32, params: &Params) -> Result<(), Failure> {
    let removed = params.list("delete").contains(&"tags");
    if !(params.has("tags") || removed) || call.may("/", "Sys.Modify") {
        return Ok(());
    }
    let guest = call.world.guests.get(vmid);
    let before = set(guest.and_then(Guest::tags).unwrap_or_default());
    let after = set(params.get("tags").filter(|_| !removed).unwrap_or_default());
    let registered = call.world.options.get("registered-tags");
    let registered = set(registered.map_or("", String::as_str));
    let allowed = allowed(call);
    let free = |tag: &String| match &allowed {
        Allowed::Any => true,
        Allowed::These(tags) => tags.contains(tag),
    };
    let mut changed = before.symmetric_difference(&after);
    match changed.find(|tag| registered.contains(*tag) || !free(tag)) {
        None => Ok(()),
        Some(tag) => Err(Failure::denied(format!(
            "/, Sys.Modify for modifying tag '{tag}'"
        ))),
    }
}
