//! Whose an object is, in Cluster API's order of things.

use std::sync::Arc;

use api::cluster_api::{
    CLUSTER_NAME_LABEL, Cluster, Initialization, MANAGED_BY_ANNOTATION, Machine, PAUSED_ANNOTATION,
    WATCH_FILTER_LABEL,
};
use api::infrastructure::GROUP;
use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxMachineTemplate};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

use super::Wait;
use crate::context::{Context, namespace};
use crate::hub::Kind;

/// The owner of that kind, by reference.
fn owner_name<K: Kind>(object: &K, kind: &str) -> Option<String> {
    let group = "cluster.x-k8s.io/";
    let mut owners = object.owner_references().iter();
    owners
        .find(|owner| owner.kind == kind && owner.api_version.starts_with(group))
        .map(|owner| owner.name.clone())
}

/// The Cluster a ProxmoxCluster belongs to; Cluster API writes the reference.
pub(super) fn cluster_of(context: &Context, object: &ProxmoxCluster) -> Result<Arc<Cluster>, Wait> {
    let Some(name) = owner_name(object, "Cluster") else {
        return Err(Wait::new(
            "WaitingForOwner",
            "no Cluster refers to this object yet; name it in a Cluster's spec.infrastructureRef",
        ));
    };
    cluster(context, &namespace(object), &name)
}

/// The Cluster that a template's machines are made for; nothing for a template of a class.
pub(super) fn cluster_of_template(
    context: &Context,
    object: &ProxmoxMachineTemplate,
) -> Option<Arc<Cluster>> {
    let owner = owner_name(object, "Cluster");
    let name = owner.or_else(|| cluster_label(object).map(str::to_owned))?;
    cluster(context, &namespace(object), &name).ok()
}

/// The Machine a ProxmoxMachine belongs to; Cluster API writes the reference.
pub(super) fn machine_of<K: Kind>(context: &Context, object: &K) -> Result<Arc<Machine>, Wait> {
    let Some(name) = owner_name(object, "Machine") else {
        return Err(Wait::new(
            "WaitingForOwner",
            "no Machine refers to this object yet; name it in a Machine's spec.infrastructureRef",
        ));
    };
    let place = namespace(object);
    let reference = ObjectRef::new(&name).within(&place);
    context
        .stores
        .capi_machines
        .get(&reference)
        .ok_or_else(|| Wait::new("WaitingForOwner", format!("Machine {name:?} is not there")))
}

/// A Cluster by name.
pub(super) fn cluster(context: &Context, place: &str, name: &str) -> Result<Arc<Cluster>, Wait> {
    let reference = ObjectRef::new(name).within(place);
    context
        .stores
        .capi_clusters
        .get(&reference)
        .ok_or_else(|| Wait::new("WaitingForOwner", format!("Cluster {name:?} is not there")))
}

/// The ProxmoxCluster of a Cluster.
pub(super) fn infrastructure(
    context: &Context,
    cluster: &Cluster,
) -> Result<Arc<ProxmoxCluster>, Wait> {
    let wait = |message: String| Wait::new("WaitingForClusterInfrastructureReady", message);
    let reference = cluster.spec.infrastructure_ref.as_ref();
    let Some(reference) = reference.filter(|r| {
        r.kind == "ProxmoxCluster" && r.api_group.as_deref().is_none_or(|group| group == GROUP)
    }) else {
        return Err(wait(format!(
            "Cluster {:?} names no ProxmoxCluster in spec.infrastructureRef",
            cluster.name_any()
        )));
    };
    let found = ObjectRef::new(&reference.name).within(&namespace(cluster));
    context
        .stores
        .proxmox_clusters
        .get(&found)
        .ok_or_else(|| wait(format!("ProxmoxCluster {:?} is not there", reference.name)))
}

/// Whether Cluster API has seen that the infrastructure of a Cluster is provisioned.
pub(super) fn is_provisioned(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(|status| has_seen(status.initialization.as_ref()))
}

/// Whether Cluster API has seen that the guest of a Machine is provisioned.
pub(super) fn is_machine_provisioned(machine: &Machine) -> bool {
    let status = machine.status.as_ref();
    status.is_some_and(|status| has_seen(status.initialization.as_ref()))
}

fn has_seen(initialization: Option<&Initialization>) -> bool {
    initialization.is_some_and(|it| it.infrastructure_provisioned == Some(true))
}

/// Whether an object is to be left alone for now.
pub(super) fn is_paused<K: Kind>(object: &K, cluster: Option<&Cluster>) -> bool {
    cluster.is_some_and(|cluster| cluster.spec.paused)
        || object.annotations().contains_key(PAUSED_ANNOTATION)
}

/// Whether somebody else looks after an object: another manager of ours, or whoever it is marked for.
pub(super) fn is_foreign<K: Kind>(context: &Context, object: &K) -> bool {
    let others = context
        .watch_filter
        .as_ref()
        .is_some_and(|ours| object.labels().get(WATCH_FILTER_LABEL) != Some(ours));
    others
        || object.annotations().contains_key(MANAGED_BY_ANNOTATION)
        || object.labels().contains_key(MANAGED_BY_ANNOTATION)
}

/// The Cluster an object says it belongs to.
pub(super) fn cluster_label<K: Kind>(object: &K) -> Option<&str> {
    object.labels().get(CLUSTER_NAME_LABEL).map(String::as_str)
}
