//! Volumes: what is missing, what is elsewhere, what has another size.
//!
//! A place that has had its volume never gets a new one: what was on the old one is worth more than a guest that looks
//! complete. The old one comes back if it is among the guest's unused ones, and is missed otherwise.

use std::collections::BTreeSet;

use pve::GuestConfig;

use super::{Changes, beyond, drift, set};
use crate::{
    Size,
    desired::{DiskWant, Make, StateWant},
    prop::Prop,
};

/// Storages round sizes up to whole extents: so much is no difference.
const EXTENT: Size = Size::mib(4);

/// The item of a drive that names its volume.
pub(crate) fn volume_item(key: &str) -> &'static str {
    if key == "rootfs" || key.starts_with("mp") {
        "volume"
    } else {
        "file"
    }
}

/// The volume of a place.
pub(crate) fn volume_of(key: &str, config: &GuestConfig) -> Option<String> {
    let there = Prop::parse(key, config.get(key)?);
    there.get(volume_item(key)).map(str::to_owned)
}

/// Whether PVE has given a volume this name: what is asked for, or not known yet, has another shape.
pub(crate) fn is_named(volume: &str) -> bool {
    volume
        .split_once(':')
        .is_some_and(|(_, name)| name.contains(|c: char| c.is_ascii_alphabetic()))
}

pub(super) fn disk(
    changes: &mut Changes,
    key: &str,
    want: &DiskWant,
    have: &GuestConfig,
    kept: Option<&Option<String>>,
    dropped: Option<&BTreeSet<String>>,
) {
    let Some(text) = have.get(key) else {
        let made = missing(changes, key, &want.make, &want.options, have, kept);
        // An imported disk has its source's size and is grown in a call of its own.
        if let Some(size) = want.size.filter(|_| made.contains("import-from=")) {
            changes.grow.insert(key.to_owned(), size);
        }
        return;
    };
    let there = Prop::parse(key, text);
    let file = volume_item(key);
    let on = there.get(file).and_then(|volume| volume.split_once(':'));
    if let (Some(wanted), Some((on, _))) = (&want.storage, on)
        && wanted.as_str() != on
    {
        changes.moves.insert(key.to_owned(), wanted.clone());
        drift(changes, key, Some(wanted.as_str()), Some(on));
    }
    as_made(changes, key, want, there.get(file).unwrap_or_default());
    let left = there.without(dropped);
    if !want.options.satisfied_by(key, &there) || left != there {
        let mut merged = want.options.over(&left);
        // The volume comes first, and its size is PVE's to say.
        let mut value = Prop::default();
        value.set(file, there.get(file).unwrap_or_default());
        merged.remove(file);
        set(changes, key, value.over(&merged).print(key), Some(text));
    }
    let size = there.get("size").and_then(Size::from_pve);
    if let (Some(wanted), Some(size)) = (want.size, size) {
        if wanted > size {
            changes.grow.insert(key.to_owned(), wanted);
            drift(
                changes,
                key,
                Some(&wanted.to_string()),
                Some(&size.to_string()),
            );
        } else if wanted + EXTENT < size {
            changes.shrink.push((key.to_owned(), size, wanted));
        }
    }
}

/// What a disk was made with and keeps: its bus, its format, and how it takes space.
fn as_made(changes: &mut Changes, key: &str, want: &DiskWant, volume: &str) {
    let bus = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let format = match volume.rsplit_once('.') {
        Some((_, format @ ("qcow2" | "vmdk"))) => format,
        _ => "raw",
    };
    let buses = want.bus.map(|wanted| ("bus", wanted.as_str(), bus));
    let formats = want.format.as_deref();
    let formats = formats.map(|wanted| ("format", wanted, format));
    for (what, wanted, has) in buses.into_iter().chain(formats) {
        if wanted != has {
            let why = format!(
                "{key} was made with {what} {has} and keeps it, though {wanted} is declared: declare {has}, or a new disk \
                 under another name"
            );
            beyond(changes, key, Some(wanted), Some(has), why);
        }
    }
    let grows = format != "raw" || volume.contains("/base-") || volume.contains(":base-");
    if want.thick && want.format.is_none() && grows {
        let why = format!(
            "{key} ({volume}) takes space as it is written and goes on so, though thick is declared: declare thin, or a new disk \
             under another name"
        );
        beyond(changes, key, Some("thick"), Some(volume), why);
    }
}

pub(super) fn state(
    changes: &mut Changes,
    key: &str,
    want: &StateWant,
    have: &GuestConfig,
    kept: Option<&Option<String>>,
) {
    let Some(text) = have.get(key) else {
        missing(changes, key, &want.make, &Prop::default(), have, kept);
        return;
    };
    let there = Prop::parse(key, text);
    let on = there.get("file").and_then(|volume| volume.split_once(':'));
    let elsewhere = match (&want.storage, on) {
        (Some(wanted), Some((on, _))) => wanted.as_str() != on,
        _ => false,
    };
    if elsewhere || !want.options.satisfied_by(key, &there) {
        let mut wanted = Prop::default();
        wanted.maybe("storage", want.storage.as_ref());
        let wanted = wanted.over(&want.options).print(key);
        let why = format!(
            "{key} was made as '{text}' and stays so, though {wanted} is declared: declare what it is, or make the guest anew"
        );
        beyond(changes, key, Some(&wanted), Some(text), why);
    }
}

/// A volume that is not where it shall be. Returns the value that makes a new one, if there never was one.
fn missing(
    changes: &mut Changes,
    key: &str,
    make: &Make,
    options: &Prop,
    have: &GuestConfig,
    kept: Option<&Option<String>>,
) -> String {
    let unused = |volume: &&String| {
        let mut unused = have.indexed("unused").into_iter();
        unused.any(|(_, text)| Prop::parse("unused0", text).get("file") == Some(volume.as_str()))
    };
    match (kept, make) {
        (Some(volume), _) => {
            if let Some(volume) = volume.as_ref().filter(unused) {
                let mut value = Prop::default();
                value.set(volume_item(key), volume);
                set(changes, key, value.over(options).print(key), None);
            } else {
                let what = volume.as_deref().unwrap_or("its volume");
                let why = format!(
                    "{key} has lost {what}, which is not among the guest's unused ones; no empty one is put in its \
                     place: attach it again, or declare a new disk under another name"
                );
                beyond(changes, key, Some(what), None, why);
                let lost = volume.iter().map(|it| (key.to_owned(), it.clone()));
                changes.lost.extend(lost);
            }
        }
        (None, Make::New(value)) => {
            changes.allocates = true;
            set(changes, key, value.clone(), None);
            return value.clone();
        }
        (None, Make::Brought) => {
            let why = format!("{key} should have come with the source and is not there: attach it");
            beyond(changes, key, Some("the source's disk"), None, why);
        }
        (None, Make::Nowhere(why)) => changes.nowhere.push(why.to_string()),
    }
    String::new()
}
