//! What is known about a cluster, as status.

use std::sync::Arc;

use api::cluster_api::CONTROL_PLANE_LABEL;
use api::infrastructure::v1beta1::{
    FailureDomain, Initialization, InstanceStatus, MachineLocation, NodeLocations, ProxmoxCluster,
    ProxmoxClusterStatus, ProxmoxMachine, ZonePools,
};
use api::vm::LocalRef;
use kube::ResourceExt as _;

use super::super::Wait;
use super::{Used, instances, pools};
use crate::conditions::Conditions;
use crate::context::Context;

fn begin(context: &Context, object: &ProxmoxCluster, before: &ProxmoxClusterStatus) -> Conditions {
    Conditions::new(
        &before.conditions,
        context.clock.time(),
        object.metadata.generation,
    )
}

/// It is left alone.
pub(super) fn paused(
    context: &Context,
    object: &ProxmoxCluster,
    before: &ProxmoxClusterStatus,
) -> ProxmoxClusterStatus {
    let mut now = begin(context, object, before);
    now.keep("ProxmoxAvailable");
    now.keep("Ready");
    now.set(
        "Paused",
        true,
        "Paused",
        "the Cluster or this object is paused",
    );
    ProxmoxClusterStatus {
        conditions: now.done(),
        ..before.clone()
    }
}

/// Something is missing.
pub(super) fn waiting(
    context: &Context,
    object: &ProxmoxCluster,
    before: &ProxmoxClusterStatus,
    wait: &Wait,
) -> ProxmoxClusterStatus {
    let mut now = begin(context, object, before);
    now.set("ProxmoxAvailable", false, wait.reason, &wait.message);
    now.set("Ready", false, wait.reason, &wait.message);
    now.set("Paused", false, "NotPaused", "");
    ProxmoxClusterStatus {
        conditions: now.done(),
        ..before.clone()
    }
}

/// Machines can be made.
pub(super) fn available(
    context: &Context,
    object: &ProxmoxCluster,
    before: &ProxmoxClusterStatus,
    used: &[Used],
) -> ProxmoxClusterStatus {
    let mut now = begin(context, object, before);
    let down: Vec<_> = used.iter().filter(|used| !used.is_ready()).collect();
    let message = match down.as_slice() {
        [] => String::new(),
        down => {
            let names = down
                .iter()
                .map(|used| used.instance.as_deref().unwrap_or("Proxmox VE"));
            format!(
                "not answering, so new machines go elsewhere: {}",
                names.collect::<Vec<_>>().join(", ")
            )
        }
    };
    now.set("ProxmoxAvailable", true, "Provisioned", &message);
    now.set("Ready", true, "Provisioned", &message);
    now.set("Paused", false, "NotPaused", "");
    let machines = instances::machines(context, object);
    let own = pools::all(object);
    let default = object.name_any();
    ProxmoxClusterStatus {
        initialization: Some(Initialization {
            provisioned: Some(true),
        }),
        ready: Some(true),
        conditions: now.done(),
        failure_domains: failure_domains(object, used),
        instances: used
            .iter()
            .filter_map(|used| instance(used, &machines))
            .collect(),
        selected_instance: match used {
            [only] => only.instance.clone(),
            _ => None,
        },
        in_cluster_ip_pool_ref: own
            .iter()
            .filter(|(name, _)| {
                [format!("{default}-v4-icip"), format!("{default}-v6-icip")].contains(name)
            })
            .map(|(name, _)| LocalRef { name: name.clone() })
            .collect(),
        in_cluster_zone_ref: zones(
            object,
            &own.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ),
        node_locations: locations(&machines),
        deprecated: before.deprecated.clone(),
    }
}

fn instance(used: &Used, machines: &[Arc<ProxmoxMachine>]) -> Option<InstanceStatus> {
    let name = used.instance.clone()?;
    let on = |machine: &&Arc<ProxmoxMachine>| machine.spec.instance.as_ref() == Some(&name);
    let on: Vec<_> = machines.iter().filter(on).collect();
    let control_plane = on.iter().filter(|machine| is_control_plane(machine));
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    Some(InstanceStatus {
        ready: Some(used.is_ready()),
        machines: Some(count(on.len())),
        control_plane_machines: Some(count(control_plane.count())),
        name,
    })
}

fn is_control_plane(machine: &ProxmoxMachine) -> bool {
    machine.labels().contains_key(CONTROL_PLANE_LABEL)
}

/// Every instance and every group of nodes is a place whose machines may fail together. Where none can be made now, none of the
/// control plane is to be sent: it would wait there, while another place could take it.
fn failure_domains(object: &ProxmoxCluster, used: &[Used]) -> Vec<FailureDomain> {
    let domain = |name: &str, open: bool, attributes: &[(&str, &str)]| FailureDomain {
        name: name.to_owned(),
        control_plane: Some(open),
        attributes: attributes
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let groups = &object.spec.node_groups;
    let instances = used
        .iter()
        .filter_map(|used| Some((used.instance.as_deref()?, used)))
        // An instance divided into groups is as many domains as it has groups.
        .filter(|(name, _)| {
            !groups
                .iter()
                .any(|group| group.instance.as_deref() == Some(name))
        })
        .map(|(name, used)| domain(name, !used.is_down(), &[("type", "instance")]));
    let groups = groups.iter().filter_map(|group| {
        let of = |used: &&Used| group.instance.is_none() || used.instance == group.instance;
        let mut of = used.iter().filter(of).peekable();
        // One of an instance that the mode does not use is nowhere.
        of.peek()?;
        let open = of.any(|used| !used.is_down() && used.has_one_of(&group.nodes));
        let nodes = group.nodes.join(",");
        let mut attributes = vec![("nodes", nodes.as_str()), ("type", "nodeGroup")];
        attributes.extend(group.instance.as_deref().map(|name| ("instance", name)));
        Some(domain(&group.name, open, &attributes))
    });
    instances.chain(groups).collect()
}

fn zones(object: &ProxmoxCluster, pools: &[String]) -> Vec<ZonePools> {
    let name = object.name_any();
    let found = |zone: &str, family: &str| {
        let pool = format!("{name}-{zone}-{family}-icip");
        pools.contains(&pool).then_some(LocalRef { name: pool })
    };
    let zones = object.spec.zone_config.iter().map(|zone| ZonePools {
        zone: zone.zone.clone(),
        v4: found(&zone.zone, "v4"),
        v6: found(&zone.zone, "v6"),
    });
    zones.collect()
}

fn locations(machines: &[Arc<ProxmoxMachine>]) -> Option<NodeLocations> {
    let mut locations = NodeLocations::default();
    for machine in machines {
        let Some(node) = machine
            .status
            .as_ref()
            .and_then(|status| status.proxmox_node.clone())
        else {
            continue;
        };
        let location = MachineLocation {
            machine: LocalRef {
                name: machine.name_any(),
            },
            node,
            zone: machine
                .spec
                .network
                .as_ref()
                .and_then(|network| network.zone.clone()),
            instance: machine.spec.instance.clone(),
        };
        if is_control_plane(machine) {
            locations.control_plane.push(location);
        } else {
            locations.workers.push(location);
        }
    }
    (locations != NodeLocations::default()).then_some(locations)
}
