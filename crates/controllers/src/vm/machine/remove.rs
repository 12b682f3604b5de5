//! The end of a machine.

use std::time::Duration;

use api::vm::{FleetRecord, Phase, StepView, VirtualMachine, VirtualMachineStatus};
use fleet::{GuestIntent, Outcome, intent::Source};
use kube::ResourceExt as _;

use super::{
    super::{refs, translate},
    record,
};
use crate::{
    conditions::Conditions,
    context::{Context, Error, FINALIZER, namespace, owner},
    removal,
    work::Action,
};

/// Brings a machine's end one step nearer; lets the object go when nothing of it is left.
///
/// What is removed is what the record names, so nothing else the object refers to has to exist any more.
pub(super) async fn remove(
    machine: &VirtualMachine,
    context: &Context,
    status: VirtualMachineStatus,
) -> Result<Action, Error> {
    if !machine.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Action::await_change());
    }
    let Some(intent) = intent(machine, context, &status) else {
        // Nothing was ever chosen, so nothing was ever done.
        context.release(machine).await?;
        return Ok(Action::await_change());
    };
    removal::remove(context, machine, &intent, status, |before, progress| {
        leaving(context, machine, before, progress)
    })
    .await
}

fn intent(
    machine: &VirtualMachine,
    context: &Context,
    status: &VirtualMachineStatus,
) -> Option<GuestIntent> {
    let record = record(status);
    let spec = &machine.spec;
    // When nothing is recorded a guest may still have been made whose record was lost: then the engine looks
    // for its mark, on the cluster the machine would be on.
    let adopted = super::is_adopted(spec, &record);
    let recorded = record.identity.map(|identity| identity.cluster);
    let cluster = recorded.or_else(|| {
        let named = spec.provider_ref.as_ref();
        let provider = refs::provider(context, &namespace(machine), named, None).ok()?;
        refs::cluster(&provider).ok()
    })?;
    let mut intent = GuestIntent::new(owner(machine)?, cluster, machine.name_any(), Source::Empty);
    intent.adopt = spec
        .adopt
        .as_ref()
        .and_then(|adopt| fleet::Vmid::new(adopt.vmid).ok());
    intent.policy.deletion = translate::deletion(spec.deletion(adopted));
    intent.policy.protected = spec.protection == Some(true);
    if let Some(seconds) = spec.shutdown_timeout_seconds {
        intent.policy.shutdown_timeout = Duration::from_secs(seconds.into());
    }
    Some(intent)
}

fn leaving(
    context: &Context,
    machine: &VirtualMachine,
    before: VirtualMachineStatus,
    progress: &fleet::GuestProgress,
) -> VirtualMachineStatus {
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        machine.metadata.generation,
    );
    let (reason, message) = match &progress.outcome {
        Outcome::Working { step, message } => (super::report::doing(*step), message.clone()),
        Outcome::Waiting { what, message, .. } => (what.as_str(), message.clone()),
        Outcome::Failed { why, message } => (why.as_str(), message.clone()),
        Outcome::Persist | Outcome::Settled | Outcome::Gone => {
            ("Deleting", "being removed".to_owned())
        }
    };
    now.set("Ready", false, reason, message.clone());
    now.keep("Provisioned");
    let task = progress
        .record
        .in_flight
        .first()
        .map(|task| task.upid.to_string());
    VirtualMachineStatus {
        conditions: now.done(),
        observed_generation: machine.metadata.generation,
        phase: Some(Phase::Deleting),
        current_step: Some(StepView {
            step: message,
            task,
        }),
        record: FleetRecord::of(&progress.record),
        ..before
    }
}
