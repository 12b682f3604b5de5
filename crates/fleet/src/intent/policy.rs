//! How changes, deletion and losses are handled.

use std::time::Duration;

/// What happens to changes that a running guest cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Update {
    /// They are written and stay pending; the guest is never restarted for them.
    #[default]
    Live,
    /// The guest is restarted, gracefully, when something stays pending.
    RestartIfNeeded,
    /// Nothing is written while the guest runs; changes wait until it is off or restarts.
    Staged,
}

/// What happens to the guest when its owner goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deletion {
    /// It is shut down and removed with its disks.
    #[default]
    Delete,
    /// It is shut down and kept, still marked as its owner's.
    Retain,
    /// It is left as it is, and the mark is taken off: it belongs to nobody.
    Orphan,
}

/// What happens when the guest was removed behind our back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loss {
    /// It is reported, as a failure that stays.
    #[default]
    Report,
    /// It is made anew, under a new VMID.
    Recreate,
}

/// How much is done to a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Management {
    /// It is kept as declared.
    #[default]
    Full,
    /// It is looked at only: drift is reported, nothing is changed.
    Observe,
}

/// When a guest that shall run counts as settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readiness {
    /// When it runs.
    Running,
    /// When its agent reports an address, if it has an agent; otherwise when it runs.
    #[default]
    Addresses,
}

/// The caller's rules for one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Changes a running guest cannot take.
    pub update: Update,
    /// Removal.
    pub deletion: Deletion,
    /// Losses.
    pub loss: Loss,
    /// How much is done at all.
    pub management: Management,
    /// What settled means.
    pub readiness: Readiness,
    /// How long a guest may take to shut down before it is switched off.
    pub shutdown_timeout: Duration,
    /// Correct what others changed in owned fields; otherwise it is only reported.
    pub correct_drift: bool,
    /// Keep guests of Delete from being removed: deletion waits until this is off.
    pub protected: bool,
}

impl Policy {
    /// What becomes of the guest: who only looks at it leaves it as it is.
    pub(crate) fn at_end(&self) -> Deletion {
        match self.management {
            Management::Observe => Deletion::Orphan,
            Management::Full => self.deletion,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            update: Update::default(),
            deletion: Deletion::default(),
            loss: Loss::default(),
            management: Management::default(),
            readiness: Readiness::default(),
            shutdown_timeout: Duration::from_mins(1),
            correct_drift: true,
            protected: false,
        }
    }
}
