//! Reading who a guest is before it is touched.

use std::{sync::Arc, time::Duration};

use pve::{GuestConfig, GuestKind, api::guest::ConfigView};
use tokio::time::Instant;

use super::{Flow, Pass};
use crate::{
    NodeName, Owner, Vmid, Waiting,
    cluster::Shape,
    mark,
    record::{Identity, macs_of, uuid_of},
};

/// Who is found under a VMID.
pub(super) enum Sight {
    /// Our guest, on this node.
    Ours(Arc<GuestConfig>, NodeName),
    /// One that is being made, with this lock: PVE writes the mark when it is complete, so whose it is cannot be said.
    Unfinished(String),
    /// What a restore of ours begins with, and leaves on this node when it fails.
    Begun(NodeName),
    /// Somebody else's.
    Foreign(String),
    /// Nobody: PVE says that the VMID is free.
    Absent,
}

impl Pass<'_> {
    /// Reads the guest's configuration and with it whose it is.
    pub(super) async fn look(&mut self, identity: &Identity) -> Flow<Sight> {
        let mut nodes = vec![self.node_of(identity)];
        if !nodes.contains(&identity.node) {
            nodes.push(identity.node.clone());
        }
        // A node that has left the cluster took nothing along that PVE still has a VMID for.
        let view = self.view()?;
        nodes.retain(|node| view.nodes.contains_key(node));
        let mut denied = None;
        for node in nodes {
            match self
                .handle(&node, identity.vmid)
                .config(ConfigView::Next)
                .await
            {
                Ok(config) => return self.recognise(identity, config, node),
                Err(error) if error.is_guest_not_found() => {}
                // Who has rights to some guests only is refused those that do not exist.
                Err(error @ pve::Error::Denied { .. }) => denied = Some((node, error)),
                Err(error) => return Err(self.node_trouble(&node, "reading the guest", &error)),
            }
        }
        // Not there is not gone: it may have moved. Only PVE's own list of VMIDs knows.
        match self.cluster.client.cluster().is_free(identity.vmid).await {
            Ok(true) => Ok(Sight::Absent),
            Ok(false) if let Some((node, error)) = denied => {
                Err(self.node_trouble(&node, "reading the guest", &error))
            }
            Ok(false) => {
                let kind = self.kind();
                let row = view.guests.get(&identity.vmid);
                if row.is_some_and(|row| row.kind != kind) {
                    let text = format!("VMID {} is a guest of another kind", identity.vmid);
                    return Ok(Sight::Foreign(text));
                }
                if let Some(node) = row.map(|row| &row.node)
                    && !view.nodes.contains_key(node)
                {
                    let message = format!(
                        "node {node} has left the cluster, and /etc/pve/nodes/{node} still has guest {0}: move its configuration \
                         to another node, or remove it",
                        identity.vmid
                    );
                    return Err(self.wait(Waiting::NodeDown, message, Duration::from_mins(1)));
                }
                self.cluster.refresh();
                let message = format!(
                    "VMID {} is taken, but not where it was seen last",
                    identity.vmid
                );
                Err(self.wait(Waiting::Error, message, Duration::from_secs(2)))
            }
            Err(error) => Err(self.trouble("asking whether the VMID is free", &error)),
        }
    }

    fn recognise(
        &mut self,
        identity: &Identity,
        config: GuestConfig,
        node: NodeName,
    ) -> Flow<Sight> {
        let description = config.description().unwrap_or_default();
        let marked = mark::is_marked(description);
        let owner = mark::owner_of(description);
        let resembles = self.resembles(identity, &config);
        let ours = match &owner {
            Some(owner) => {
                *owner == self.intent.owner
                    || (identity.adopted && resembles == Some(true) && self.is_former_self(owner))
            }
            None if marked => false,
            // Somebody may have rewritten the notes.
            None => resembles == Some(true),
        };
        if !ours
            && !marked
            && let Some(lock) = config.lock().filter(|lock| is_making(lock))
        {
            return Ok(Sight::Unfinished(lock.to_owned()));
        }
        if !ours && !marked && self.is_begun(identity, &config) {
            return Ok(Sight::Begun(node));
        }
        if !ours && !marked && resembles.is_none() {
            let (has, else_give) = match self.kind() {
                GuestKind::Qemu => ("no UUID, like", "a UUID"),
                GuestKind::Lxc => ("the name of", "another name"),
            };
            let message = format!(
                "guest {0} has {has} ours, but nothing tells whether it is: write {1:?} into its notes if it is, else \
                 give it {else_give}",
                identity.vmid,
                mark::describe("", &self.intent.owner)
            );
            return Err(self.wait(Waiting::Error, message, Duration::from_mins(1)));
        }
        if !ours {
            let whose =
                owner.map_or_else(|| "nobody we know".to_owned(), |owner| format!("'{owner}'"));
            return Ok(Sight::Foreign(format!(
                "guest {} belongs to {whose}",
                identity.vmid
            )));
        }
        // The mark is written again where it was lost.
        let lost = !marked && !identity.adopted;
        let shape = Shape::of(&config, self.kind());
        let config = Arc::new(config);
        let now = Instant::now();
        self.memory(|memory| {
            memory.verified = Some(now);
            memory.unheard = None;
            memory.doubt |= lost;
            memory.shape = Some(shape);
            memory.model = Some(config.clone());
        });
        Ok(Sight::Ours(config, node))
    }

    /// Whether a guest is the one that was made here, by what nobody else has: its UUID, or the name and an address of a
    /// container. `None` if it cannot be told.
    fn resembles(&self, identity: &Identity, config: &GuestConfig) -> Option<bool> {
        let fits = identity.likeness().fits(self.kind(), config);
        if self.kind() == GuestKind::Qemu && identity.adopted && identity.uuid.is_nil() {
            if uuid_of(config).is_some() {
                return Some(false);
            }
            // Who is taken over carries no mark until something was written.
            let mut macs = identity.nics.values().map(|nic| nic.mac);
            let same = macs.any(|mac| macs_of(config).any(|it| it == mac));
            return (same || self.record.applied.is_none()).then_some(true);
        }
        if self.kind() == GuestKind::Qemu {
            return Some(fits == Some(true));
        }
        if identity.adopted || config.get("hostname") != Some(self.intent.name.as_str()) {
            return Some(false);
        }
        fits.filter(|fits| *fits)
    }

    /// Whether a mark is the owner's own, from before its object was moved to another API server.
    pub(super) fn is_former_self(&self, owner: &Owner) -> bool {
        let proof = self.intent.proof.as_ref();
        proof.is_some_and(|proof| owner.as_str().starts_with(&proof.former))
    }

    /// Waits for a guest that is being made under our VMID. Comes back with why when nobody makes it any more.
    pub(super) async fn unfinished(&mut self, identity: &Identity, lock: &str) -> Flow<String> {
        let made = self
            .cluster
            .is_being_made(&self.intent.owner, identity.vmid);
        match made.await {
            Ok(Some(pause)) => {
                let message = format!("guest {} is being made ({lock})", identity.vmid);
                Err(self.wait(Waiting::Locked, message, pause))
            }
            Ok(None) => Ok(left_locked(identity.vmid, lock)),
            Err(error) => Err(self.trouble("looking for who makes the guest", &error)),
        }
    }

    /// The node the guest is on, as far as is known.
    pub(super) fn node_of(&self, identity: &Identity) -> NodeName {
        let memory = self.memory(|memory| memory.clone());
        if let Some((node, _)) = self.newer_node(&memory) {
            return node;
        }
        self.cluster
            .row(identity.vmid)
            .map_or_else(|| identity.node.clone(), |row| row.node)
    }

    /// An error of a call to a node that may be down.
    pub(super) fn node_trouble(
        &mut self,
        node: &NodeName,
        doing: &str,
        error: &pve::Error,
    ) -> crate::Outcome {
        let down = self
            .cluster
            .view()
            .is_some_and(|view| !view.node_online(node));
        if error.is_unknown() && down {
            let message = format!("node {node} is down; waiting for it");
            self.cluster
                .state()
                .stranded
                .insert(self.intent.owner.clone());
            return self.wait(Waiting::NodeDown, message, Duration::from_secs(30));
        }
        self.trouble(doing, error)
    }
}

/// What is said of a guest that is not complete and that nobody makes any more.
pub(crate) fn left_locked(vmid: Vmid, lock: &str) -> String {
    format!(
        "VMID {vmid} was left locked ({lock}) by a task that died; PVE lets only root remove it: \
         qm unlock {vmid} && qm destroy {vmid}"
    )
}

/// Whether a lock says that the guest is not complete yet.
pub(crate) fn is_making(lock: &str) -> bool {
    matches!(lock, "clone" | "create" | "import")
}
