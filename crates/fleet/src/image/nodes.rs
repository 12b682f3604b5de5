//! Which nodes get a template.

use std::{cmp::Reverse, time::Duration};

use tokio::time::Instant;

use super::{Flow, Work};
use crate::{NodeName, StorageId, Waiting, record::ReplicaStage, view::View};

/// How long a node that is down is waited for before a template is made on another one.
const PATIENCE: Duration = Duration::from_mins(5);

impl Work<'_> {
    /// The nodes that need a template: those named, or one where the storage is.
    pub(super) fn nodes(&mut self, view: &View) -> Flow<Vec<NodeName>> {
        if !self.intent.nodes.is_empty() {
            return Ok(self.intent.nodes.clone());
        }
        if let Some(node) = self.up(view) {
            self.remembered(|memory| memory.down = None);
            return Ok(vec![node]);
        }
        let down = self.record.replicas.keys().next().cloned();
        let down = down.or_else(|| self.there(view).into_iter().map(|(node, _)| node).next());
        if let Some(node) = &down {
            let now = Instant::now();
            let since = self.remembered(|memory| *memory.down.get_or_insert(now));
            if now - since < PATIENCE {
                return Ok(vec![node.clone()]);
            }
        }
        let has = |storage: &StorageId, node: &NodeName| {
            view.node_online(node)
                && view
                    .storage(storage, node)
                    .is_some_and(|row| row.holds("images"))
        };
        let mut all = view.nodes.keys();
        let other = all.find(|node| has(&self.intent.storage, node)).cloned();
        if let Some(node) = other.or(down) {
            return Ok(vec![node]);
        }
        let storage = &self.intent.storage;
        let text = format!("no node that is up may keep disks on storage '{storage}'");
        Err(self.wait(Waiting::Space, text, Duration::from_secs(30)))
    }

    /// The node that is up and furthest with a template of ours, or has one that can be shared.
    fn up(&self, view: &View) -> Option<NodeName> {
        let replicas = self.record.replicas.iter();
        let up = replicas.filter(|(node, _)| view.node_online(node));
        let best = up.min_by_key(|(_, it)| (it.stage != ReplicaStage::Clean, Reverse(it.stage)));
        let ours = best.map(|(node, _)| node.clone());
        ours.or_else(|| {
            let mut there = self.there(view).into_iter().map(|(node, _)| node);
            there.find(|node| view.node_online(node))
        })
    }

    /// A node that is up where a template was begun that is not needed there any more: nobody is pinned to it by now, or it was
    /// made on another one meanwhile.
    pub(super) fn begun_elsewhere(&self, view: &View, needed: &[NodeName]) -> Option<NodeName> {
        let mut replicas = self.record.replicas.iter();
        let begun = replicas.find(|(node, replica)| {
            replica.stage != ReplicaStage::Clean && view.node_online(node) && !needed.contains(node)
        });
        begun.map(|(node, _)| node.clone())
    }
}
