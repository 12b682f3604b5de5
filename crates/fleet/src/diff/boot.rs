//! Boot orders.

use std::collections::BTreeMap;

use pve::GuestConfig;

use super::{Changes, beyond, equal, is_disc, is_drive, set};
use crate::{
    desired::{INSTALLER_SLOT, SEED_SLOT},
    guest::source::root_disk,
};

/// Brings the boot order to what is wanted.
pub(super) fn boot(changes: &mut Changes, wanted: &str, have: &GuestConfig) {
    let found = have.get("boot");
    let fits = |found| equal(wanted, found) || boots_alike(wanted, found, have);
    if !found.is_some_and(fits) {
        set(changes, "boot", wanted.to_owned(), found);
    }
}

/// Whether a boot order is the wanted one but for CD drives at its end: PVE appends a drive to it whenever a disc is put in or
/// taken out, and nothing is ever started from there.
pub(crate) fn boots_alike(wanted: &str, found: &str, have: &GuestConfig) -> bool {
    let (Some(wanted), Some(found)) = (wanted.strip_prefix("order="), found.strip_prefix("order="))
    else {
        return false;
    };
    let mut found = found.split(';');
    let begins = wanted.split(';').all(|device| found.next() == Some(device));
    let ours = |device: &str| [SEED_SLOT, INSTALLER_SLOT].contains(&device);
    let is_disc = |device: &str| have.get(device).is_some_and(is_disc);
    begins && found.all(|device| ours(device) || is_disc(device))
}

/// The boot order once these keys are set: PVE appends every CD drive among them that was not in it. `None` if it stays.
pub(crate) fn appended(have: &GuestConfig, set: &BTreeMap<String, String>) -> Option<String> {
    let order = have.get("boot")?.strip_prefix("order=")?;
    let before: Vec<&str> = order.split(';').filter(|it| !it.is_empty()).collect();
    let is_new = |key: &str, value: &str| is_drive(key) && is_disc(value) && !before.contains(&key);
    let new = set.iter().filter(|(key, value)| is_new(key, value));
    let new: Vec<&str> = new.map(|(key, _)| key.as_str()).collect();
    if before.is_empty() || new.is_empty() {
        return None;
    }
    let all = [before, new].concat();
    Some(format!("order={}", all.join(";")))
}

/// Whether the guest would boot from this drive.
pub(super) fn boots_from(changes: &Changes, have: &GuestConfig, key: &str) -> bool {
    let boot = changes.set.get("boot").map(String::as_str);
    let boot = boot.or_else(|| have.get("boot")).unwrap_or_default();
    match boot.strip_prefix("order=") {
        Some(order) => is_drive(key) && order.split(';').any(|device| device == key),
        // Who was made before there were orders.
        None => root_disk(have).is_some_and(|root| root.slot.to_string() == key),
    }
}

/// PVE refuses a boot order that names what is not there: it is left until that is back.
pub(super) fn bootable(changes: &mut Changes, have: &GuestConfig) {
    let Some(boot) = changes.set.get("boot") else {
        return;
    };
    let there = |device: &str| {
        let stays = have.get(device).is_some() && !changes.delete.contains(device);
        stays || changes.set.contains_key(device)
    };
    let order = boot.strip_prefix("order=").unwrap_or_default();
    let Some(missing) = order.split(';').find(|device| !there(device)) else {
        return;
    };
    let why = format!("the boot order waits for {missing}, which is not there");
    let boot = boot.clone();
    changes.set.remove("boot");
    changes.drift.retain(|drift| drift.key != "boot");
    beyond(changes, "boot", Some(&boot), have.get("boot"), why);
}
