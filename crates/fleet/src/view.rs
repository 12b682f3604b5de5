//! A cluster as `/cluster/resources` shows it: one look at everything, up to ten seconds old.

use std::collections::BTreeMap;

use pve::GuestKind;
use tokio::time::Instant;

use crate::{
    NodeName, Size, StorageId, Vmid,
    facts::{ClusterFacts, NodeFacts, PowerFact, Space, StorageFacts, TemplateFacts},
};

/// One look at a cluster.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// When the question was asked: what was done after that may not be in it.
    pub(crate) asked: Instant,
    pub(crate) guests: BTreeMap<Vmid, GuestRow>,
    pub(crate) nodes: BTreeMap<NodeName, NodeRow>,
    pub(crate) storages: BTreeMap<(StorageId, NodeName), StorageRow>,
    /// The bridges and VNets of each node, where they are known.
    pub(crate) bridges: BTreeMap<NodeName, Vec<String>>,
}

/// A guest in a view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GuestRow {
    pub(crate) node: NodeName,
    pub(crate) kind: GuestKind,
    pub(crate) power: PowerFact,
    pub(crate) name: String,
    pub(crate) template: bool,
    pub(crate) uptime: u64,
    pub(crate) cpus: f64,
    pub(crate) memory: Size,
    pub(crate) memory_used: Size,
    pub(crate) lock: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) pool: Option<String>,
    pub(crate) ha: Option<String>,
}

impl GuestRow {
    /// How many processors it has.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a guest's processors are a small whole number"
    )]
    pub(crate) fn processors(&self) -> u32 {
        self.cpus.clamp(0.0, 100_000.0).ceil() as u32
    }

    /// Whether something an owner would want to hear of has changed since `before`.
    pub(crate) fn differs(&self, before: &GuestRow) -> bool {
        self.node != before.node
            || self.power != before.power
            || self.name != before.name
            || self.template != before.template
            || self.lock != before.lock
            || self.tags != before.tags
            || self.pool != before.pool
            || self.ha != before.ha
            || self.memory != before.memory
            || (self.cpus - before.cpus).abs() > f64::EPSILON
            || self.uptime < before.uptime
    }
}

/// A node in a view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeRow {
    pub(crate) online: bool,
    pub(crate) cpus: f64,
    pub(crate) cpu_used: f64,
    pub(crate) memory: Size,
    pub(crate) memory_used: Size,
    pub(crate) ha: Option<String>,
}

impl NodeRow {
    /// A node of which nothing is known but that it is part of the cluster.
    pub(crate) const DOWN: Self = Self {
        online: false,
        cpus: 0.0,
        cpu_used: 0.0,
        memory: Size::ZERO,
        memory_used: Size::ZERO,
        ha: None,
    };

    /// What PVE's manager calls it while it is in maintenance.
    pub(crate) fn maintenance(&self) -> Option<&str> {
        let state = self.ha.as_deref();
        state.filter(|state| state.contains("maintenance"))
    }
}

/// A storage on one node in a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StorageRow {
    pub(crate) available: bool,
    pub(crate) shared: bool,
    pub(crate) kind: String,
    pub(crate) content: Vec<String>,
    pub(crate) space: Space,
}

impl StorageRow {
    pub(crate) fn holds(&self, content: &str) -> bool {
        self.available && self.content.iter().any(|c| c == content)
    }

    /// Whether its volumes take all their space at once.
    pub(crate) fn is_thick(&self) -> bool {
        matches!(self.kind.as_str(), "lvm" | "iscsi" | "iscsidirect")
    }
}

impl View {
    /// Whether guests are to leave a node, because PVE says that it is in maintenance.
    pub(crate) fn is_left(&self, node: &NodeName) -> bool {
        let row = self.nodes.get(node);
        row.is_some_and(|row| row.maintenance().is_some())
    }

    /// Whether a node is there.
    pub(crate) fn node_online(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|row| row.online)
    }

    /// The node to ask for what one has put on a storage: itself; while it is down, or once it has left the cluster, any that has
    /// the storage in common with it. `None` if what was there has left with it.
    pub(crate) fn reaching<'a>(
        &'a self,
        storage: &StorageId,
        node: &'a NodeName,
    ) -> Option<&'a NodeName> {
        if self.node_online(node) {
            return Some(node);
        }
        let shared = self.storages.iter().find(|((id, on), row)| {
            id == storage && row.shared && row.available && self.node_online(on)
        });
        let itself = self.nodes.contains_key(node).then_some(node);
        shared.map(|((_, on), _)| on).or(itself)
    }

    /// A storage as one node sees it.
    pub(crate) fn storage(&self, storage: &StorageId, node: &NodeName) -> Option<&StorageRow> {
        self.storages.get(&(storage.clone(), node.clone()))
    }

    /// The storages of a node that may hold some content, shared ones first.
    pub(crate) fn storages_for(
        &self,
        content: &str,
        node: &NodeName,
    ) -> Vec<(&StorageId, &StorageRow)> {
        let mut found: Vec<_> = self
            .storages
            .iter()
            .filter(|((_, on), row)| on == node && row.holds(content))
            .map(|((id, _), row)| (id, row))
            .collect();
        found.sort_by_key(|(id, row)| (!row.shared, id.as_str().to_owned()));
        found
    }

    /// Where a node keeps what names no storage: a local one, because a disk is better off near its guest.
    pub(crate) fn default_storage(&self, content: &str, node: &NodeName) -> Option<&StorageId> {
        let storages = self.storages_for(content, node);
        let local = storages.iter().rev().find(|(_, row)| !row.shared);
        local.or(storages.first()).map(|(id, _)| *id)
    }

    /// The templates among the guests.
    pub(crate) fn templates(&self) -> impl Iterator<Item = (Vmid, &GuestRow)> {
        self.guests
            .iter()
            .filter(|(_, row)| row.template)
            .map(|(vmid, row)| (*vmid, row))
    }

    /// The part of the cluster's facts that a view can tell.
    pub(crate) fn facts(&self) -> ClusterFacts {
        let mut facts = ClusterFacts {
            reachable: true,
            guests: self.guests.len(),
            ..ClusterFacts::default()
        };
        for (name, row) in &self.nodes {
            facts.nodes.insert(
                name.clone(),
                NodeFacts {
                    online: row.online,
                    cpus: row.cpus,
                    cpu_used: row.cpu_used,
                    memory: row.memory,
                    memory_used: row.memory_used,
                    guests: self
                        .guests
                        .values()
                        .filter(|guest| &guest.node == name)
                        .count(),
                    ha: row.ha.clone(),
                },
            );
        }
        for ((storage, node), row) in &self.storages {
            let entry = facts
                .storages
                .entry(storage.clone())
                .or_insert_with(|| StorageFacts {
                    kind: row.kind.clone(),
                    shared: row.shared,
                    content: row.content.clone(),
                    nodes: BTreeMap::new(),
                });
            if row.available {
                entry.nodes.insert(node.clone(), row.space);
            }
        }
        facts.templates = self
            .templates()
            .map(|(vmid, row)| TemplateFacts {
                vmid,
                name: row.name.clone(),
                node: row.node.clone(),
                tags: row.tags.clone(),
                cpus: row.processors(),
                memory: row.memory,
            })
            .collect();
        facts
    }
}
