//! What is kept of a snapshot, a migration or a backup.

use serde::{Deserialize, Serialize};

use super::{InFlight, Likeness, is_false, is_zero, is_zero64};
use crate::{ClusterName, NodeName, Owner, Upid, Vmid};

/// What the caller keeps about a snapshot, a migration or a backup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionRecord {
    /// Tasks under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<InFlight>,
    /// How often it has been tried.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// It was begun: what is found may be our own work.
    #[serde(default, skip_serializing_if = "is_false")]
    pub begun: bool,
    /// It came to its end once and is not done again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub done: bool,
    /// It was done, and went with its guest.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lost: bool,
    /// The generation of a revert last done.
    #[serde(default, skip_serializing_if = "is_zero64")]
    pub reverted: u64,
    /// Whose generation that is; where it is not known, anybody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted_for: Option<Owner>,
    /// Digest of the description that was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub described: Option<String>,
    /// A revert that may have been sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverting: Option<Reverting>,
    /// The node chosen for a migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<NodeName>,
    /// The guest a backup or a snapshot is of. A backup outlives the guest, and a guest that is let go keeps its snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// What came out of it.
    #[serde(default)]
    pub facts: crate::ActionFacts,
}

impl ActionRecord {
    /// Whether a guest was taken back for a wish of this generation of whoever keeps it.
    pub fn has_reverted(&self, keeper: Option<&Owner>, generation: u64) -> bool {
        if is_same(self.reverted_for.as_ref(), keeper) {
            return self.reverted >= generation;
        }
        // The generations of two objects cannot be compared. One that was made anew from what is written down of an earlier one
        // brings that one's wish along, and wishes nothing new by it.
        self.reverted > 0 && generation <= 1
    }
}

/// Whether two keepers are the same, as far as both are known.
fn is_same(one: Option<&Owner>, other: Option<&Owner>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

/// The guest that something is done to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// Its cluster.
    pub cluster: ClusterName,
    /// Its number.
    pub guest: Vmid,
    /// Its owner, checked before anything is done; `None` accepts any guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Who has taken it over, whose mark it may carry instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<Owner>,
    /// How it is known where its notes carry no mark.
    #[serde(default)]
    pub likeness: Likeness,
}

impl Subject {
    /// Who keeps it, made or taken over.
    pub fn kept_by(&self) -> Option<&Owner> {
        self.owner.as_ref().or(self.keeper.as_ref())
    }

    /// Whether both are the same guest. One that was let go and taken over again has no owner to compare.
    pub fn is(&self, other: &Self) -> bool {
        let uuids = self.likeness.uuid.zip(other.likeness.uuid);
        (&self.cluster, self.guest) == (&other.cluster, other.guest)
            && is_same(self.owner.as_ref(), other.owner.as_ref())
            && uuids.is_none_or(|(one, other)| one == other)
    }
}

/// A revert that may have been sent. PVE leaves no mark of it on the guest, and going back twice would lose what the guest
/// wrote in between: so it is told by its task whether it was carried out, and by the guest if PVE has forgotten the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reverting {
    /// The generation of the wish.
    pub generation: u64,
    /// Whose wish it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<Owner>,
    /// The newest task of this kind before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Upid>,
    /// The node it is sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// The snapshot the guest went on from before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The guest's generation before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub genid: Option<String>,
}

impl Reverting {
    /// Whether it was begun for this wish.
    pub(crate) fn is_for(&self, keeper: Option<&Owner>, generation: u64) -> bool {
        self.generation == generation && is_same(self.keeper.as_ref(), keeper)
    }
}
