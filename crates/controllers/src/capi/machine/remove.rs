//! The end of a machine.

use std::time::Duration;

use api::cluster_api::Cluster;
use api::infrastructure::v1beta1::{ProxmoxMachine, ProxmoxMachineStatus};
use api::vm::FleetRecord;
use fleet::intent::Source;
use fleet::{ClusterName, GuestIntent, Outcome, Vmid};
use kube::ResourceExt as _;
use kube::runtime::controller::Action;

use super::super::owner;
use super::{PATIENCE, record, report, write};
use crate::conditions::Conditions;
use crate::context::{Context, Error, owner as key};

/// Brings a machine's end one step nearer; lets the object go when nothing of it is left.
///
/// Nothing is waited for that is not needed: neither the Machine nor the infrastructure's being ready.
pub(super) async fn remove(
    object: &ProxmoxMachine,
    context: &Context,
    cluster: Option<&Cluster>,
    mut status: ProxmoxMachineStatus,
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
        // Nothing was ever chosen, so nothing was ever done.
        context.release(object).await?;
        return Ok(Action::await_change());
    };
    loop {
        let progress = context.fleet.delete(&intent, &record(&status)).await;
        let outcome = progress.outcome.clone();
        context.tell(object, &progress.events).await;
        if outcome == Outcome::Gone {
            context.fleet.forget(&intent.owner);
            context.release(object).await?;
            return Ok(Action::await_change());
        }
        let mut now = Conditions::new(
            &status.conditions,
            context.clock.time(),
            object.metadata.generation,
        );
        let (_, reason, message) = report::words(&outcome);
        now.keep("VirtualMachineProvisioned");
        now.set("Ready", false, reason, &message);
        now.set("Paused", false, "NotPaused", "");
        status = ProxmoxMachineStatus {
            conditions: now.done(),
            task_ref: progress
                .record
                .in_flight
                .first()
                .map(|task| task.upid.to_string()),
            record: serde_json::to_value(&progress.record).ok().map(FleetRecord),
            ..status
        };
        write(context, object, &status).await?;
        match outcome {
            Outcome::Persist => {}
            Outcome::Waiting {
                what,
                message,
                retry,
            } => {
                context.warn(object, what.as_str(), &message).await;
                return Ok(Action::requeue(retry));
            }
            Outcome::Failed { why, message } => {
                context.warn(object, why.as_str(), &message).await;
                return Ok(Action::requeue(Duration::from_mins(1)));
            }
            Outcome::Working { .. } | Outcome::Settled | Outcome::Gone => {
                return Ok(Action::requeue(PATIENCE));
            }
        }
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
    // Without a record a call may still have been made whose record was lost: the engine looks for the mark.
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
    Some(intent)
}
