//! Recognises Proxmox VE's texts.

use std::collections::BTreeMap;

use super::{Error, Object};
use crate::id::{NodeName, Vmid};

/// Parameters whose values must not come back in a text.
const SECRET: &[&str] = &[
    "password",
    "cipassword",
    "otp",
    "tfa-challenge",
    "secret",
    "key",
    "value",
];

pub(super) fn classify(
    status: Option<u16>,
    text: &str,
    mut errors: BTreeMap<String, String>,
) -> Error {
    let text = text.trim();
    for (key, value) in &mut errors {
        value.truncate(value.trim_end().len());
        if SECRET.contains(&key.as_str())
            && let Some((before, _)) = value.split_once('\'')
        {
            *value = before.trim_end().to_owned();
        }
    }
    match status {
        Some(401) => {
            return Error::Unauthenticated {
                text: text.to_owned(),
            };
        }
        Some(403) => return denied(text),
        Some(501) => {
            return Error::NotImplemented {
                text: text.to_owned(),
            };
        }
        _ => {}
    }
    if !errors.is_empty() {
        return parameters(text, errors);
    }
    recognise(text).unwrap_or_else(|| Error::Other {
        status,
        text: text.to_owned(),
    })
}

/// `Permission check failed (/vms/101, VM.Audit)`
fn denied(text: &str) -> Error {
    let mut path = None;
    let mut privilege = None;
    if let Some(inner) = between(text, "Permission check failed (", ")") {
        if let Some(pool) = between(inner, "pool '", "' does not exist") {
            return Error::NotFound {
                what: Object::Pool(pool.to_owned()),
                text: text.to_owned(),
            };
        }
        if inner.starts_with("user != root@pam") {
            return Error::RootOnly {
                option: None,
                text: text.to_owned(),
            };
        }
        if let Some((at, privs)) = inner.split_once(", ").filter(|(at, _)| at.starts_with('/')) {
            path = Some(at.to_owned());
            privilege = Some(privs.trim().to_owned());
        }
    }
    Error::Denied {
        path,
        privilege,
        text: text.to_owned(),
    }
}

/// Some of the handlers' own checks come as parameter errors, keyed by the parameter that names the object.
fn parameters(message: &str, errors: BTreeMap<String, String>) -> Error {
    if errors.values().any(|it| it.starts_with("hotplug problem")) {
        return Error::Hotplug { errors };
    }
    let mut reasons = errors.iter().filter_map(|(key, it)| not_taken(key, it));
    if let Some(error) = reasons.clone().find_map(recognise) {
        return error;
    }
    if reasons.next().is_some() {
        return Error::NotTaken { errors };
    }
    if let Some((key, text)) = errors.first_key_value().filter(|_| errors.len() == 1) {
        let owned = || text.clone();
        match key.as_str() {
            "upid" if text.contains("no such task") => {
                return Error::NotFound {
                    what: Object::Task,
                    text: owned(),
                };
            }
            "storage" if text.starts_with("No such storage") => {
                return Error::NotFound {
                    what: Object::Storage(String::new()),
                    text: owned(),
                };
            }
            "storage" if between(text, "storage '", "' does not exist").is_some() => {
                let storage = between(text, "storage '", "' does not exist")
                    .unwrap_or_default()
                    .to_owned();
                return Error::StorageMissing { storage };
            }
            _ if text.contains("Only root may use this option") => {
                return Error::RootOnly {
                    option: Some(key.clone()),
                    text: owned(),
                };
            }
            _ if text.contains("already exists") => {
                let vmid = between(text, "VM ", " already exists").and_then(|id| id.parse().ok());
                let what = match vmid {
                    Some(vmid) => Object::Guest {
                        vmid: Some(vmid),
                        node: None,
                    },
                    None => Object::Other(key.clone()),
                };
                return Error::AlreadyExists {
                    what,
                    text: owned(),
                };
            }
            _ => {}
        }
    }
    Error::Parameters {
        message: message.to_owned(),
        errors,
    }
}

/// Why a container did not take an option: `unable to hotplug mp0: ...` while it runs, `unable to apply pending change mp0 : ...`
/// while it is off.
fn not_taken<'a>(key: &str, text: &'a str) -> Option<&'a str> {
    let rest = ["unable to hotplug ", "unable to apply pending change "]
        .into_iter()
        .find_map(|act| text.strip_prefix(act))?;
    let why = rest.strip_prefix(key)?.trim_start().strip_prefix(':')?;
    Some(why.trim())
}

/// Recognises the text of a 500 or of a task's exit.
///
/// The order matters: an outer act (`unable to create VM 100 - ...`) carries an inner reason, and the reason decides.
fn recognise(text: &str) -> Option<Error> {
    let owned = || text.to_owned();
    let has = |part: &str| text.contains(part);

    // Locks and concurrent changes.
    for guest in ["VM is locked (", "CT is locked ("] {
        if let Some(by) = between(text, guest, ")") {
            return Some(Error::Locked { by: by.to_owned() });
        }
    }
    if has("checksum mismatch (file change") || has("detected modified configuration") {
        return Some(Error::DigestMismatch { text: owned() });
    }
    if has("no quorum") {
        return Some(Error::NoQuorum { text: owned() });
    }
    if has("can't lock file") || has("got lock request timeout") || has("unable to acquire lock") {
        return Some(Error::LockTimeout { text: owned() });
    }
    if has("received interrupt") || has("interrupted by signal") || text == "unexpected status" {
        return Some(Error::Interrupted { text: owned() });
    }

    // Rights that are checked inside of handlers.
    if let Some(option) = between(text, "only root can set '", "'") {
        return Some(Error::RootOnly {
            option: Some(option.to_owned()),
            text: owned(),
        });
    }
    if text.starts_with("Only root can pass arbitrary filesystem paths") {
        return Some(Error::RootOnly {
            option: None,
            text: owned(),
        });
    }
    if has("Permission check failed") {
        return Some(denied(text));
    }

    if let Some(error) = exists(text).or_else(|| missing(text)) {
        return Some(error);
    }
    state(text)
}

/// Something is in the way of creation.
fn exists(text: &str) -> Option<Error> {
    let owned = || text.to_owned();
    let exists = |what| {
        Some(Error::AlreadyExists {
            what,
            text: text.to_owned(),
        })
    };

    if text.contains("already exists on node '") {
        let node = between(text, "already exists on node '", "'")
            .and_then(|node| NodeName::new(node).ok());
        return exists(Object::Guest {
            vmid: vmid_in(text),
            node,
        });
    }
    if text.contains("config file already exists")
        || text.contains(".conf' failed: File exists")
        || text.ends_with(".conf - File exists")
    {
        return exists(Object::Guest {
            vmid: vmid_in(text),
            node: None,
        });
    }
    if let Some(name) = between(text, "disk image '", "' already exists") {
        return exists(Object::Volume(name.to_owned()));
    }
    if let Some(file) = between(text, "refusing to override existing file '", "'") {
        return exists(Object::Volume(file.to_owned()));
    }
    if let Some(name) = between(text, "snapshot name '", "' already used") {
        return exists(Object::Snapshot(name.to_owned()));
    }
    if let Some(name) = between(text, "pool '", "' already exists") {
        return exists(Object::Pool(name.to_owned()));
    }
    if let Some(name) = between(text, "storage ID '", "' already defined") {
        return exists(Object::Storage(name.to_owned()));
    }
    if let Some(name) = between(text, "resource ID '", "' already defined") {
        return exists(Object::Other(format!("HA resource '{name}'")));
    }
    if let Some(name) = between(text, "HA rule '", "' already defined") {
        return exists(Object::Other(format!("HA rule '{name}'")));
    }
    if text.contains("is already a pool member") || text.contains("belongs already to pool") {
        return exists(Object::Other("pool member".to_owned()));
    }
    if text.ends_with("already exists") {
        return Some(Error::AlreadyExists {
            what: Object::Other("object".to_owned()),
            text: owned(),
        });
    }
    None
}

/// Something that is needed is not there.
fn missing(text: &str) -> Option<Error> {
    let not_found = |what| {
        Some(Error::NotFound {
            what,
            text: text.to_owned(),
        })
    };

    if let Some(file) = between(text, "Configuration file '", "' does not exist") {
        return not_found(guest_of_file(file));
    }
    if let Some(rest) = text
        .split_once("unable to find configuration file for VM ")
        .map(|(_, rest)| rest)
    {
        let node = between(rest, "on node '", "'").and_then(|node| NodeName::new(node).ok());
        let vmid = rest.split(' ').next().and_then(|id| id.parse().ok());
        return not_found(Object::Guest { vmid, node });
    }
    if let Some(name) = between(text, "hostname lookup '", "' failed")
        .or_else(|| between(text, "no such cluster node '", "'"))
    {
        return not_found(Object::Node(name.to_owned()));
    }
    if let Some(name) = between(text, "storage '", "' does not exist") {
        return Some(Error::StorageMissing {
            storage: name.to_owned(),
        });
    }
    if let Some(name) = between(text, "volume '", "' does not exist") {
        return not_found(Object::Volume(name.to_owned()));
    }
    if let Some(name) = between(text, "snapshot '", "' does not exist") {
        return not_found(Object::Snapshot(name.to_owned()));
    }
    if let Some(name) = between(text, "pool '", "' does not exist") {
        return not_found(Object::Pool(name.to_owned()));
    }
    if let Some(name) = between(text, "bridge '", "' does not exist") {
        return not_found(Object::Bridge(name.to_owned()));
    }
    if text.starts_with("disk '")
        && let Some(name) = between(text, "disk '", "' does not exist")
    {
        return not_found(Object::Disk(name.to_owned()));
    }
    for (word, end) in [
        ("role", "' does not exist"),
        ("user", "' does not exist"),
        ("resource", "' does not exist"),
        ("group", "' does not exist"),
        ("rule", "' does not exist"),
    ] {
        if let Some(name) = between(text, &format!("{word} '"), end) {
            return not_found(Object::Other(format!("{word} '{name}'")));
        }
    }
    if let Some((user, _)) = text
        .split_once("no such ")
        .map(|(_, rest)| rest.split_once(' ').unwrap_or((rest, "")))
        && matches!(
            user,
            "user" | "token" | "group" | "role" | "resource" | "rule" | "zone" | "vnet"
        )
    {
        return not_found(Object::Other(user.to_owned()));
    }
    if let Some(name) = between(text, "cannot delete service '", "', not HA managed") {
        return not_found(Object::Other(format!("HA resource '{name}'")));
    }
    if text.contains("no rule at position") {
        return not_found(Object::Other("firewall rule".to_owned()));
    }
    None
}

/// The guest or its storage is in a state that forbids the act.
fn state(text: &str) -> Option<Error> {
    let owned = || text.to_owned();
    let has = |part: &str| text.contains(part);
    Some(match () {
        () if has("No QEMU guest agent configured") => Error::AgentAbsent {
            configured: false,
            text: owned(),
        },
        () if has("QEMU guest agent is not running") => Error::AgentAbsent {
            configured: true,
            text: owned(),
        },
        () if has("Agent error:") => Error::Agent { text: owned() },
        () if has("protection mode enabled") => Error::Protected { text: owned() },
        () if has("is still in use by linked clone")
            || has("referenced by linked clone")
            || has("used in HA resources")
            || has("is not most recent snapshot")
            || has("is not empty") =>
        {
            Error::InUse { text: owned() }
        }
        () if text.ends_with("not running") => Error::NotRunning { text: owned() },
        () if text.ends_with("already running")
            || has("is running - destroy failed")
            || has("if VM is running")
            || has("can't migrate running")
            || has("CT is running") =>
        {
            Error::Running { text: owned() }
        }
        () if has("if it's a template") || has("can't convert a template") => {
            Error::IsTemplate { text: owned() }
        }
        () if has("powerdown failed - got timeout")
            || text.ends_with("- got timeout")
            || has("still busy in guest") =>
        {
            Error::GuestTimeout { text: owned() }
        }
        () if has("unable to get any free VMID") => Error::NoFreeVmid { text: owned() },
        () if has("No space left on device")
            || has("insufficient free space")
            || has("out of space")
            || has("not enough free space")
            || has("Disk quota exceeded") =>
        {
            Error::OutOfSpace { text: owned() }
        }
        () if has("snapshot feature is not available")
            || has("clone feature is not supported")
            || has("feature is not available")
            || has("Linked clone feature for")
            || has("does not support vm images")
            || has("can't clone to non-shared storage") =>
        {
            Error::FeatureMissing { text: owned() }
        }
        () => return None,
    })
}

/// `nodes/pve1/qemu-server/999.conf`
fn guest_of_file(file: &str) -> Object {
    let mut parts = file.split('/');
    let node = parts.nth(1).and_then(|node| NodeName::new(node).ok());
    let vmid = parts
        .next_back()
        .and_then(|name| name.strip_suffix(".conf"))
        .and_then(|id| id.parse().ok());
    Object::Guest { vmid, node }
}

/// The first number after `VM ` or `CT ` that can be a guest's.
fn vmid_in(text: &str) -> Option<Vmid> {
    let rest = ["VM ", "CT "]
        .into_iter()
        .find_map(|word| text.split_once(word))
        .map(|(_, rest)| rest)?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// The text between two marks; a closing quote ends the name, so that a name never swallows half of the sentence.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    let (inner, _) = rest.split_once(after)?;
    (!after.starts_with('\'') || !inner.contains('\'')).then_some(inner)
}
