//! A copy that had to be made next to its source, on its way to where it belongs.

use pve::{
    ConfigChange, GuestConfig, GuestKind,
    api::guest::migrate::{MigrateLxc, MigrateQemu},
};
use tokio::time::Instant;

use super::{
    Flow, LATE, Pass,
    seed::NO_DISC,
    source::{discs, is_shared, storage_of},
};
use crate::{
    NodeName, Outcome, Waiting,
    record::{Identity, Seed, Stage, StepKind},
    view::View,
};

impl Pass<'_> {
    /// Moves a copy that had to be made elsewhere to where it belongs.
    pub(super) async fn bring_home(
        &mut self,
        view: &View,
        identity: &Identity,
        node: &NodeName,
    ) -> Flow<()> {
        if self.record.stage != Stage::Made || node == &identity.node || identity.adopted {
            return Ok(());
        }
        if self.has_left(view, &identity.node)? {
            return Err(self.stay(view, identity, node));
        }
        self.verify(identity).await?;
        self.take_discs_out(identity, node).await?;
        let message = format!("moving the copy from {node} to {}", identity.node);
        let mut how = MigrateQemu::online(identity.node.clone());
        how.online = false;
        how.with_local_disks = true;
        how.targetstorage = self.root_storage().map(|storage| storage.to_string());
        let handle = self.cluster.client.node(node);
        let moved = match self.kind() {
            GuestKind::Qemu => {
                let qemu = handle.qemu(identity.vmid);
                let call = qemu.migrate(&how);
                self.power_step(node, StepKind::Migrate, call).await?
            }
            GuestKind::Lxc => {
                let mut how = MigrateLxc::restart(identity.node.clone());
                how.restart = false;
                how.target_storage = self.root_storage().map(|storage| storage.to_string());
                let lxc = handle.lxc(identity.vmid);
                let call = lxc.migrate(&how);
                self.power_step(node, StepKind::Migrate, call).await?
            }
        };
        if !self.record.in_flight.is_empty() {
            self.event("Moving", message);
        }
        moved.map_or(Ok(()), Err)
    }

    /// Leaves a copy where it is: where it belonged is no more.
    fn stay(&mut self, view: &View, identity: &Identity, node: &NodeName) -> Outcome {
        let home = &identity.node;
        self.warn(
            "NodeLeft",
            format!("node {home} has left the cluster: the guest stays on {node}"),
        );
        // An image on storage of that node alone went with it, and is made anew.
        let reached = |seed: &Seed| {
            let storage = storage_of(&seed.volume);
            storage.is_some_and(|storage| view.reaching(&storage, home).is_some())
        };
        self.record.seed = self.record.seed.take().filter(reached);
        self.record.identity = Some(Identity {
            node: node.clone(),
            ..identity.clone()
        });
        Outcome::Persist
    }

    /// Whether a node has left the cluster. Waits until that is sure: a node that has just come up may not know all others yet,
    /// and a call that was sent there may still take effect.
    pub(super) fn has_left(&mut self, view: &View, node: &NodeName) -> Flow<bool> {
        if view.nodes.contains_key(node) {
            self.memory(|memory| memory.left = None);
            return Ok(false);
        }
        let now = Instant::now();
        let since = self.memory(|memory| *memory.left.get_or_insert(now));
        match LATE.checked_sub(now - since).filter(|left| !left.is_zero()) {
            None => Ok(true),
            Some(left) => {
                let message = format!("node {node} is not part of the cluster any more");
                Err(self.wait(Waiting::NodeDown, message, left))
            }
        }
    }

    /// Takes discs out of a copy that its source had in its drives: PVE moves no guest with a disc of one node alone.
    async fn take_discs_out(&mut self, identity: &Identity, node: &NodeName) -> Flow<()> {
        let view = self.view()?;
        let model = match self.memory(|memory| memory.model.clone()) {
            Some(model) => model,
            None => self.ours(identity).await?.0,
        };
        let local = |volume: &str| storage_of(volume).is_some_and(|it| !is_shared(&view, &it));
        let mut set = GuestConfig::new();
        for (slot, volume) in discs(&model) {
            if volume.contains(":iso/") && local(&volume) {
                set.set(&slot, NO_DISC);
            }
        }
        if set.is_empty() {
            return Ok(());
        }
        let change = ConfigChange::set(set);
        let sent = self.handle(node, identity.vmid).configure(&change).await;
        self.memory(|memory| memory.model = None);
        sent.map_err(|error| self.node_trouble(node, "taking discs out of the copy", &error))
    }
}
