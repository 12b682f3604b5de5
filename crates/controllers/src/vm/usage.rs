//! `VMClass` and `VMPlacementPolicy`: they are only read, and say by how many.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use api::vm::{
    LocalRef, VMClass, VMClassStatus, VMPlacementPolicy, VMPlacementPolicyStatus, VirtualMachine,
};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use crate::{
    conditions::Conditions,
    context::{Context, Error, namespace},
    kinds::Watches,
    known::is_gone,
    work::Action,
};

/// They are counted again when a machine comes, goes or changes: those that it names, and those that it named before.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let (context, changes) = (context.clone(), crate::hub::SpecChanges::new());
    let last: Mutex<BTreeMap<(String, String), Named>> = Mutex::default();
    watches.machines.subscribe(move |machine| {
        let (place, named) = (namespace(machine), Named::by(machine));
        if !changes.is_new(machine) {
            return;
        }
        let key = (place.clone(), machine.name_any());
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = if is_gone(machine) {
            last.remove(&key)
        } else {
            last.insert(key, named.clone())
        };
        drop(last);
        for Named { class, policy } in before.into_iter().chain([named]) {
            if let Some(class) = class {
                context
                    .queues
                    .classes
                    .push(ObjectRef::new(&class).within(&place));
            }
            if let Some(policy) = policy {
                context
                    .queues
                    .policies
                    .push(ObjectRef::new(&policy).within(&place));
            }
        }
    });
}

/// What a machine refers to.
#[derive(Clone)]
struct Named {
    class: Option<String>,
    policy: Option<String>,
}

impl Named {
    fn by(machine: &VirtualMachine) -> Self {
        let name = |named: &Option<LocalRef>| named.as_ref().map(|named| named.name.clone());
        Self {
            class: name(&machine.spec.class_ref),
            policy: name(&machine.spec.placement_ref),
        }
    }
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
