//! Reading who a guest is before it is touched.

use std::{sync::Arc, time::Duration};

use pve::{GuestConfig, api::guest::ConfigView};
use tokio::time::Instant;

use super::{Flow, Pass};
use crate::{NodeName, Owner, Waiting, mark, prop::Prop, record::Identity};

/// Who is found under a VMID.
pub(super) enum Sight {
    /// Our guest, on this node.
    Ours(Arc<GuestConfig>, NodeName),
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
        for node in nodes {
            match self
                .handle(&node, identity.vmid)
                .config(ConfigView::Next)
                .await
            {
                Ok(config) => return Ok(self.recognise(identity, config, node)),
                Err(error) if error.is_guest_not_found() => {}
                Err(error) => return Err(self.node_trouble(&node, "reading the guest", &error)),
            }
        }
        // Not there is not gone: it may have moved. Only PVE's own list of VMIDs knows.
        match self.cluster.client.cluster().is_free(identity.vmid).await {
            Ok(true) => Ok(Sight::Absent),
            Ok(false) => {
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

    fn recognise(&mut self, identity: &Identity, config: GuestConfig, node: NodeName) -> Sight {
        let description = config.description().unwrap_or_default();
        let owner = mark::owner_of(description);
        let uuid = config
            .get("smbios1")
            .and_then(|text| Prop::parse("smbios1", text).get("uuid").map(str::to_owned));
        let same_uuid =
            uuid.is_some_and(|uuid| uuid.eq_ignore_ascii_case(&identity.uuid.to_string()));
        let ours = match owner {
            Some(owner) => {
                owner == self.intent.owner
                    || (identity.adopted && same_uuid && self.is_former_self(&owner))
            }
            // A guest taken over carries no mark until one was written; its UUID tells.
            None => {
                identity.adopted
                    && (same_uuid || identity.uuid.is_nil())
                    && !mark::is_marked(description)
            }
        };
        if !ours {
            let whose = mark::owner_of(description)
                .map_or_else(|| "nobody we know".to_owned(), |owner| format!("'{owner}'"));
            return Sight::Foreign(format!("guest {} belongs to {whose}", identity.vmid));
        }
        let config = Arc::new(config);
        let now = Instant::now();
        self.memory(|memory| {
            memory.verified = Some(now);
            memory.model = Some(config.clone());
        });
        Sight::Ours(config, node)
    }

    /// Whether a mark is the owner's own, from before its object was moved to another API server.
    pub(super) fn is_former_self(&self, owner: &Owner) -> bool {
        let proof = self.intent.proof.as_ref();
        proof.is_some_and(|proof| owner.as_str().starts_with(&proof.former))
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
