//! Where a managed guest may and should run.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ha, RuleKind};
use crate::world::World;

/// Nodes with their priorities, higher is better; nodes that are not listed may not be used.
pub(super) type Choice = BTreeMap<String, i64>;

/// `pve1:2,pve2` as priorities.
fn priorities(nodes: &str) -> BTreeMap<String, i64> {
    nodes
        .split([',', ';', ' '])
        .filter(|part| !part.is_empty())
        .map(|part| match part.split_once(':') {
            Some((node, priority)) => (node.to_owned(), priority.parse().unwrap_or(0)),
            None => (part.to_owned(), 0),
        })
        .collect()
}

/// Nodes that are up and belong to the part of the cluster with quorum.
pub(super) fn alive(world: &World) -> BTreeSet<String> {
    let up = world
        .nodes
        .iter()
        .filter(|(name, node)| node.up && world.quorate(name));
    up.map(|(name, _)| name.clone()).collect()
}

impl Ha {
    /// The preferences for `sid`: node priorities, and whether others are forbidden.
    fn preference(&self, sid: &str) -> Option<(BTreeMap<String, i64>, bool)> {
        let group = self
            .resources
            .get(sid)?
            .group
            .as_ref()
            .and_then(|id| self.groups.get(id));
        if let Some(group) = group {
            return Some((priorities(&group.nodes), group.restricted));
        }
        self.rules
            .values()
            .filter(|rule| !rule.disable && rule.resources.contains(sid))
            .find_map(|rule| match &rule.kind {
                RuleKind::Node { nodes, strict } => Some((priorities(nodes), *strict)),
                RuleKind::Resource { .. } => None,
            })
    }

    /// Whether the guest goes back to a better node by itself.
    pub(super) fn fails_back(&self, sid: &str) -> bool {
        let Some(resource) = self.resources.get(sid) else {
            return false;
        };
        match resource.group.as_ref().and_then(|id| self.groups.get(id)) {
            Some(group) => !group.nofailback,
            None => resource.failback,
        }
    }

    /// The nodes `sid` may run on now, with their priorities.
    pub(super) fn choice(&self, world: &World, sid: &str) -> Choice {
        let alive = alive(world);
        let mut choice: Choice = match self.preference(sid) {
            None => alive.iter().map(|node| (node.clone(), 0)).collect(),
            Some((listed, strict)) => {
                let usable: Choice = listed
                    .into_iter()
                    .filter(|(node, _)| alive.contains(node))
                    .collect();
                if usable.is_empty() && !strict {
                    alive.iter().map(|node| (node.clone(), -1)).collect()
                } else {
                    usable
                }
            }
        };
        for rule in self
            .rules
            .values()
            .filter(|rule| !rule.disable && rule.resources.contains(sid))
        {
            let RuleKind::Resource { together } = rule.kind else {
                continue;
            };
            let others: BTreeSet<&str> = rule
                .resources
                .iter()
                .filter(|other| *other != sid)
                .filter_map(|other| self.services.get(other))
                .map(|service| service.node.as_str())
                .collect();
            if together {
                if choice.keys().any(|node| others.contains(node.as_str())) {
                    choice.retain(|node, _| others.contains(node.as_str()));
                }
            } else {
                choice.retain(|node, _| !others.contains(node.as_str()));
            }
        }
        choice
    }

    /// The best node for `sid`: highest priority, then fewest services.
    pub(super) fn best(&self, world: &World, sid: &str, not: Option<&str>) -> Option<String> {
        let services = |node: &str| self.services.values().filter(|it| it.node == node).count();
        self.choice(world, sid)
            .into_iter()
            .filter(|(node, _)| not != Some(node.as_str()))
            .min_by_key(|(node, priority)| (-priority, services(node), node.clone()))
            .map(|(node, _)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_default_to_zero() {
        let found = priorities("pve1:2,pve2");
        assert_eq!((found["pve1"], found["pve2"]), (2, 0));
    }
}
