//! `VirtualMachine`: one guest per object, kept as declared.

mod remove;
mod report;
mod resolve;

use std::{sync::Arc, time::Duration};

use api::vm::{
    FleetRecord, GuestRef, ManagementPolicy, VirtualMachine, VirtualMachineSpec,
    VirtualMachineStatus,
};
use fleet::{ClusterName, GuestIntent, GuestProgress, GuestRecord, Outcome};
use kube::ResourceExt as _;

pub(crate) use self::report::{addresses, differences, doing, is_lost};
use super::{
    follow::{self, Stay},
    refs::Lookup,
};
use crate::{
    context::{Context, Error, FIRST_LOOK, namespace},
    kinds::Watches,
    work::Action,
};

/// How long a machine whose guest is being worked on is left to the engine's call at most.
const PATIENCE: Duration = Duration::from_secs(30);

/// The engine's record of a machine.
pub(crate) fn record(status: &VirtualMachineStatus) -> GuestRecord {
    let kept = status.record.as_ref();
    kept.and_then(FleetRecord::read).unwrap_or_default()
}

/// Whether a machine's guest was there before it. The record knows it, whatever becomes of the spec.
pub(crate) fn is_adopted(spec: &VirtualMachineSpec, record: &GuestRecord) -> bool {
    let identity = record.identity.as_ref();
    spec.adopt.is_some() || identity.is_some_and(|identity| identity.adopted)
}

impl crate::removal::KeepsGuest for VirtualMachineStatus {
    fn guest(&self) -> GuestRecord {
        record(self)
    }
}

/// What is declared of a machine, with everything it refers to.
pub(crate) async fn declared(
    context: &Context,
    machine: &VirtualMachine,
) -> Result<GuestIntent, Lookup> {
    let status = machine.status.clone().unwrap_or_default();
    resolve::intent(context, machine, &status).await
}

/// The cluster a machine's guest was put on.
pub(crate) fn recorded_cluster(status: &VirtualMachineStatus) -> Option<ClusterName> {
    record(status).identity.map(|identity| identity.cluster)
}

/// Whether a machine's guest has run, and read its first-boot data.
pub(super) fn has_booted(status: &VirtualMachineStatus) -> bool {
    record(status).booted
}

/// A machine is looked at again when an object it reads has changed.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let again = |context: &Arc<Context>| {
        let context = context.clone();
        move |reads: &dyn Fn(&VirtualMachine) -> bool| {
            for machine in context.stores.machines.state() {
                if reads(&machine) {
                    context.queues.machines.push_object(&machine);
                }
            }
        }
    };
    let named = |r: Option<&api::vm::LocalRef>, name: &str| r.is_some_and(|r| r.name == name);

    let (push, changes) = (again(context), crate::hub::SpecChanges::new());
    watches.classes.subscribe(move |class| {
        let (place, name) = (namespace(class), class.name_any());
        if changes.is_new(class) {
            push(&|vm| namespace(vm) == place && named(vm.spec.class_ref.as_ref(), &name));
        }
    });
    let push = again(context);
    watches.images.subscribe(move |image| {
        let (place, name) = (namespace(image), image.name_any());
        push(&|vm| namespace(vm) == place && named(vm.spec.image_ref.as_ref(), &name));
    });
    let (push, changes) = (again(context), crate::hub::SpecChanges::new());
    watches.policies.subscribe(move |policy| {
        let place = namespace(policy);
        if changes.is_new(policy) {
            // A policy's labels are put on machines that do not refer to it, too.
            push(&|vm| namespace(vm) == place);
        }
    });
    let (push, changes) = (again(context), crate::hub::SpecChanges::new());
    watches.providers.subscribe(move |provider| {
        let name = provider.name_any();
        if changes.is_new(provider) {
            push(&|vm| vm.spec.provider_ref.as_ref().is_none_or(|r| r.name == name));
        }
    });
    // A machine that is copied from another waits for it.
    let push = again(context);
    watches.machines.subscribe(move |source| {
        let (place, name) = (namespace(source), source.name_any());
        push(&|vm| {
            namespace(vm) == place
                && vm
                    .status
                    .as_ref()
                    .is_none_or(|status| status.vmid.is_none())
                && vm
                    .spec
                    .clone_from
                    .as_ref()
                    .is_some_and(|from| from.vm_ref.name == name)
        });
    });
    let push = again(context);
    watches.snapshots.subscribe(move |snapshot| {
        let (place, name) = (namespace(snapshot), snapshot.name_any());
        push(&|vm| {
            let from = vm.spec.clone_from.as_ref();
            let made = vm.status.as_ref().is_some_and(|it| it.vmid.is_some());
            !made
                && namespace(vm) == place
                && named(from.and_then(|from| from.snapshot_ref.as_ref()), &name)
        });
    });
    let push = again(context);
    watches.backups.subscribe(move |backup| {
        let (place, name) = (namespace(backup), backup.name_any());
        push(&|vm| {
            let from = vm.spec.restore_from.as_ref();
            namespace(vm) == place && named(from.and_then(|from| from.backup_ref.as_ref()), &name)
        });
    });
}

pub(crate) async fn reconcile(
    machine: Arc<VirtualMachine>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let uid = machine.uid().unwrap_or_default();
    let mut before: VirtualMachineStatus = context.statuses.newest(&uid, machine.status.as_ref());
    if context.statuses.is_behind(&uid) {
        // What could not be written last time goes first: nothing is done on an unstored record.
        write(&context, &machine, &before).await?;
    }
    if machine.metadata.deletion_timestamp.is_some() {
        return remove::remove(&machine, &context, before).await;
    }
    context.hold(&*machine).await?;
    let managed = machine.spec.management_policy == ManagementPolicy::Manage;
    let wanted = machine.spec.snapshot.as_ref().filter(|_| managed);
    super::snapshot::note(
        &context,
        &namespace(&*machine),
        &GuestRef::machine(machine.name_any()),
        wanted,
        machine.metadata.generation,
        &mut before.revert,
        &mut before.reverted_to,
    );
    let intent = match resolve::intent(&context, &machine, &before).await {
        Ok(intent) => intent,
        Err(Lookup::Failed(error)) => return Err(error),
        Err(Lookup::Missing(missing)) => {
            context
                .warn(&*machine, missing.reason, &missing.message)
                .await;
            let status = report::unresolved(&context, &machine, &before, &missing);
            write(&context, &machine, &status).await?;
            return Ok(Action::requeue(missing.retry()));
        }
    };
    if !before.conditions.is_empty() && context.is_unseen(&intent.cluster) {
        return Ok(Action::requeue(FIRST_LOOK));
    }
    let (status, outcome) = advance(&context, &machine, before.clone(), &intent).await?;
    context.providers.log(&intent.cluster, &*machine, &outcome);
    let moves = follow::rests(&outcome, &record(&status))
        && follow::follow(&context, &*machine, &stay(&machine, &status)).await?;
    if moves && outcome == Outcome::Settled {
        return Ok(Action::requeue(PATIENCE));
    }
    report::announce(&context, &machine, &before, &status).await;
    Ok(match outcome {
        Outcome::Failed { .. } if moves => Action::requeue(PATIENCE),
        Outcome::Waiting { retry, .. } => Action::requeue(retry),
        Outcome::Working { .. } | Outcome::Persist => Action::requeue(PATIENCE),
        Outcome::Settled | Outcome::Gone | Outcome::Failed { .. } => Action::await_change(),
    })
}

/// Where a machine is and belongs. PVE itself moves what its HA manager looks after, and what does not run is in nobody's way.
fn stay<'a>(machine: &'a VirtualMachine, status: &'a VirtualMachineStatus) -> Stay<'a> {
    let spec = &machine.spec;
    let managed = spec.management_policy == ManagementPolicy::Manage;
    Stay {
        guest: GuestRef::machine(machine.name_any()),
        pinned: spec.node.as_deref().filter(|_| managed),
        is: status.node.as_deref(),
        cluster: recorded_cluster(status),
        makes_room: managed
            && !spec.ha.as_ref().is_some_and(|ha| ha.enabled)
            && status.power_state.as_deref() == Some("On"),
    }
}

/// Calls the engine until it has nothing more to do now, storing each record before the next call.
async fn advance(
    context: &Context,
    machine: &VirtualMachine,
    mut status: VirtualMachineStatus,
    intent: &GuestIntent,
) -> Result<(VirtualMachineStatus, Outcome), Error> {
    loop {
        let progress: GuestProgress = context.fleet.guest(intent, &record(&status)).await;
        let outcome = progress.outcome.clone();
        context.tell(machine, &progress.events).await;
        let next = report::status(context, machine, &status, intent, progress);
        write(context, machine, &next).await?;
        status = next;
        if outcome != Outcome::Persist {
            return Ok((status, outcome));
        }
    }
}

pub(crate) async fn write(
    context: &Context,
    machine: &VirtualMachine,
    status: &VirtualMachineStatus,
) -> Result<(), Error> {
    context
        .statuses
        .write(&context.client, machine, machine.status.as_ref(), status)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::vm::DeletionPolicy;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guest_that_was_taken_over_outlives_its_object_though_the_spec_no_longer_says_so() {
        let identity = json!({
            "cluster": "lab", "node": "pve1", "vmid": 100, "adopted": true,
            "uuid": "00000000-0000-0000-0000-000000000001",
        });
        let record = json!({ "identity": identity });
        let record: GuestRecord = serde_json::from_value(record).unwrap();
        let spec = VirtualMachineSpec::default();
        assert!(is_adopted(&spec, &record));
        assert_eq!(spec.deletion(true), DeletionPolicy::Orphan);
        assert!(!is_adopted(&spec, &GuestRecord::default()));
        assert_eq!(spec.deletion(false), DeletionPolicy::Delete);
    }
}
