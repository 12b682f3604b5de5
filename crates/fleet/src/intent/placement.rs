//! Where a guest may live.

use crate::{NodeName, Size};

/// Wishes for the node a guest is made on. A guest that exists is moved on request only (`MigrationIntent`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// Only these nodes; empty is any.
    pub nodes: Vec<NodeName>,
    /// Never these nodes.
    pub avoid: Vec<NodeName>,
    /// Keep away from guests that carry one of these tags.
    pub anti_affinity: Vec<AntiAffinity>,
    /// At most so many guests on the node, templates not counted.
    pub max_guests: Option<u32>,
    /// Memory that must stay free on the node after the guest is there.
    pub min_free_memory: Option<Size>,
    /// The guest's processors and memory must fit one socket of the node.
    pub fit_numa: bool,
    /// Memory that may be promised, in percent of the node's; 100 if `None`.
    pub memory_percent: Option<u32>,
    /// Processors that may be promised, in percent of the node's; unlimited if `None`.
    pub cpu_percent: Option<u32>,
}

/// Guests to keep away from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AntiAffinity {
    /// Guests with any of these tags.
    pub tags: Vec<String>,
    /// Prefer only: if no other node fits, share one.
    pub preferred: bool,
}
