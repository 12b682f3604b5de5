//! A template that was there and is no longer listed.

use std::time::Duration;

use pve::{GuestKind, api::guest::ConfigView};
use tokio::time::Instant;

use super::{Flow, Work};
use crate::{NodeName, Outcome, Vmid, Waiting, view::View};

/// How long PVE is left to show the tags of a new template, and how often the guest is looked at after that.
const UNLISTED_FOR: Duration = Duration::from_secs(30);

impl Work<'_> {
    /// A template that is no longer listed is made again once PVE says that its VMID is free, or another guest's.
    pub(super) async fn confirm_lost(&mut self, view: &View, node: &NodeName) -> Flow<()> {
        let Some(vmid) = self.record.replicas.get(node).map(|replica| replica.vmid) else {
            return Ok(());
        };
        if let Some(row) = view.guests.get(&vmid) {
            let others = match row.kind {
                GuestKind::Lxc => true,
                GuestKind::Qemu => self.is_anothers_by_now(vmid, &row.node).await?,
            };
            return Err(if others {
                self.lost(node, vmid)
            } else {
                self.unlisted()
            });
        }
        match self.cluster.client.cluster().is_free(vmid).await {
            Ok(true) => Err(self.lost(node, vmid)),
            Ok(false) => {
                self.cluster.refresh();
                Err(self.unlisted())
            }
            Err(error) => Err(self.trouble("asking for the template", &error)),
        }
    }

    fn unlisted(&mut self) -> Outcome {
        let text = "the template is not listed yet";
        self.wait(Waiting::Source, text, Duration::from_secs(5))
    }

    /// Lets go of a template that is gone, and of its VMID.
    fn lost(&mut self, node: &NodeName, vmid: Vmid) -> Outcome {
        self.give_back(vmid);
        self.record.replicas.remove(node);
        Outcome::Persist
    }

    /// Lets others have a VMID.
    pub(super) fn give_back(&self, vmid: Vmid) {
        let mut state = self.cluster.state();
        if state.owners.get(&vmid) == Some(&self.intent.owner) {
            state.owners.remove(&vmid);
        }
    }

    /// Whether the guest under a template's VMID is somebody else's. PVE shows a new guest before it knows its tags, so it is
    /// read only when that has lasted.
    async fn is_anothers_by_now(&mut self, vmid: Vmid, on: &NodeName) -> Flow<bool> {
        let now = Instant::now();
        let due = self.remembered(|memory| {
            let since = *memory.unlisted.get_or_insert(now);
            let due = now - since >= UNLISTED_FOR;
            if due {
                memory.unlisted = Some(now);
            }
            due
        });
        if !due {
            return Ok(false);
        }
        let qemu = self.cluster.client.node(on).qemu(vmid);
        match qemu.config(ConfigView::Next).await {
            Ok(config) if self.is_this_image(&config, vmid) && config.is_template() => Ok(false),
            Ok(config) => {
                self.complete(&config, vmid).await?;
                Ok(true)
            }
            // It has moved, or is going.
            Err(error) if error.is_guest_not_found() => Ok(false),
            Err(error) => Err(self.trouble("reading the template", &error)),
        }
    }
}
