//! What is known about a cluster, as status.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::vm::{
    Bytes, Container, DeletionPolicy, NodeInfo, Provider, ProviderStatus, VirtualMachine,
};
use fleet::{ClusterFacts, ClusterName};
use kube::ResourceExt as _;
use pve::privilege::Feature;

use super::super::{action, container, image, machine, refs::Missing, snapshot};
use crate::{
    conditions::{Conditions, Truth},
    context::{Context, namespace},
};

fn conditions(context: &Context, provider: &Provider, before: &ProviderStatus) -> Conditions {
    Conditions::new(
        &before.conditions,
        context.clock.time(),
        provider.metadata.generation,
    )
}

/// A Provider that cannot be used as it is written.
pub(super) fn unusable(
    context: &Context,
    provider: &Provider,
    before: &ProviderStatus,
    missing: &Missing,
) -> ProviderStatus {
    let mut now = conditions(context, provider, before);
    now.set("Ready", false, missing.reason, &missing.message);
    ProviderStatus {
        conditions: now.done(),
        observed_generation: provider.metadata.generation,
        healthy: false,
        ..before.clone()
    }
}

/// A Provider that is connected, and what its cluster says.
pub(super) fn known(
    context: &Context,
    provider: &Provider,
    name: &ClusterName,
    before: &ProviderStatus,
    facts: &ClusterFacts,
) -> ProviderStatus {
    let mut now = conditions(context, provider, before);
    match (facts.reachable, &facts.problem) {
        (true, _) => {
            let nodes = facts.nodes.values().filter(|node| node.online).count();
            let message = format!(
                "Proxmox VE {} with {nodes} of {} nodes online",
                facts.version.as_deref().unwrap_or("of unknown version"),
                facts.nodes.len()
            );
            now.set("Reachable", true, "Answered", "the API answers");
            match facts.quorate {
                Some(false) => now.set(
                    "Ready",
                    false,
                    "NoQuorum",
                    "the cluster has no quorum; nothing can be changed until it has",
                ),
                _ => now.set("Ready", true, "Connected", message),
            }
        }
        (false, Some(problem)) => {
            let reason = match (facts.refused, facts.stranger) {
                (true, _) => "CredentialsRefused",
                (false, true) => "AnotherCluster",
                (false, false) => "Unreachable",
            };
            let message = if facts.stranger {
                format!(
                    "{problem}; let this Provider reach the cluster that its objects are on, and make another Provider for this one. \
                     If it is the same with other nodes, tell so: kubectl patch provider {} --subresource=status --type=merge \
                     -p '{{\"status\":{{\"nodes\":null}}}}'",
                    provider.name_any()
                )
            } else {
                problem.clone()
            };
            now.set(
                "Reachable",
                facts.refused || facts.stranger,
                reason,
                &message,
            );
            now.set("Ready", false, reason, message);
        }
        (false, None) => {
            now.set("Reachable", Truth::Unknown, "Connecting", "no answer yet");
            now.set("Ready", Truth::Unknown, "Connecting", "no answer yet");
        }
    }
    if facts.reachable {
        let (sufficient, reason, message) = privileges(&facts.missing_privileges);
        now.set("PrivilegesSufficient", sufficient, reason, message);
    } else {
        now.keep("PrivilegesSufficient");
    }
    if provider
        .spec
        .runtime
        .as_ref()
        .is_some_and(|runtime| runtime.image.is_some())
    {
        now.set(
            "Runtime",
            true,
            "InProcess",
            "connected from Oxmox's own process; spec.runtime.image is not started",
        );
    }
    let nodes = facts.nodes.iter().map(|(name, node)| NodeInfo {
        name: name.to_string(),
        online: node.online,
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a count of processors, given as a float"
        )]
        cpus: Some(node.cpus as i32).filter(|cpus| *cpus > 0),
        memory: Some(Bytes(node.memory.as_bytes())).filter(|memory| memory.0 > 0),
    });
    let nodes: Vec<NodeInfo> = if facts.nodes.is_empty() {
        before.nodes.clone()
    } else {
        nodes.collect()
    };
    let missing: BTreeSet<&String> = facts.missing_privileges.values().flatten().collect();
    ProviderStatus {
        conditions: now.done(),
        observed_generation: provider.metadata.generation,
        healthy: facts.reachable && facts.quorate != Some(false),
        version: facts.version.clone().or_else(|| before.version.clone()),
        node_count: i32::try_from(nodes.len()).ok(),
        nodes,
        connected_vms: i32::try_from(guests(context, name)).ok(),
        missing_privileges: missing.into_iter().cloned().collect(),
    }
}

/// Whether the privileges suffice, why, and what lacks which. A feature that nobody may use here is no fault.
fn privileges(missing: &BTreeMap<Feature, Vec<String>>) -> (bool, &'static str, String) {
    let (basic, others): (Vec<_>, Vec<_>) = missing.iter().partition(|(it, _)| it.is_basic());
    let basic: BTreeSet<&str> = basic
        .into_iter()
        .flat_map(|(_, lacking)| lacking.iter().map(String::as_str))
        .collect();
    let others = others.into_iter().filter_map(|(feature, lacking)| {
        let lacking = lacking.iter().map(String::as_str);
        let more: Vec<&str> = lacking.filter(|it| !basic.contains(it)).collect();
        (!more.is_empty()).then(|| format!("{} ({})", feature.name(), more.join(", ")))
    });
    let others = others.collect::<Vec<_>>().join("; ");
    let basic = basic.into_iter().collect::<Vec<_>>().join(", ");
    match (basic.is_empty(), others.is_empty()) {
        (true, true) => (true, "Complete", "all privileges are there".to_owned()),
        (true, false) => (
            true,
            "Sufficient",
            format!("machines have what they need; other features lack {others}"),
        ),
        (false, true) => (false, "PrivilegeMissing", format!("grant {basic}")),
        (false, false) => (
            false,
            "PrivilegeMissing",
            format!("grant {basic}; other features lack {others}"),
        ),
    }
}

/// The objects that have something on this cluster: machines, containers, images, and snapshots and backups that go with
/// their objects.
pub(super) fn users(context: &Context, name: &ClusterName) -> Vec<String> {
    let stores = &context.stores;
    let called = |kind: &str, place: String, name: String| format!("{kind} {place}/{name}");
    let (machines, containers) = (machines(context, name), containers(context, name));
    let images = stores.images.state_filter(|image| {
        let status = image.status.as_ref();
        status.is_some_and(|status| image::clusters(status).contains(name))
    });
    let backups = stores.backups.state_filter(|backup| {
        let kept = backup.status.as_ref().and_then(|it| it.record.as_ref());
        backup.spec.deletion_policy == DeletionPolicy::Delete
            && action::record(kept)
                .subject
                .is_some_and(|of| of.cluster == *name)
    });
    let snapshots = stores
        .snapshots
        .state_filter(|it| snapshot::is_kept_on(it).as_ref() == Some(name));
    let mut users: Vec<String> = machines
        .iter()
        .map(|vm| called("VirtualMachine", namespace(&**vm), vm.name_any()))
        .chain(
            containers
                .iter()
                .map(|c| called("Container", namespace(&**c), c.name_any())),
        )
        .chain(
            images
                .iter()
                .map(|i| called("VMImage", namespace(&**i), i.name_any())),
        )
        .chain(
            backups
                .iter()
                .map(|b| called("VMBackup", namespace(&**b), b.name_any())),
        )
        .chain(
            snapshots
                .iter()
                .map(|s| called("VMSnapshot", namespace(&**s), s.name_any())),
        )
        .collect();
    users.sort();
    users
}

/// How many guests of ours are on this cluster.
fn guests(context: &Context, name: &ClusterName) -> usize {
    let (machines, containers) = (machines(context, name), containers(context, name));
    machines.len() + containers.len()
}

fn machines(context: &Context, name: &ClusterName) -> Vec<Arc<VirtualMachine>> {
    context.stores.machines.state_filter(|vm| {
        let cluster = vm.status.as_ref().and_then(machine::recorded_cluster);
        cluster.as_ref() == Some(name)
    })
}

fn containers(context: &Context, name: &ClusterName) -> Vec<Arc<Container>> {
    context.stores.containers.state_filter(|container| {
        let cluster = container
            .status
            .as_ref()
            .and_then(container::recorded_cluster);
        cluster.as_ref() == Some(name)
    })
}
