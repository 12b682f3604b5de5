//! `VMClass` and `VMPlacementPolicy`: they are only read, and say by how many.

use std::sync::Arc;

use api::vm::{VMClass, VMClassStatus, VMPlacementPolicy, VMPlacementPolicyStatus, VirtualMachine};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use crate::{
    conditions::Conditions,
    context::{Context, Error, namespace},
    kinds::Watches,
    work::Action,
};

/// They are counted again when a machine comes, goes or changes.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let (context, changes) = (context.clone(), crate::hub::SpecChanges::new());
    watches.machines.subscribe(move |machine| {
        if !changes.is_new(machine) {
            return;
        }
        let place = namespace(machine);
        if let Some(class) = &machine.spec.class_ref {
            context
                .queues
                .classes
                .push(ObjectRef::new(&class.name).within(&place));
        }
        if let Some(policy) = &machine.spec.placement_ref {
            context
                .queues
                .policies
                .push(ObjectRef::new(&policy.name).within(&place));
        }
    });
}

fn users(context: &Context, place: &str, uses: impl Fn(&VirtualMachine) -> bool) -> Option<i32> {
    let users = context
        .stores
        .machines
        .state_filter(|vm| namespace(vm) == place && uses(vm));
    i32::try_from(users.len()).ok()
}

pub(crate) async fn class(class: Arc<VMClass>, context: Arc<Context>) -> Result<Action, Error> {
    let (place, name) = (namespace(&*class), class.name_any());
    let before: VMClassStatus = context
        .statuses
        .newest(&class.uid().unwrap_or_default(), class.status.as_ref());
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        class.metadata.generation,
    );
    now.set("Ready", true, "Usable", "machines may refer to it");
    let status = VMClassStatus {
        conditions: now.done(),
        observed_generation: class.metadata.generation,
        used_by: users(&context, &place, |vm| {
            vm.spec.class_ref.as_ref().is_some_and(|r| r.name == name)
        }),
    };
    context
        .statuses
        .write(&context.client, &*class, class.status.as_ref(), &status)
        .await?;
    Ok(Action::await_change())
}

pub(crate) async fn policy(
    policy: Arc<VMPlacementPolicy>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let (place, name) = (namespace(&*policy), policy.name_any());
    let before: VMPlacementPolicyStatus = context
        .statuses
        .newest(&policy.uid().unwrap_or_default(), policy.status.as_ref());
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        policy.metadata.generation,
    );
    now.set("Ready", true, "Usable", "machines may refer to it");
    let status = VMPlacementPolicyStatus {
        conditions: now.done(),
        observed_generation: policy.metadata.generation,
        used_by: users(&context, &place, |vm| {
            vm.spec
                .placement_ref
                .as_ref()
                .is_some_and(|r| r.name == name)
        }),
    };
    context
        .statuses
        .write(&context.client, &*policy, policy.status.as_ref(), &status)
        .await?;
    Ok(Action::await_change())
}
