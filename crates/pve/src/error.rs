//! What can go wrong, as an enum to match on.
//!
//! Proxmox VE has no 404 and no 409: whatever a handler dies of is a 500 with a text, and the same mistake may show
//! as the answer of the call or, a moment later, as the exit text of its task. Both go through [`Error::from_text`],
//! which recognises the texts, so that a caller sees one enum for either. A text nobody knows is kept in
//! [`Error::Other`].
//!
//! Three questions come up again and again and have methods: is it gone ([`Error::is_not_found`]), do we know at all
//! ([`Error::is_unknown`]), and is it worth trying again ([`Error::retry`]).

mod classify;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{NodeName, Vmid};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a transport or a decoder, kept as the cause.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Why a call or a task failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Parameters were refused; the map says which and why.
    #[error("{message}{}", show(errors))]
    Parameters {
        /// The message above the map.
        message: String,
        /// Each refused parameter with its text.
        errors: BTreeMap<String, String>,
    },
    /// The credentials were not accepted.
    #[error("not authenticated: {text}")]
    Unauthenticated {
        /// What the server said.
        text: String,
    },
    /// A privilege is missing.
    #[error("denied: {text}")]
    Denied {
        /// The path the privilege is needed on, where the server says it.
        path: Option<String>,
        /// The privilege, where the server says it; several alternatives are separated by `|`.
        privilege: Option<String>,
        /// What the server said.
        text: String,
    },
    /// Only `root@pam` with a ticket may do this; a token of root is not root.
    #[error("only root@pam with a password may do this: {text}")]
    RootOnly {
        /// The configuration key concerned, where there is one.
        option: Option<String>,
        /// What the server said.
        text: String,
    },
    /// The object does not exist, or not on this node.
    #[error("{what} does not exist: {text}")]
    NotFound {
        /// What was looked for.
        what: Object,
        /// What the server said.
        text: String,
    },
    /// The storage does not exist.
    #[error("storage '{storage}' does not exist")]
    StorageMissing {
        /// The storage's name.
        storage: String,
    },
    /// The object exists already.
    #[error("{what} exists already: {text}")]
    AlreadyExists {
        /// What exists.
        what: Object,
        /// What the server said.
        text: String,
    },
    /// The guest carries a lock of an operation under way, or of one that crashed.
    #[error("guest is locked ({by})")]
    Locked {
        /// The lock's name, such as `clone`, `backup` or `migrate`.
        by: String,
    },
    /// Another process held a lock file longer than the server waits.
    #[error("lock timeout: {text}")]
    LockTimeout {
        /// What the server said.
        text: String,
    },
    /// The configuration changed since its digest was read.
    #[error("configuration changed meanwhile: {text}")]
    DigestMismatch {
        /// What the server said.
        text: String,
    },
    /// The guest must run for this, and does not.
    #[error("guest is not running: {text}")]
    NotRunning {
        /// What the server said.
        text: String,
    },
    /// The guest runs, and must not for this.
    #[error("guest is running: {text}")]
    Running {
        /// What the server said.
        text: String,
    },
    /// The guest is a template, which cannot do this.
    #[error("guest is a template: {text}")]
    IsTemplate {
        /// What the server said.
        text: String,
    },
    /// The guest's agent does not answer.
    #[error("guest agent is absent: {text}")]
    AgentAbsent {
        /// Whether the guest's configuration enables an agent at all.
        configured: bool,
        /// What the server said.
        text: String,
    },
    /// The guest's agent answered with an error of its own.
    #[error("guest agent failed: {text}")]
    Agent {
        /// What the agent said.
        text: String,
    },
    /// The change was stored but could not be applied to the running guest; it stays pending.
    #[error("hotplug failed, the change is pending{}", show(errors))]
    Hotplug {
        /// Each option with its text.
        errors: BTreeMap<String, String>,
    },
    /// A container did not take a part of the change, and nothing of it was stored.
    #[error("nothing was changed{}", show(errors))]
    NotTaken {
        /// Each option with its text.
        errors: BTreeMap<String, String>,
    },
    /// The guest is protected against removal.
    #[error("protected: {text}")]
    Protected {
        /// What the server said.
        text: String,
    },
    /// Something else still needs the object, such as linked clones their base.
    #[error("still in use: {text}")]
    InUse {
        /// What the server said.
        text: String,
    },
    /// The guest did not do what it was asked within the time, such as shutting down.
    #[error("guest did not react in time: {text}")]
    GuestTimeout {
        /// What the server said.
        text: String,
    },
    /// No VM ID is free in the configured range.
    #[error("no VM ID is free: {text}")]
    NoFreeVmid {
        /// What the server said.
        text: String,
    },
    /// There is no room on the storage.
    #[error("out of space: {text}")]
    OutOfSpace {
        /// What the server said.
        text: String,
    },
    /// The storage cannot do this (snapshot, linked clone, ...).
    #[error("storage cannot do this: {text}")]
    FeatureMissing {
        /// What the server said.
        text: String,
    },
    /// The cluster has lost its quorum; nothing can be changed.
    #[error("cluster has no quorum: {text}")]
    NoQuorum {
        /// What the server said.
        text: String,
    },
    /// The task was stopped from outside.
    #[error("interrupted: {text}")]
    Interrupted {
        /// What the task said.
        text: String,
    },
    /// The server has no such method.
    #[error("not implemented by this server: {text}")]
    NotImplemented {
        /// What the server said.
        text: String,
    },
    /// This release of Proxmox VE is too old or too new for the call.
    #[error("{what} needs Proxmox VE {needs}, this one is {has}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// The releases that have it, such as `9.0 or later`.
        needs: &'static str,
        /// The release that answered.
        has: String,
    },
    /// Nobody answered, and nothing was changed by asking.
    #[error("unreachable: {text}")]
    Unreachable {
        /// What was tried.
        text: String,
        /// The transport's error.
        #[source]
        cause: Option<Cause>,
    },
    /// The request was sent but its answer is lost: it may have taken effect, or may still.
    #[error("outcome unknown: {text}")]
    OutcomeUnknown {
        /// What happened.
        text: String,
        /// The transport's error.
        #[source]
        cause: Option<Cause>,
    },
    /// The answer does not have the form that was expected.
    #[error("answer of {call} cannot be read")]
    Decode {
        /// The call.
        call: &'static str,
        /// The decoder's error.
        #[source]
        cause: Cause,
    },
    /// The request could not be built.
    #[error("request cannot be built: {text}")]
    Request {
        /// Why.
        text: String,
    },
    /// Any other failure, with its text.
    #[error("{text}")]
    Other {
        /// The HTTP status; absent for the exit of a task.
        status: Option<u16>,
        /// What the server said.
        text: String,
    },
}

/// What an error speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Object {
    /// A guest, on the node if one is named.
    Guest {
        /// Its number.
        vmid: Option<Vmid>,
        /// The node that was asked or that has it.
        node: Option<NodeName>,
    },
    /// A node.
    Node(String),
    /// A storage.
    Storage(String),
    /// A volume or a disk image.
    Volume(String),
    /// A disk slot of a guest.
    Disk(String),
    /// A snapshot.
    Snapshot(String),
    /// A pool.
    Pool(String),
    /// A task.
    Task,
    /// A bridge or VNet.
    Bridge(String),
    /// Anything else, named by the server's word for it.
    Other(String),
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Object::Guest {
                vmid: Some(vmid), ..
            } => write!(f, "guest {vmid}"),
            Object::Guest { vmid: None, .. } => f.write_str("guest"),
            Object::Node(name) => write!(f, "node '{name}'"),
            Object::Storage(name) => write!(f, "storage '{name}'"),
            Object::Volume(name) => write!(f, "volume '{name}'"),
            Object::Disk(name) => write!(f, "disk '{name}'"),
            Object::Snapshot(name) => write!(f, "snapshot '{name}'"),
            Object::Pool(name) => write!(f, "pool '{name}'"),
            Object::Task => f.write_str("task"),
            Object::Bridge(name) => write!(f, "bridge '{name}'"),
            Object::Other(name) => f.write_str(name),
        }
    }
}

/// Whether trying the same again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The same call can pass a moment later.
    Soon,
    /// It can pass once a person or another program has changed something.
    Later,
    /// Look first: whether it took effect is not known.
    Verify,
    /// The same call can never pass.
    Never,
}

impl Error {
    /// Makes an error of a status, a message and a map of parameter errors.
    ///
    /// The exit text of a task has neither status nor map.
    pub fn from_text(status: Option<u16>, text: &str, errors: BTreeMap<String, String>) -> Self {
        classify::classify(status, text, errors)
    }

    /// Whether the object of the call does not exist (on that node).
    pub fn is_not_found(&self) -> bool {
        match self {
            Error::NotFound { what, .. } => !matches!(what, Object::Node(_)),
            Error::StorageMissing { .. } => true,
            _ => false,
        }
    }

    /// Whether the guest of the call does not exist on that node; it may have moved to another.
    pub fn is_guest_not_found(&self) -> bool {
        matches!(
            self,
            Error::NotFound {
                what: Object::Guest { .. },
                ..
            }
        )
    }

    /// Whether the guest's number is taken.
    pub fn is_vmid_taken(&self) -> bool {
        matches!(
            self,
            Error::AlreadyExists {
                what: Object::Guest { .. },
                ..
            }
        )
    }

    /// Whether the truth could not be learned: such an error must never lead to a removal.
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            Error::Unreachable { .. }
                | Error::OutcomeUnknown { .. }
                | Error::Unauthenticated { .. }
                | Error::Denied { .. }
                | Error::NoQuorum { .. }
                | Error::Decode { .. }
                | Error::NotFound {
                    what: Object::Node(_),
                    ..
                }
        )
    }

    /// Whether trying the same again can help.
    pub fn retry(&self) -> Retry {
        match self {
            Error::OutcomeUnknown { .. } | Error::Interrupted { .. } => Retry::Verify,
            Error::Locked { .. }
            | Error::LockTimeout { .. }
            | Error::DigestMismatch { .. }
            | Error::AgentAbsent {
                configured: true, ..
            }
            | Error::Running { .. }
            | Error::GuestTimeout { .. }
            | Error::NoQuorum { .. }
            | Error::Unreachable { .. } => Retry::Soon,
            Error::Unauthenticated { .. }
            | Error::Denied { .. }
            | Error::NotFound { .. }
            | Error::StorageMissing { .. }
            | Error::AlreadyExists { .. }
            | Error::NotRunning { .. }
            | Error::Agent { .. }
            | Error::AgentAbsent { .. }
            | Error::Hotplug { .. }
            | Error::NotTaken { .. }
            | Error::Protected { .. }
            | Error::InUse { .. }
            | Error::NoFreeVmid { .. }
            | Error::OutOfSpace { .. }
            | Error::Other { .. } => Retry::Later,
            Error::Parameters { .. }
            | Error::RootOnly { .. }
            | Error::IsTemplate { .. }
            | Error::FeatureMissing { .. }
            | Error::NotImplemented { .. }
            | Error::Unsupported { .. }
            | Error::Decode { .. }
            | Error::Request { .. } => Retry::Never,
        }
    }
}

fn show(errors: &BTreeMap<String, String>) -> String {
    let list: Vec<_> = errors
        .iter()
        .map(|(key, text)| format!("{key}: {}", text.trim()))
        .collect();
    if list.is_empty() {
        String::new()
    } else {
        format!(": {}", list.join("; "))
    }
}
