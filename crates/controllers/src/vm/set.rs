//! `VMSet`: several machines alike, numbered.
//!
//! Machines are named `<set>-<number>` and carry the digest of the template they were made from. A changed
//! template reaches them from the highest number down, a few at a time, each only when the ones before it
//! are Ready again. What a machine can take over in place is taken over in place; a new origin (image), and other
//! first-boot data for one that has read its own, mean a new guest.
//!
//! A machine that somebody else made under such a name stays theirs: the set says so and waits.

mod plan;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::vm::{VMSet, VMSetStatus, VirtualMachine};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::reflector::ObjectRef,
};

use self::plan::{
    REVISION, is_available, is_for, is_ready, left_old, member, plan, revision, selector,
    until_available,
};
use super::{made::REFUSED, translate::Invalid};
use crate::{
    conditions::Conditions,
    context::{Context, Error, namespace, refusal},
    kinds::Watches,
    status::MANAGER,
    work::Action,
};

/// How often a set looks whether a name it needs is free.
const TAKEN: Duration = Duration::from_secs(10);

/// A set is looked at when one of its machines changes.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let context = context.clone();
    watches.machines.subscribe(move |machine| {
        for owner in machine.owner_references() {
            if owner.kind == VMSet::kind(&()) {
                context
                    .queues
                    .sets
                    .push(ObjectRef::new(&owner.name).within(&namespace(machine)));
            }
        }
    });
}

pub(crate) async fn reconcile(set: Arc<VMSet>, context: Arc<Context>) -> Result<Action, Error> {
    if set.metadata.deletion_timestamp.is_some() {
        // The machines have the set as their owner and go with it.
        return Ok(Action::await_change());
    }
    let uid = set.uid().unwrap_or_default();
    let before: VMSetStatus = context.statuses.newest(&uid, set.status.as_ref());
    let machines = members(&set, &context);
    let now = context.clock.now();
    let plan = match plan(&set, &machines, now) {
        Ok(plan) => plan,
        Err(invalid) => {
            context
                .warn(&*set, "InvalidSpec", &invalid.to_string())
                .await;
            let status = report(&context, &set, &before, &machines, Err(&invalid));
            context
                .statuses
                .write(&context.client, &*set, set.status.as_ref(), &status)
                .await?;
            return Ok(Action::await_change());
        }
    };
    let makes = |index: &i32| !machines.contains_key(index);
    if plan.apply.iter().any(makes) && is_gone(&context, &set).await? {
        return Ok(Action::await_change());
    }
    let api: Api<VirtualMachine> = context.api_in(&namespace(&*set));
    let (mut taken, mut going, mut refused) = (Vec::new(), false, None);
    for index in &plan.apply {
        let mut machine = member(&set, *index);
        if let Some(there) = machines.get(index)
            && machine.spec.provider_ref.is_some()
            && there.spec.provider_ref.is_some()
        {
            // It is the same one, however it is spelt, and no machine may spell it otherwise.
            machine
                .spec
                .provider_ref
                .clone_from(&there.spec.provider_ref);
        }
        let name = machine.name_any();
        if !machines.contains_key(index)
            && let Some(there) = api.get_opt(&name).await?
            && !is_for(&set, &there)
        {
            if there.metadata.deletion_timestamp.is_some() {
                going = true;
            } else {
                taken.push(name);
            }
            continue;
        }
        let params = PatchParams::apply(MANAGER).force();
        if let Err(error) = api.patch(&name, &params, &Patch::Apply(&machine)).await {
            let Some(message) = refusal(&error) else {
                return Err(error.into());
            };
            // They are all alike: what is refused for one is for all.
            refused = Some(format!("VirtualMachine {name} is refused: {message}"));
            break;
        }
        context
            .normal(&*set, "Applied", &format!("applied VirtualMachine {name}"))
            .await;
    }
    for (name, uid) in &plan.delete {
        let condition = Preconditions {
            uid: Some(uid.clone()),
            resource_version: None,
        };
        let params = DeleteParams {
            preconditions: Some(condition),
            ..DeleteParams::default()
        };
        match api.delete(name, &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            // Another one has its name by now, or somebody was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                going = true;
                continue;
            }
            other => drop(other?),
        }
        context
            .normal(&*set, "Deleted", &format!("deleted VirtualMachine {name}"))
            .await;
    }
    let taken = (!taken.is_empty()).then(|| {
        format!(
            "VirtualMachine {} exists and is not of this set: delete it, or give it the labels of spec.selector to make it so, or name the set otherwise",
            taken.join(", ")
        )
    });
    let hindered = match (&refused, &taken) {
        (Some(message), _) => Some(("Refused", message.as_str())),
        (None, Some(message)) => Some(("NameTaken", message.as_str())),
        (None, None) => None,
    };
    if let Some((reason, message)) = hindered {
        context.warn(&*set, reason, message).await;
    }
    let status = report(&context, &set, &before, &machines, Ok(hindered));
    context
        .statuses
        .write(&context.client, &*set, set.status.as_ref(), &status)
        .await?;
    if refused.is_some() {
        return Ok(Action::requeue(REFUSED));
    }
    if going || taken.is_some() {
        // A machine that is not of the set tells it nothing when it goes.
        return Ok(Action::requeue(TAKEN));
    }
    // One that is Ready and does not count yet will, without anything else happening.
    let soonest = machines
        .values()
        .filter_map(|machine| until_available(machine, set.spec.min_ready_seconds, now))
        .filter(|left| !left.is_zero())
        .min();
    Ok(soonest.map_or_else(Action::await_change, Action::requeue))
}

/// Whether the set itself is gone, though its watch has not told yet. Machines made for it would be removed at once, which
/// would have them made again, as fast as that goes.
async fn is_gone(context: &Context, set: &VMSet) -> Result<bool, Error> {
    let api: Api<VMSet> = context.api_in(&namespace(set));
    let there = api.get_opt(&set.name_any()).await?;
    Ok(there.is_none_or(|there| {
        there.uid() != set.uid() || there.metadata.deletion_timestamp.is_some()
    }))
}

/// The machines of a set, by number.
fn members(set: &VMSet, context: &Context) -> BTreeMap<i32, Arc<VirtualMachine>> {
    let (place, uid, prefix) = (namespace(set), set.uid(), format!("{}-", set.name_any()));
    let ours = context.stores.machines.state_filter(|machine| {
        namespace(machine) == place
            && machine
                .owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == uid.as_ref())
    });
    let number =
        |machine: &Arc<VirtualMachine>| machine.name_any().strip_prefix(&prefix)?.parse().ok();
    ours.into_iter()
        .filter_map(|machine| Some((number(&machine)?, machine)))
        .collect()
}

fn report(
    context: &Context,
    set: &VMSet,
    before: &VMSetStatus,
    machines: &BTreeMap<i32, Arc<VirtualMachine>>,
    hindered: Result<Option<(&str, &str)>, &Invalid>,
) -> VMSetStatus {
    let count = |test: &dyn Fn(&Arc<VirtualMachine>) -> bool| {
        i32::try_from(machines.values().filter(|machine| test(machine)).count()).unwrap_or(i32::MAX)
    };
    let revision = revision(set);
    let updated = |machine: &Arc<VirtualMachine>| machine.labels().get(REVISION) == Some(&revision);
    let (replicas, ready, current) = (count(&|_| true), count(&is_ready), count(&updated));
    let (seconds, moment) = (set.spec.min_ready_seconds, context.clock.now());
    let available = count(&|machine| is_available(machine, seconds, moment));
    let mut now = Conditions::new(
        &before.conditions,
        context.clock.time(),
        set.metadata.generation,
    );
    let wanted = set.spec.replicas;
    let all = replicas == wanted && available == wanted && current >= wanted - left_old(set);
    let message = format!(
        "{available} of {wanted} machines are available, {current} from the present template"
    );
    match hindered {
        Err(invalid) => now.set("Ready", false, "InvalidSpec", invalid.to_string()),
        Ok(Some((reason, message))) => now.set("Ready", false, reason, message),
        Ok(_) if all => now.set("Ready", true, "Complete", &message),
        Ok(_) => now.set("Ready", false, "Progressing", &message),
    }
    match hindered {
        Ok(None) if all => now.set("Progressing", false, "Complete", message),
        Ok(None) => now.set("Progressing", true, "Rolling", message),
        Ok(Some((reason, _))) => now.set("Progressing", false, reason, "see Ready"),
        Err(_) => now.set("Progressing", false, "InvalidSpec", "see Ready"),
    }
    VMSetStatus {
        conditions: now.done(),
        observed_generation: set.metadata.generation,
        replicas,
        ready_replicas: ready,
        available_replicas: available,
        updated_replicas: current,
        update_revision: Some(revision.clone()),
        selector: selector(set).ok().map(|selector| selector.to_string()),
    }
}
