//! Guests that a placement policy keeps another one apart from.
//!
//! Those that have a node are known by it. Those that are about to get one are known by the tags they will carry: every
//! label that some policy speaks of is a tag in the very call that makes its guest.

use api::vm::{AntiAffinityTerm, Container, VMPlacementPolicy, VirtualMachine};
use fleet::ClusterName;
use kube::{Resource, ResourceExt as _};

use super::{container, machine, translate::anti_affinity_tag};
use crate::context::{Context, namespace};

/// What a guest is kept apart from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Apart {
    /// Nodes that run such guests.
    pub(crate) nodes: Vec<String>,
    /// Tags that such guests have, or will have.
    pub(crate) tags: Vec<String>,
}

/// What the policy keeps a guest apart from on this cluster.
pub(super) fn from<K>(
    context: &Context,
    guest: &K,
    policy: Option<&VMPlacementPolicy>,
    cluster: &ClusterName,
) -> Apart
where
    K: Resource<DynamicType = ()>,
{
    let terms = policy.map_or(&[][..], |policy| &policy.spec.anti_affinity);
    let mut apart = Apart::default();
    if terms.is_empty() {
        return apart;
    }
    let place = namespace(guest);
    let machines = context.stores.machines.state_filter(|other| {
        namespace(other) == place && other.uid() != guest.uid() && matches(terms, other)
    });
    for other in machines {
        let status = other.status.as_ref();
        let is_here = status.and_then(machine::recorded_cluster).as_ref() == Some(cluster);
        let node = status.filter(|_| is_here).and_then(|it| it.node.clone());
        apart.add(terms, &*other, node);
    }
    let containers = context.stores.containers.state_filter(|other| {
        namespace(other) == place && other.uid() != guest.uid() && matches(terms, other)
    });
    for other in containers {
        let status = other.status.as_ref();
        let is_here = status.and_then(container::recorded_cluster).as_ref() == Some(cluster);
        let node = status.filter(|_| is_here).and_then(|it| it.node.clone());
        apart.add(terms, &*other, node);
    }
    for list in [&mut apart.nodes, &mut apart.tags] {
        list.sort();
        list.dedup();
    }
    apart
}

impl Apart {
    fn add(&mut self, terms: &[AntiAffinityTerm], other: &impl Labelled, node: Option<String>) {
        self.nodes.extend(node);
        let tags = terms.iter().filter_map(|term| {
            let value = other.label(&term.key)?;
            let meant = term.matches(|key| other.label(key));
            meant.then(|| anti_affinity_tag(&term.key, value))
        });
        self.tags.extend(tags);
    }
}

/// Something with labels.
trait Labelled {
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labelled for VirtualMachine {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels().get(key).map(String::as_str)
    }
}

impl Labelled for Container {
    fn label(&self, key: &str) -> Option<&str> {
        self.labels().get(key).map(String::as_str)
    }
}

fn matches(terms: &[AntiAffinityTerm], other: &impl Labelled) -> bool {
    terms
        .iter()
        .any(|term| term.matches(|key| other.label(key)))
}

/// Label keys that policies of a namespace speak of.
pub(super) fn watched_labels(context: &Context, place: &str) -> Vec<String> {
    let policies = context
        .stores
        .policies
        .state_filter(|policy| namespace(policy) == place);
    let terms = policies
        .iter()
        .flat_map(|policy| &policy.spec.anti_affinity);
    let mut keys: Vec<String> = terms.map(|term| term.key.clone()).collect();
    keys.sort();
    keys.dedup();
    keys
}
