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
    NodeName, Outcome, Waiting,
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

    /// Waits while the restore runs. When none does, removes what is left of it: the VMID is ours to try again under.
    pub(super) async fn clear_bare(
        &mut self,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<Outcome> {
        let vmid = identity.vmid;
        let filter = TaskFilter {
            vmid: Some(vmid),
            source: Tasks::Active,
            ..TaskFilter::default()
        };
        match self.cluster.client.node(node).tasks(&filter).await {
            Ok(list) if list.iter().any(TaskEntry::is_running) => {
                let message = format!("guest {vmid} is being restored on {node}");
                return Ok(self.wait(Waiting::Locked, message, PAUSE));
            }
            Ok(_) => {}
            Err(error) => {
                return Err(self.node_trouble(node, "looking for who restores the guest", &error));
            }
        }
        // A restore that ended meanwhile has made it complete: only what is bare after its end is nothing.
        match self.look(identity).await? {
            Sight::Begun(node) => {
                self.warn(
                    "RestoreFailed",
                    format!("removing what the restore left under VMID {vmid}"),
                );
                self.destroy(identity, &node).await
            }
            _ => Ok(Outcome::Persist),
        }
    }
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
