//! What PVE puts under a VMID while it restores a machine there, and leaves there when that fails.
//!
//! The configuration of the backup, and our mark with it, is written when all its disks are there. Until then there is
//! a guest with nothing but a little memory: no lock, no name, no notes. When the restore fails, it stays for ever.

use std::time::Duration;

use pve::{
    GuestConfig, GuestKind,
    task::{Source as Tasks, TaskEntry, TaskFilter},
};

use super::{Flow, Pass, look::Sight};
use crate::{
    NodeName, Outcome, Vmid, Waiting,
    record::{Identity, Origin, Stage},
};

/// How often it is looked whether a restore has ended whose task is not known.
const PAUSE: Duration = Duration::from_secs(5);

impl Pass<'_> {
    /// Whether a guest without a mark is what a restore of ours began with: one was sent under this VMID, or may have been.
    pub(super) fn is_begun(&self, identity: &Identity, config: &GuestConfig) -> bool {
        self.record.stage < Stage::Made
            && !identity.adopted
            && self.kind() == GuestKind::Qemu
            && self.origin(identity) == Origin::Backup
            && is_bare(config)
    }

    /// Waits while the restore runs. When none does, removes what is left of it: the VMID is ours to try again under. Comes back
    /// with nothing if none of ours is known that would have left it: somebody else's may run, which one may not see.
    pub(super) async fn clear_bare(
        &mut self,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<Option<Outcome>> {
        let vmid = identity.vmid;
        let filter = TaskFilter {
            vmid: Some(vmid),
            source: Tasks::All,
            ..TaskFilter::default()
        };
        let tasks = match self.cluster.client.node(node).tasks(&filter).await {
            Ok(tasks) => tasks,
            Err(error) => {
                return Err(self.node_trouble(node, "looking for who restores the guest", &error));
            }
        };
        if tasks.iter().any(TaskEntry::is_running) {
            let message = format!("guest {vmid} is being restored on {node}");
            return Ok(Some(self.wait(Waiting::Locked, message, PAUSE)));
        }
        if !was_restored(&tasks) {
            return Ok(None);
        }
        // A restore that ended meanwhile has made it complete: only what is bare after its end is nothing.
        Ok(Some(match self.look(identity).await? {
            Sight::Begun(node) => {
                self.warn(
                    "RestoreFailed",
                    format!("removing what the restore left under VMID {vmid}"),
                );
                self.destroy(identity, &node).await?
            }
            _ => Outcome::Persist,
        }))
    }
}

/// What is said of a guest that nobody known has begun to restore.
pub(super) fn unknown(vmid: Vmid) -> String {
    format!("guest {vmid} is as a restore begins it, and no restore of ours is known there")
}

/// Whether the last that was made or removed under a VMID was made by a restore.
fn was_restored(tasks: &[TaskEntry]) -> bool {
    let tells = |task: &&TaskEntry| matches!(task.upid.kind(), "qmrestore" | "qmdestroy");
    // PVE lists the newest first, also of one second.
    let last = tasks.iter().filter(tells).reduce(|last, task| {
        let newer = task.upid.starttime() > last.upid.starttime();
        if newer { task } else { last }
    });
    last.is_some_and(|task| task.upid.kind() == "qmrestore")
}

/// Whether a configuration has nothing but the memory that PVE begins a restore with.
fn is_bare(config: &GuestConfig) -> bool {
    config.iter().all(|pair| pair == ("memory", "128"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_pve_begins_a_restore_with_is_bare() {
        let bare = GuestConfig::new().with("memory", "128");
        assert!(is_bare(&bare));
        assert!(is_bare(&GuestConfig::new()));
        for (key, value) in [
            ("name", "theirs"),
            ("scsi0", "local-lvm:vm-105-disk-0"),
            ("unused0", "local-lvm:vm-105-disk-0"),
            ("smbios1", "uuid=7f1c3c55-6ef4-4a6e-a5bb-1b9d9f1a0001"),
            ("description", "call Anna"),
            ("memory", "2048"),
        ] {
            assert!(!is_bare(&bare.clone().with(key, value)), "{key}");
        }
    }
}
