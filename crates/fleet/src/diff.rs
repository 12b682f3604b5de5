//! The difference between the configuration a guest shall have and the one it has.

mod boot;
mod cards;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use pve::GuestConfig;

use crate::{
    Owner, Size, StorageId,
    cloudinit::INSTANCE,
    desired::{Desired, SEED_SLOT, TPM, Want},
    facts::Drift,
    guest::seed::{NO_DISC, PREFIX},
    mark,
    prop::Prop,
};

pub(crate) use boot::{appended, boots_alike};
pub(crate) use cards::copied_card;
pub(crate) use volumes::{is_named, volume_item, volume_of};

/// What must change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Changes {
    /// Keys to set.
    pub(crate) set: BTreeMap<String, String>,
    /// Keys to delete.
    pub(crate) delete: BTreeSet<String>,
    /// Places whose volume is taken out by the next start, which is not to happen, with what they have till then.
    pub(crate) revert: BTreeMap<String, String>,
    /// Disks to move to another storage, by slot.
    pub(crate) moves: BTreeMap<String, StorageId>,
    /// Disks to grow, by slot.
    pub(crate) grow: BTreeMap<String, Size>,
    /// A key that is set makes a volume, which takes PVE time.
    pub(crate) allocates: bool,
    /// What differs, for people.
    pub(crate) drift: Vec<Drift>,
    /// Disks that are larger than declared, which cannot be made smaller.
    pub(crate) shrink: Vec<(String, Size, Size)>,
    /// What differs and no call can mend, and what somebody could do about it.
    pub(crate) beyond: Vec<(Drift, String)>,
    /// Places whose volume is not there any more, with its name.
    pub(crate) lost: BTreeMap<String, String>,
    /// Why something that must be made cannot be made now.
    pub(crate) nowhere: Vec<String>,
}

impl Changes {
    /// Whether a call to the configuration is needed.
    pub(crate) fn configures(&self) -> bool {
        !self.set.is_empty() || !self.delete.is_empty() || !self.revert.is_empty()
    }

    /// Every key that a call to the configuration names.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        let set = self.set.keys().chain(&self.delete);
        set.chain(self.revert.keys())
    }

    /// Whether a volume that there is is named in them, or taken out of its place.
    pub(crate) fn names_volumes(&self) -> bool {
        let named = |(key, value): (&String, &String)| {
            let drive = GuestConfig::new().with(key, value);
            volume_of(key, &drive).is_some_and(|volume| is_named(&volume))
        };
        let set = self.set.iter().filter(|(key, _)| holds_volume(key));
        set.into_iter().any(named) || self.delete.iter().any(|key| holds_volume(key))
    }

    /// Leaves keys for later.
    pub(crate) fn hold(&mut self, keys: &[String]) {
        self.set.retain(|key, _| !keys.contains(key));
        self.delete.retain(|key| !keys.contains(key));
    }

    /// Leaves places as they are whose volume the next start would take out.
    pub(crate) fn keep(&mut self, places: BTreeMap<String, String>) {
        for (key, value) in places {
            // Setting it keeps it as well.
            if !self.set.contains_key(&key) {
                drift(self, &key, Some(&value), None);
                self.revert.insert(key, value);
            }
        }
    }

    /// Takes note of a disk that is larger than declared and stays so.
    pub(crate) fn larger(&mut self, slot: &str, has: Size, wanted: Size, why: String) {
        let (wanted, has) = (wanted.to_string(), has.to_string());
        beyond(self, slot, Some(&wanted), Some(&has), why);
    }

    /// What differs and will whatever is done.
    pub(crate) fn lasting(&self) -> Vec<Drift> {
        let beyond = self.beyond.iter();
        beyond.map(|(drift, _)| drift.clone()).collect()
    }

    /// Whether nothing must change.
    pub(crate) fn is_empty(&self) -> bool {
        !self.configures() && self.moves.is_empty() && self.grow.is_empty()
    }
}

/// Keys whose values are never shown.
pub(crate) fn is_secret(key: &str) -> bool {
    matches!(
        key,
        "cipassword" | "password" | "sshkeys" | "ssh-public-keys"
    )
}

/// Compares.
pub(crate) fn diff(want: &Desired, owner: &Owner, have: &GuestConfig) -> Changes {
    let mut changes = Changes::default();
    for (key, wish) in &want.keys {
        let dropped = want.dropped.get(key);
        match wish {
            Want::Disk(disk) => {
                volumes::disk(&mut changes, key, disk, have, want.kept.get(key), dropped);
            }
            Want::State(state) => {
                volumes::state(&mut changes, key, state, have, want.kept.get(key));
            }
            Want::Text(order) if key == "boot" => boot::boot(&mut changes, order, have),
            Want::Items(items) if key == "machine" => {
                let found = have.get(key);
                let items = pinned(items, found);
                if items.items().next().is_some() {
                    one(
                        &mut changes,
                        key,
                        &Want::Items(items),
                        owner,
                        found,
                        dropped,
                    );
                }
            }
            // PVE lets a guest have one such drive, wherever its source has it.
            Want::CloudInit(_) if has_cloudinit(have) => {}
            _ => one(&mut changes, key, wish, owner, have.get(key), dropped),
        }
    }
    for (key, dropped) in &want.dropped {
        if !want.keys.contains_key(key) {
            bereft(&mut changes, key, dropped, have.get(key));
        }
    }
    if let Some(volume) = &want.ejected
        && let Some(found) = have
            .get(SEED_SLOT)
            .filter(|found| found.starts_with(volume.as_str()))
    {
        set(&mut changes, SEED_SLOT, NO_DISC.to_owned(), Some(found));
    }
    if want.no_foreign_seed {
        for (key, found) in have.iter() {
            let said = want.keys.contains_key(key) || changes.set.contains_key(key);
            if is_drive(key) && is_seed(found) && !said {
                set(&mut changes, key, NO_DISC.to_owned(), Some(found));
            }
        }
    }
    let mut delete = want.absent.clone();
    if want.own_all_nics {
        let declared = |key: &str| want.keys.contains_key(key);
        delete.extend(
            have.indexed("net")
                .into_iter()
                .map(|(n, _)| format!("net{n}"))
                .filter(|key| !declared(key)),
        );
    }
    if want.no_foreign_cloudinit {
        for (key, value) in have.iter() {
            if is_cloudinit_drive(key, value) && !want.keys.contains_key(key) {
                delete.insert(key.to_owned());
            }
        }
    }
    for key in delete {
        if let Some(found) = have.get(&key)
            && !want.keys.contains_key(&key)
        {
            if boot::boots_from(&changes, have, &key) && !found.contains("media=cdrom") {
                let why = format!(
                    "{key} is no longer declared and stays, because the guest boots from it: declare it again, or another \
                     boot order"
                );
                beyond(&mut changes, &key, None, Some(found), why);
                continue;
            }
            if key == TPM {
                let why = format!(
                    "{key} is no longer declared and stays, because the guest may have locked its disks with what is in it: \
                     declare it again, or take it out by hand"
                );
                beyond(&mut changes, &key, None, Some(found), why);
                continue;
            }
            drift(&mut changes, &key, None, Some(found));
            changes.delete.insert(key);
        }
    }
    if want.keys.values().any(|wish| *wish == Want::Filtered) {
        unfiltered(&mut changes, want, have);
    }
    boot::bootable(&mut changes, have);
    changes
}

/// Reports the interfaces that the guest's firewall lets everything through, because nobody has said that it is for them.
fn unfiltered(changes: &mut Changes, want: &Desired, have: &GuestConfig) {
    for (number, card) in have.indexed("net") {
        let key = format!("net{number}");
        let is_ours = want.keys.contains_key(&key) || want.absent.contains(&key);
        let on = Prop::parse(&key, card).get("firewall") == Some("1");
        if !is_ours && !on {
            let why = format!(
                "the firewall filters nothing on {key}, whose own firewall is off: declare the interface under networks, or \
                 switch its firewall on by hand"
            );
            beyond(changes, &key, Some("firewall=1"), Some(card), why);
        }
    }
}

fn beyond(
    changes: &mut Changes,
    key: &str,
    declared: Option<&str>,
    found: Option<&str>,
    why: String,
) {
    drift(changes, key, declared, found);
    let last = changes.drift.last().cloned();
    changes.beyond.extend(last.map(|drift| (drift, why)));
}

/// Whether a drive holds a first-boot image of ours.
pub(crate) fn is_seed(value: &str) -> bool {
    value.contains("media=cdrom") && value.contains(&format!(":iso/{PREFIX}"))
}

fn is_drive(key: &str) -> bool {
    key.parse::<crate::intent::DiskSlot>().is_ok()
}

/// Whether a key stands for a volume or a drive, of which PVE takes none out of a guest that is protected.
pub(crate) fn holds_volume(key: &str) -> bool {
    let kind = key.trim_end_matches(|c: char| c.is_ascii_digit());
    is_drive(key) || ["efidisk", "mp", "tpmstate", "unused"].contains(&kind)
}

fn drift(changes: &mut Changes, key: &str, declared: Option<&str>, found: Option<&str>) {
    let shown = |text: &str| {
        if is_secret(key) {
            "(secret)".to_owned()
        } else {
            text.to_owned()
        }
    };
    changes.drift.push(Drift {
        key: key.to_owned(),
        declared: declared.map(shown),
        found: found.map(shown),
    });
}

fn set(changes: &mut Changes, key: &str, value: String, found: Option<&str>) {
    drift(changes, key, Some(&value), found);
    changes.set.insert(key.to_owned(), value);
}

/// Takes items out of a key of which nothing else is declared.
fn bereft(changes: &mut Changes, key: &str, items: &BTreeSet<String>, found: Option<&str>) {
    let there = Prop::parse(key, found.unwrap_or_default());
    let left = there.without(Some(items));
    if left == there {
        return;
    }
    if left.items().next().is_some() {
        set(changes, key, left.print(key), found);
    } else {
        drift(changes, key, None, found);
        changes.delete.insert(key.to_owned());
    }
}

fn words(found: Option<&str>) -> BTreeSet<String> {
    found
        .unwrap_or_default()
        .split([',', ';', ' '])
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

fn exactly(changes: &mut Changes, key: &str, wanted: &BTreeSet<String>, found: Option<&str>) {
    if &words(found) == wanted {
        return;
    }
    let list: Vec<&str> = wanted.iter().map(String::as_str).collect();
    if list.is_empty() {
        drift(changes, key, None, found);
        changes.delete.insert(key.to_owned());
    } else {
        let separator = if key == "tags" { ";" } else { "," };
        set(changes, key, list.join(separator), found);
    }
}

fn one(
    changes: &mut Changes,
    key: &str,
    wish: &Want,
    owner: &Owner,
    found: Option<&str>,
    dropped: Option<&BTreeSet<String>>,
) {
    match wish {
        Want::Text(value) => {
            if !found.is_some_and(|found| equal(value, found)) {
                set(changes, key, value.clone(), found);
            }
        }
        Want::Words(words) => exactly(changes, key, words, found),
        Want::Among(some) => {
            let all = words(found).union(some).cloned().collect();
            exactly(changes, key, &all, found);
        }
        Want::Description(text) => {
            let found_text = found.unwrap_or_default();
            let ours = mark::owner_of(found_text).as_ref() == Some(owner);
            let same = text
                .as_ref()
                .is_none_or(|text| mark::strip(text) == mark::strip(found_text));
            if !ours || !same {
                let text = text.clone().unwrap_or_else(|| mark::strip(found_text));
                set(changes, key, mark::describe(&text, owner), found);
            }
        }
        Want::Items(items) => {
            let there = Prop::parse(key, found.unwrap_or_default());
            let too_much = there.without(dropped);
            if !items.satisfied_by(key, &there) || found.is_none() || too_much != there {
                let merged = if key == "smbios1" {
                    smbios(items, &there)
                } else {
                    items.over(&too_much)
                };
                set(changes, key, merged.print(key), found);
            }
        }
        Want::Exactly(items) => {
            let there = Prop::parse(key, found.unwrap_or_default());
            let kept = there.without(dropped);
            let known = |name: &str| items.get(name).is_some() || cards::CARRIED.contains(&name);
            let only_known = kept.items().all(|(name, _)| known(name));
            if !items.satisfied_by(key, &kept) || !only_known || kept != there {
                let mut items = items.clone();
                for name in cards::CARRIED {
                    if items.get(name).is_none() {
                        items.maybe(name, kept.get(name));
                    }
                }
                set(changes, key, items.print(key), found);
            }
        }
        Want::Card { whole, said, mac } => match found {
            None => set(changes, key, whole.print(key), None),
            Some(text) => cards::card(changes, key, said.clone(), *mac, text),
        },
        Want::Exists(value) => {
            if found.is_none() {
                changes.allocates |= value.contains(':');
                set(changes, key, value.clone(), None);
            }
        }
        Want::Instead { of, value } => match found {
            Some(found) if found == value => {}
            Some(found) if found == *of => set(changes, key, value.clone(), Some(found)),
            other => {
                let why = format!(
                    "{key} is {}, and what is declared has an effect with {value} only; the guest may not boot with that, so declare \
                     it if it does",
                    other.unwrap_or("PVE's default")
                );
                beyond(changes, key, Some(value), other, why);
            }
        },
        Want::CloudInit(value) => {
            changes.allocates = true;
            set(changes, key, value.clone(), found);
        }
        // A volume is more than its key, and these are more than one.
        Want::Disk(_) | Want::State(_) | Want::Filtered => {}
    }
}

/// A machine with the type it has, where that is a version of the chipset that is wanted: PVE pins some guests to the version they
/// were made with, and they would see other hardware with another one.
fn pinned(items: &Prop, found: Option<&str>) -> Prop {
    let there = Prop::parse("machine", found.unwrap_or_default());
    let has = there.get("type");
    let starts = |chipset: &str| has.is_some_and(|has| has.starts_with(chipset));
    let is_version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    let fits = match items.get("type") {
        Some("q35") => has == Some("q35") || starts("pc-q35-"),
        Some("pc") => {
            let old = has.and_then(|has| has.strip_prefix("pc-"));
            has.is_none_or(|has| has == "pc") || starts("pc-i440fx-") || old.is_some_and(is_version)
        }
        _ => false,
    };
    let mut items = items.clone();
    match has {
        Some(has) if fits => items.set("type", has),
        None if fits => items.remove("type"),
        _ => {}
    }
    items
}

/// With `base64=1` every text of the string is encoded, also those we did not write.
fn smbios(items: &Prop, there: &Prop) -> Prop {
    let mut out = items.over(&Prop::default());
    let encode = items.get("base64") == Some("1") && there.get("base64") != Some("1");
    for (key, value) in there.items() {
        if out.get(key).is_some() {
            continue;
        }
        let value = if key == "serial" && is_instance(value) {
            // A copy is an instance of its own.
            let text = format!("{INSTANCE}{}", items.get("uuid").unwrap_or_default());
            base64::engine::general_purpose::STANDARD.encode(text)
        } else if encode && key != "uuid" {
            base64::engine::general_purpose::STANDARD.encode(value)
        } else {
            value.to_owned()
        };
        out.set(key, value);
    }
    out
}

/// Whether a serial number, as it is encoded, says which instance cloud-init is on.
fn is_instance(serial: &str) -> bool {
    let text = base64::engine::general_purpose::STANDARD.decode(serial);
    text.is_ok_and(|text| text.starts_with(INSTANCE.as_bytes()))
}

/// Whether a drive is a CD drive, and not the one of PVE's own cloud-init.
fn is_disc(value: &str) -> bool {
    value.contains("media=cdrom") && !is_cloudinit(value)
}

fn has_cloudinit(have: &GuestConfig) -> bool {
    have.iter()
        .any(|(key, value)| is_cloudinit_drive(key, value))
}

/// Whether a key stands for the drive of PVE's own cloud-init, and not only for a volume that was one.
pub(crate) fn is_cloudinit_drive(key: &str, value: &str) -> bool {
    is_drive(key) && is_cloudinit(value)
}

/// Whether a drive is the one of PVE's own cloud-init, made or asked for.
fn is_cloudinit(value: &str) -> bool {
    let volume = value.split(',').next().unwrap_or_default();
    let file = volume.rsplit([':', '/']).next().unwrap_or_default();
    let name = file.split('.').next().unwrap_or_default();
    name == "cloudinit" || name.ends_with("-cloudinit")
}

fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim_end(), b.trim_end());
    a == b || matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if (a - b).abs() < 1e-9)
}

#[cfg(test)]
mod tests;
