//! The end of a machine.

use std::time::Duration;

use api::cluster_api::Cluster;
use api::infrastructure::v1beta1::{ProxmoxMachine, ProxmoxMachineStatus};
use api::vm::FleetRecord;
use fleet::intent::Source;
use fleet::{ClusterName, GuestIntent, GuestProgress, Vmid, Waiting};
use kube::ResourceExt as _;

use super::super::cluster::Used;
use super::super::owner;
use super::{record, report};
use crate::conditions::Conditions;
use crate::context::{Context, Error, owner as key};
use crate::removal;
use crate::work::Action;

/// How often it is looked whether the cluster of a guest that is named is known by now.
const UNKNOWN: Duration = Duration::from_secs(30);

/// Brings a machine's end one step nearer; lets the object go when nothing of it is left.
///
/// Nothing is waited for that is not needed: neither the Machine nor the infrastructure's being ready.
pub(super) async fn remove(
    object: &ProxmoxMachine,
    context: &Context,
    cluster: Option<&Cluster>,
    status: ProxmoxMachineStatus,
) -> Result<Action, Error> {
    // The connection is made when its cluster is looked at, so that a fresh start knows it too.
    let infrastructure = cluster.and_then(|cluster| owner::infrastructure(context, cluster).ok());
    let used = match &infrastructure {
        Some(infrastructure) => super::super::cluster::used(context, infrastructure)
            .await
            .ok(),
        None => None,
    };
    let only = used.as_deref().and_then(|used| {
        if let [only] = used {
            only.place.clone().ok()
        } else {
            let mine = used
                .iter()
                .find(|used| used.instance == object.spec.instance)?;
            mine.place.clone().ok()
        }
    });
    let Some(intent) = intent(object, &status, only) else {
        if let Some(vmid) = object.spec.virtual_machine_id {
            return unknown(object, context, status, vmid).await;
        }
        // Nothing was ever chosen, so nothing was ever done.
        context.release(object).await?;
        return Ok(Action::await_change());
    };
    let elsewhere = |used: &Used| used.place.as_ref().is_ok_and(|it| *it != intent.cluster);
    let unlisted = used.is_some_and(|used| used.iter().all(elsewhere));
    removal::remove(context, object, &intent, status, |before, progress| {
        leaving(context, object, before, progress, unlisted)
    })
    .await
}

/// A guest is named, and not known where: it is not let go as if there were none.
async fn unknown(
    object: &ProxmoxMachine,
    context: &Context,
    before: ProxmoxMachineStatus,
    vmid: i64,
) -> Result<Action, Error> {
    let generation = object.metadata.generation;
    let mut now = Conditions::new(&before.conditions, context.clock.time(), generation);
    let message = format!(
        "guest {vmid} cannot be removed: it is not known which PVE cluster it is on; put the ProxmoxCluster and its credentials \
         right, or take the finalizer off this object if there is no such guest"
    );
    now.keep("VirtualMachineProvisioned");
    now.set("Ready", false, Waiting::Cluster.as_str(), &message);
    now.set("Paused", false, "NotPaused", "");
    let status = ProxmoxMachineStatus {
        conditions: now.done(),
        ..before
    };
    let is = object.status.as_ref();
    context
        .statuses
        .write(&context.client, object, is, &status)
        .await?;
    Ok(Action::requeue(UNKNOWN))
}

fn leaving(
    context: &Context,
    object: &ProxmoxMachine,
    before: ProxmoxMachineStatus,
    progress: &GuestProgress,
    unlisted: bool,
) -> ProxmoxMachineStatus {
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        object.metadata.generation,
    );
    let (_, reason, mut message) = report::words(&progress.outcome);
    let unconnected = Waiting::Cluster.as_str() == reason;
    if unlisted && unconnected {
        message += "; list it in the ProxmoxCluster again to have the guest removed";
    }
    now.keep("VirtualMachineProvisioned");
    now.set("Ready", false, reason, &message);
    now.set("Paused", false, "NotPaused", "");
    let task = progress.record.in_flight.first();
    ProxmoxMachineStatus {
        conditions: now.done(),
        task_ref: task.map(|task| task.upid.to_string()),
        record: FleetRecord::of(&progress.record),
        ..before
    }
}

fn intent(
    object: &ProxmoxMachine,
    status: &ProxmoxMachineStatus,
    place: Option<ClusterName>,
) -> Option<GuestIntent> {
    let record = record(status);
    let recorded = record
        .identity
        .as_ref()
        .map(|identity| identity.cluster.clone());
    // Status does not travel: what the spec names may be all there is to know.
    let mut intent = GuestIntent::new(
        key(object)?,
        recorded.or(place)?,
        object.name_any(),
        Source::Empty,
    );
    if record.identity.is_none() {
        let vmid = object
            .spec
            .virtual_machine_id
            .and_then(|id| u32::try_from(id).ok());
        intent.adopt = vmid.and_then(|id| Vmid::new(id).ok());
    }
    intent.proof = Some(super::intent::proof(object));
    // The node has been drained: nothing on it is waited for unless somebody wants that.
    let grace = object.spec.shutdown_timeout_seconds;
    let grace = grace.and_then(|seconds| u64::try_from(seconds).ok());
    intent.policy.shutdown_timeout = Duration::from_secs(grace.unwrap_or(0));
    Some(intent)
}
