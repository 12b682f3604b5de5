//! Actions on guests: what snapshots, migrations and backups have in common.

use std::{sync::Arc, time::Duration};

use api::vm::{
    Container, FleetRecord, GuestKind, GuestRef, Phase, PowerState, RevertWish, VirtualMachine,
};
use fleet::{
    ActionFacts, ActionRecord, ClusterName, GuestIntent, Outcome, Owner, Vmid,
    record::{Likeness, Stage, Subject},
};

use super::{
    container, machine,
    refs::{self, Lookup},
};
use crate::{
    conditions::Conditions,
    context::{Context, owner},
    work::Action,
};

/// How long an action under way is left to the engine's call at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// The guest an action is done to.
pub(super) struct Target {
    pub(super) guest: Guest,
    pub(super) cluster: ClusterName,
    pub(super) vmid: Vmid,
    pub(super) owner: Option<Owner>,
    pub(super) keeper: Option<Owner>,
    pub(super) likeness: Likeness,
    pub(super) node: Option<String>,
}

impl From<Target> for Subject {
    fn from(target: Target) -> Self {
        Self {
            cluster: target.cluster,
            guest: target.vmid,
            owner: target.owner,
            keeper: target.keeper,
            likeness: target.likeness,
        }
    }
}

/// Who keeps a guest.
pub(super) enum Guest {
    Machine(Arc<VirtualMachine>),
    Container(Arc<Container>),
}

impl Guest {
    /// The snapshot it is to go back to.
    pub(super) fn revert(&self) -> Option<&RevertWish> {
        match self {
            Guest::Machine(machine) => machine.status.as_ref()?.revert.as_ref(),
            Guest::Container(container) => container.status.as_ref()?.revert.as_ref(),
        }
    }

    /// The snapshot it went back to for its present wish.
    pub(super) fn reverted_to(&self) -> Option<&str> {
        match self {
            Guest::Machine(machine) => machine.status.as_ref()?.reverted_to.as_deref(),
            Guest::Container(container) => container.status.as_ref()?.reverted_to.as_deref(),
        }
    }

    /// Whether it is declared to run, or runs and is to be left so.
    pub(super) fn is_on(&self) -> bool {
        let declared = match self {
            Guest::Machine(machine) => {
                let (spec, status) = (&machine.spec, machine.status.as_ref());
                if spec.power_state.is_none() && spec.adopt.is_some() {
                    // It is left as it is.
                    let power = status.and_then(|status| status.power_state.as_deref());
                    return power == Some("On");
                }
                spec.power_state.unwrap_or_default()
            }
            Guest::Container(container) => container.spec.power_state,
        };
        declared == PowerState::On
    }

    /// The one node it may be on.
    pub(super) fn pinned(&self) -> Option<&String> {
        match self {
            Guest::Machine(machine) => machine.spec.node.as_ref(),
            Guest::Container(container) => container.spec.node.as_ref(),
        }
    }

    /// What is declared of it.
    pub(super) async fn declared(&self, context: &Context) -> Result<GuestIntent, Lookup> {
        match self {
            Guest::Machine(machine) => machine::declared(context, machine).await,
            Guest::Container(container) => container::declared(context, container).await,
        }
    }

    /// Asks for a look at it.
    pub(super) fn look_again(&self, context: &Context) {
        match self {
            Guest::Machine(machine) => context.queues.machines.push_object(machine),
            Guest::Container(container) => context.queues.containers.push_object(container),
        }
    }
}

/// The guest an object names.
pub(super) fn target(
    context: &Context,
    place: &str,
    named: &GuestRef,
) -> Result<Target, refs::Missing> {
    let name = &named.name;
    let absent = |reason: &'static str, kind: &str| {
        let text = format!("there is no {kind} {name:?} in namespace {place:?}");
        refs::Missing::new(reason, text)
    };
    let (guest, record, node, owner) = match named.kind {
        GuestKind::VirtualMachine => {
            let machine = refs::find(&context.stores.machines, place, name)
                .ok_or_else(|| absent("MachineNotFound", "VirtualMachine"))?;
            let status = machine.status.clone().unwrap_or_default();
            let (record, owner) = (machine::record(&status), owner(&*machine));
            (Guest::Machine(machine), record, status.node, owner)
        }
        GuestKind::Container => {
            let container = refs::find(&context.stores.containers, place, name)
                .ok_or_else(|| absent("ContainerNotFound", "Container"))?;
            let status = container.status.clone().unwrap_or_default();
            let (record, owner) = (container::record(&status), owner(&*container));
            (Guest::Container(container), record, status.node, owner)
        }
    };
    // Before that it may lie on another node than its own, and a snapshot would hold it there.
    let made = |adopted| adopted || record.stage >= Stage::Configured;
    let identity = record
        .identity
        .filter(|identity| made(identity.adopted))
        .ok_or_else(|| {
            let text = format!("{:?} {name:?} has not been made on PVE yet", named.kind);
            refs::Missing::new("WaitingForMachine", text)
        })?;
    Ok(Target {
        owner: owner.clone().filter(|_| !identity.adopted),
        keeper: owner.filter(|_| identity.adopted),
        likeness: identity.likeness(),
        cluster: identity.cluster,
        vmid: identity.vmid,
        node,
        guest,
    })
}

/// The engine's record of an action.
pub(super) fn record(kept: Option<&FleetRecord>) -> ActionRecord {
    kept.and_then(FleetRecord::read).unwrap_or_default()
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
