//! What a call to the fleet comes back with.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    GuestFacts,
    record::{ActionRecord, GuestRecord, ImageRecord, StepKind},
};

/// Where a matter stands after a call, and what the caller must keep.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress<R, F> {
    /// The record to keep. If it differs from the one handed in, it must be stored before the
    /// next call.
    pub record: R,
    /// Where the matter stands.
    pub outcome: Outcome,
    /// What is known by now, whatever the outcome.
    pub facts: F,
    /// What happened in this call, for people.
    pub events: Vec<Event>,
}

/// Progress of a guest.
pub type GuestProgress = Progress<GuestRecord, GuestFacts>;

/// Progress of a snapshot, a migration or a backup.
pub type ActionProgress = Progress<ActionRecord, ActionFacts>;

/// Progress of an image.
pub type ImageProgress = Progress<ImageRecord, ImageFacts>;

/// What is known about a snapshot, a migration or a backup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ActionFacts {
    /// The node the guest is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<crate::NodeName>,
    /// When a snapshot was made, in seconds since 1970 by the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
    /// The snapshot it was made on top of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Whether memory is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
    /// A backup's volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Size of what came out, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// What is known about an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageFacts {
    /// The templates that are ready to be copied.
    pub templates: Vec<(crate::NodeName, crate::Vmid)>,
}

/// Where a matter stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A choice was made and nothing was done yet: store the record, then call again at once.
    Persist,
    /// Something is being done; the owner will be woken.
    Working {
        /// What.
        step: StepKind,
        /// The same for people: "cloning ubuntu-22 to pve2".
        message: String,
    },
    /// Something is missing; the owner will be woken when it may be there.
    Waiting {
        /// What is missing.
        what: Waiting,
        /// The same for people.
        message: String,
        /// When the fleet will look again at the latest.
        retry: Duration,
    },
    /// Everything is as declared.
    Settled,
    /// Everything that belonged to the matter is gone. The caller may forget it.
    Gone,
    /// It can never work like this; something must be changed first.
    Failed {
        /// The kind of failure.
        why: Failure,
        /// The same for people, with the way out.
        message: String,
    },
}

impl Outcome {
    /// Whether the matter rests: settled or gone.
    pub fn is_done(&self) -> bool {
        matches!(self, Outcome::Settled | Outcome::Gone)
    }
}

/// What a guest waits for. The name is stable and fit for a condition's reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waiting {
    /// No node fits now.
    Capacity,
    /// A node, storage or template has enough work for now.
    Turn,
    /// No VMID is free in the range.
    Vmid,
    /// PVE does not answer.
    Unreachable,
    /// The cluster is not connected (yet).
    Cluster,
    /// The guest's node is down.
    NodeDown,
    /// The cluster has no quorum.
    Quorum,
    /// The source is not there.
    Source,
    /// The guest carries a lock of somebody else.
    Locked,
    /// The guest is protected from removal.
    Protected,
    /// A privilege is missing.
    Privilege,
    /// The credentials are refused.
    Credentials,
    /// There is no room on a storage.
    Space,
    /// The guest's agent or its addresses.
    Guest,
    /// Something else holds on to it, such as linked clones.
    InUse,
    /// An error that may pass.
    Error,
    /// A restart, which the policy leaves to somebody else.
    Restart,
}

impl Waiting {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Waiting::Capacity => "WaitingForCapacity",
            Waiting::Turn => "WaitingForTurn",
            Waiting::Vmid => "WaitingForVmid",
            Waiting::Unreachable => "PveUnreachable",
            Waiting::Cluster => "WaitingForProvider",
            Waiting::NodeDown => "NodeDown",
            Waiting::Quorum => "NoQuorum",
            Waiting::Source => "WaitingForSource",
            Waiting::Locked => "Locked",
            Waiting::Protected => "Protected",
            Waiting::Privilege => "PrivilegeMissing",
            Waiting::Credentials => "CredentialsRefused",
            Waiting::Space => "WaitingForSpace",
            Waiting::Guest => "WaitingForGuest",
            Waiting::InUse => "InUse",
            Waiting::Error => "Retrying",
            Waiting::Restart => "RestartRequired",
        }
    }
}

/// Why something can never work as declared. The name is stable and fit for a condition's reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// A field cannot be what it is.
    Invalid,
    /// PVE cannot do it, or not with these credentials.
    Unsupported,
    /// The guest belongs to somebody else.
    Foreign,
    /// The guest was removed behind our back.
    Lost,
    /// It was tried often enough.
    GaveUp,
    /// It was begun, and nothing tells whether it was done.
    Uncertain,
}

impl Failure {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Failure::Invalid => "InvalidSpec",
            Failure::Unsupported => "Unsupported",
            Failure::Foreign => "NotOurs",
            Failure::Lost => "GuestLost",
            Failure::GaveUp => "GaveUp",
            Failure::Uncertain => "OutcomeUnknown",
        }
    }
}

/// Something people may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether it is a nuisance.
    pub warning: bool,
    /// A stable word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Event {
    /// Something went its way.
    pub fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            message: message.into(),
        }
    }

    /// Something did not.
    pub fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason,
            message: message.into(),
        }
    }
}
