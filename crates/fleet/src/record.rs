//! What a caller keeps for the fleet between two calls.
//!
//! The fleet itself has no store. Everything it must not forget about a guest (which VMID it
//! took, which tasks it started) is in a record that the caller writes onto its own object. The
//! rule is short: **whenever a call returns a record that differs from the one it was given, store
//! it before the next call.** A record that could not be stored is not a disaster: the guest
//! carries its owner's mark, so work that was begun is found again, but a stored record finds it
//! without looking.

mod action;
mod identity;
mod image;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{NodeName, Upid, cloudinit::SeedFiles};

pub use action::{ActionRecord, Reverting, Subject};
pub use identity::{Identity, Likeness, NicIdentity, Origin};
pub(crate) use identity::{mac_of, macs_of, uuid_of};
pub use image::{ImageRecord, ReplicaRecord, ReplicaStage};

/// A task that was started and whose end has not been seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InFlight {
    /// What it does.
    pub step: StepKind,
    /// Its name in PVE.
    pub upid: Upid,
}

/// The kinds of steps there are; also the stable names conditions and metrics use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepKind {
    /// Upload of the first-boot image.
    UploadSeed,
    /// Copy of a template.
    Clone,
    /// Creation in one call.
    Create,
    /// Restoring a backup.
    Restore,
    /// A change of configuration.
    Configure,
    /// Moving a disk to another storage.
    MoveDisk,
    /// Growing a disk.
    Resize,
    /// Starting.
    Start,
    /// Graceful shutdown.
    Shutdown,
    /// Switching off.
    Stop,
    /// Restart.
    Reboot,
    /// Pausing: its processors stand still.
    Pause,
    /// Going on after a pause.
    Resume,
    /// Suspending to disk.
    Suspend,
    /// Moving to another node.
    Migrate,
    /// Removal of the first-boot image.
    RemoveSeed,
    /// Removal of the guest.
    Destroy,
    /// Making a snapshot.
    Snapshot,
    /// Removing a snapshot.
    DeleteSnapshot,
    /// Going back to a snapshot.
    Rollback,
    /// Making a backup.
    Backup,
    /// Downloading an image.
    Download,
    /// Turning a guest into a template.
    MakeTemplate,
    /// Removal of a volume.
    RemoveVolume,
}

/// The first-boot image of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seed {
    /// The volume it is uploaded as.
    pub volume: String,
    /// A glance at its contents.
    #[serde(rename = "digest")]
    pub glance: String,
    /// How far it has come.
    pub state: SeedState,
}

impl Seed {
    /// Whether these files are what it was made of. Records of earlier releases say more of them than a glance.
    pub(crate) fn holds(&self, files: &SeedFiles) -> bool {
        self.glance.starts_with(&files.glance())
    }
}

/// A first-boot image of an identity that was given up, to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leftover {
    /// The node it was uploaded to.
    pub node: NodeName,
    /// Its volume.
    pub volume: String,
}

/// How far a first-boot image has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SeedState {
    /// Chosen; whether the storage has it is not known.
    Planned,
    /// On the storage.
    Uploaded,
    /// Read by the guest; to be ejected and removed.
    Consumed,
    /// Out of the drive; the volume may still be there.
    Ejected,
    /// Gone from the storage.
    Removed,
}

/// How far a guest has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Stage {
    /// Nothing has been done yet.
    #[default]
    New,
    /// The call that makes it may have been sent.
    Making,
    /// It exists and is ours; it may lack configuration.
    Made,
    /// Everything declared was written once.
    Configured,
    /// It was started once.
    Started,
    /// It has been settled at least once.
    Settled,
    /// Its removal was begun.
    Removing,
}

/// What the caller keeps about one guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuestRecord {
    /// Who it is; `None` until chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// How far it has come.
    #[serde(default)]
    pub stage: Stage,
    /// How often making it has been tried.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// Tasks under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<InFlight>,
    /// Digest of the configuration last written in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<String>,
    /// Options that were declared and written: they are taken back when they no longer are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub declared: BTreeSet<String>,
    /// Tags that were written beside those of others: they are taken back when they are no longer declared.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    /// The first-boot image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<Seed>,
    /// A glance at the password that PVE's own cloud-init was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The value of the intent's restart counter last acted on.
    #[serde(default, skip_serializing_if = "is_zero64")]
    pub restarts: u64,
    /// Configuration keys that wait for a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// Configuration keys that somebody else left waiting for a restart: they are told of, and nothing is done about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_pending: Vec<String>,
    /// A task wrote to the running guest, and what of it waits for a restart was not read yet.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unread: bool,
    /// Digest of pool, high availability and firewall as last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// Of pool, high availability and firewall, what was written.
    #[serde(default, skip_serializing_if = "Given::is_nothing")]
    pub given: Given,
    /// Of that, what is being written beyond it: it may be there although the answer was never heard, or what follows failed.
    #[serde(default, skip_serializing_if = "Given::is_nothing")]
    pub giving: Given,
    /// A linked copy turned out to be impossible: the next try makes a full one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub full: bool,
    /// It shares the disks of the template it was copied from, as far as it is known how it was copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linked: Option<bool>,
    /// PVE talks to an agent in it, as its configuration said when it was read last.
    #[serde(default, skip_serializing_if = "is_false")]
    pub agent: bool,
    /// Windows runs in it, as its configuration said when it was read last.
    #[serde(default, skip_serializing_if = "is_false")]
    pub windows: bool,
    /// It has run, so it has read its first-boot data.
    #[serde(default, skip_serializing_if = "is_false")]
    pub booted: bool,
    /// It was paused, and not started or stopped since: PVE's list shows it as running.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
    /// It was found to be gone: whoever has its VMID since is somebody else until it was read who that is.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lost: bool,
    /// Somebody else started it before it was configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Early>,
    /// First-boot images of identities that were given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<Leftover>,
    /// Disks that came larger from the source than they are declared, and how large, in bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub brought: BTreeMap<String, u64>,
    /// Places that have had their volume: none is ever made there again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: BTreeMap<String, Kept>,
    /// The volumes of disks that are no longer declared, by the caller's name for the disk: they come back with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parted: BTreeMap<String, Option<String>>,
}

/// A volume that a guest has, or should have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// Its name in PVE, when it was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The size it was declared with last, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// What becomes of a guest that was started before it was configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Early {
    /// It runs, and is shut down before anything else.
    Runs,
    /// It was off since, but may remember what it read.
    Stopped,
}

/// What was written beside a guest's configuration, to be taken back when it is no longer declared.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Given {
    /// The pool it was put into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// That pool was named for it; where that is not known, it was not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub named_pool: bool,
    /// It was given to high availability.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ha: bool,
    /// It was said which nodes it prefers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rule: bool,
    /// Its firewall was written.
    #[serde(default, skip_serializing_if = "is_false")]
    pub firewall: bool,
    /// Whether rules of its firewall were written; where that is not known, they were if the firewall was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<bool>,
}

impl Given {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands in references"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands in references"
)]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands in references"
)]
fn is_zero64(value: &u64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_record_is_an_almost_empty_object_and_reads_back() {
        let json = serde_json::to_string(&GuestRecord::default()).unwrap();
        assert_eq!(json, r#"{"stage":"New"}"#);
        assert_eq!(
            serde_json::from_str::<GuestRecord>("{}").unwrap(),
            GuestRecord::default()
        );
    }
}
