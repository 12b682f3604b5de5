//! Actions on machines: what snapshots, migrations and backups have in common.

use std::{sync::Arc, time::Duration};

use api::vm::{FleetRecord, Phase, VirtualMachine};
use fleet::{ActionFacts, ActionRecord, ClusterName, Outcome, Owner, Vmid, record::Stage};
use serde_json::Value;

use super::{machine, refs};
use crate::{
    conditions::Conditions,
    context::{Context, owner},
    work::Action,
};

/// How long an action under way is left to the engine's call at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// The guest an action is done to.
pub(super) struct Target {
    pub(super) machine: Arc<VirtualMachine>,
    pub(super) cluster: ClusterName,
    pub(super) vmid: Vmid,
    pub(super) owner: Option<Owner>,
    pub(super) node: Option<String>,
}

/// The guest of a machine.
pub(super) fn target(context: &Context, place: &str, name: &str) -> Result<Target, refs::Missing> {
    let machine = refs::find(&context.stores.machines, place, name).ok_or_else(|| {
        refs::Missing::new(
            "MachineNotFound",
            format!("there is no VirtualMachine {name:?} in namespace {place:?}"),
        )
    })?;
    let status = machine.status.clone().unwrap_or_default();
    let record = machine::record(&status);
    // Before that it may lie on another node than its own, and a snapshot would hold it there.
    let made = |adopted| adopted || record.stage >= Stage::Configured;
    let identity = record
        .identity
        .filter(|identity| made(identity.adopted))
        .ok_or_else(|| {
            refs::Missing::new(
                "WaitingForMachine",
                format!("VirtualMachine {name:?} has not been made on PVE yet"),
            )
        })?;
    Ok(Target {
        owner: owner(&*machine).filter(|_| !identity.adopted),
        cluster: identity.cluster,
        vmid: identity.vmid,
        node: status.node,
        machine,
    })
}

/// The engine's record of an action.
pub(super) fn record(kept: Option<&FleetRecord>) -> ActionRecord {
    kept.and_then(|record| serde_json::from_value(record.0.clone()).ok())
        .unwrap_or_default()
}

/// The record as it is kept on the object.
pub(super) fn keep(record: &ActionRecord) -> Option<FleetRecord> {
    serde_json::to_value(record)
        .ok()
        .filter(Value::is_object)
        .map(FleetRecord)
}

/// What became of an action, as `Ready` and a phase.
pub(super) fn outcome(
    now: &mut Conditions,
    outcome: &Outcome,
    done: &str,
    facts: &ActionFacts,
) -> Phase {
    let at = facts
        .node
        .as_ref()
        .map(|node| format!(" on {node}"))
        .unwrap_or_default();
    match outcome {
        Outcome::Persist => {
            now.set("Ready", false, "Preparing", "about to begin");
            Phase::Pending
        }
        Outcome::Working { step, message } => {
            now.set("Ready", false, machine::doing(*step), message);
            Phase::Provisioning
        }
        Outcome::Waiting { what, message, .. } => {
            now.set("Ready", false, what.as_str(), message);
            Phase::Pending
        }
        Outcome::Settled | Outcome::Gone => {
            now.set("Ready", true, "Completed", format!("{done}{at}"));
            Phase::Succeeded
        }
        Outcome::Failed { why, message } => {
            now.set("Ready", false, why.as_str(), message);
            Phase::Failed
        }
    }
}

/// When to look again.
pub(super) fn next(outcome: &Outcome) -> Action {
    match outcome {
        Outcome::Waiting { retry, .. } => Action::requeue(*retry),
        Outcome::Working { .. } | Outcome::Persist => Action::requeue(PATIENCE),
        Outcome::Settled | Outcome::Gone | Outcome::Failed { .. } => Action::await_change(),
    }
}
