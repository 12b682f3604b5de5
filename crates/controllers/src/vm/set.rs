//! `VMSet`: several machines alike, numbered.
//!
//! Machines are named `<set>-<number>` and carry the digest of the template they were made from. A changed
//! template reaches them from the highest number down, a few at a time, each only when the ones before it
//! are Ready again. What a machine can take over in place is taken over in place; a new origin (image), and other
//! first-boot data for one that has read its own, mean a new guest.
//!
//! A machine that somebody else made under such a name stays theirs: the set says so and waits.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use api::vm::{
    DeliveryMode, Network, SetUpdateType, UserData, VMSet, VMSetStatus, VirtualMachine,
    VirtualMachineSpec, condition,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions},
    core::{Selector, SelectorExt as _},
    runtime::reflector::ObjectRef,
};

use super::{machine, made::REFUSED, translate::Invalid};
use crate::{
    conditions::Conditions,
    context::{Context, Error, namespace, refusal},
    kinds::Watches,
    status::MANAGER,
    work::Action,
};

/// The label with the digest of the template a machine was made from.
const REVISION: &str = "infra.virtrigaud.io/revision";
/// The label with the name of the set a machine belongs to.
const SET: &str = "infra.virtrigaud.io/set";
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
        let machine = member(&set, *index);
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
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
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

/// Whether a machine that has the name of a member may be taken for one: it is the set's, or nobody's and meant by its selector.
fn is_for(set: &VMSet, machine: &VirtualMachine) -> bool {
    let owners = machine.owner_references();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    if let Some(controller) = controller {
        return Some(&controller.uid) == set.uid().as_ref();
    }
    selector(set).is_ok_and(|wanted| !wanted.selects_all() && wanted.matches(machine.labels()))
}

/// How the set knows its machines.
fn selector(set: &VMSet) -> Result<Selector, Invalid> {
    let written = set.spec.selector.clone();
    Selector::try_from(written)
        .map_err(|error| Invalid::new("spec.selector.matchExpressions", error.to_string()))
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

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    apply: Vec<i32>,
    delete: Vec<(String, String)>,
}

fn plan(
    set: &VMSet,
    machines: &BTreeMap<i32, Arc<VirtualMachine>>,
    now: Timestamp,
) -> Result<Plan, Invalid> {
    let spec = &set.spec;
    let labels = spec.template.metadata.clone().unwrap_or_default().labels;
    for wanted in selector(set)? {
        if !wanted.matches(&labels) {
            return Err(Invalid::new(
                "spec.selector",
                format!(
                    "the template's labels are not {wanted}; change spec.template.metadata.labels so that they are"
                ),
            ));
        }
    }
    let revision = revision(set);
    let mut plan = Plan::default();
    plan.apply
        .extend((0..spec.replicas).filter(|index| !machines.contains_key(index)));
    let surplus = machines.iter().rev().filter(|(index, machine)| {
        **index >= spec.replicas && machine.metadata.deletion_timestamp.is_none()
    });
    plan.delete
        .extend(surplus.map(|(_, machine)| identity(machine)));

    let strategy = spec.update_strategy.clone().unwrap_or_default();
    if strategy.kind == SetUpdateType::OnDelete {
        return Ok(plan);
    }
    let rolling = strategy.rolling_update.unwrap_or_default();
    let most = most_unavailable(rolling.max_unavailable.as_ref(), spec.replicas)?;
    let wanted = machines.iter().filter(|(index, _)| **index < spec.replicas);
    let unavailable = spec.replicas
        - i32::try_from(
            wanted
                .clone()
                .filter(|(_, machine)| is_available(machine, spec.min_ready_seconds, now))
                .count(),
        )
        .unwrap_or(i32::MAX);
    let mut room = most - unavailable;
    for (index, machine) in wanted.rev() {
        let old = machine.labels().get(REVISION) != Some(&revision);
        if !old
            || *index < rolling.partition.unwrap_or(0)
            || machine.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        // One that is down anyway may be mended at any time.
        if is_available(machine, spec.min_ready_seconds, now) {
            if room <= 0 {
                continue;
            }
            room -= 1;
        }
        let wanted = member(set, *index).spec;
        if same_origin(&machine.spec, &wanted) && can_be_told(machine, &wanted) {
            plan.apply.push(*index);
        } else {
            plan.delete.push(identity(machine));
        }
    }
    plan.apply.sort_unstable();
    Ok(plan)
}

fn identity(machine: &Arc<VirtualMachine>) -> (String, String) {
    (machine.name_any(), machine.uid().unwrap_or_default())
}

fn is_ready(machine: &Arc<VirtualMachine>) -> bool {
    let status = machine.status.as_ref();
    let current = status.and_then(|s| s.observed_generation) == machine.metadata.generation;
    let ready = status.and_then(|status| condition(&status.conditions, "Ready"));
    machine.metadata.deletion_timestamp.is_none()
        && current
        && ready.is_some_and(|ready| ready.status == "True")
}

/// How long until a machine counts as available; `None` while it is not Ready.
fn until_available(
    machine: &Arc<VirtualMachine>,
    seconds: u32,
    now: Timestamp,
) -> Option<Duration> {
    if !is_ready(machine) {
        return None;
    }
    let status = machine.status.as_ref()?;
    let since = condition(&status.conditions, "Ready")?
        .last_transition_time
        .0;
    let been = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    Some(Duration::from_secs(seconds.into()).saturating_sub(been))
}

fn is_available(machine: &Arc<VirtualMachine>, seconds: u32, now: Timestamp) -> bool {
    until_available(machine, seconds, now).is_some_and(|left| left.is_zero())
}

fn same_origin(have: &VirtualMachineSpec, want: &VirtualMachineSpec) -> bool {
    have.image_ref == want.image_ref
        && have.clone_from == want.clone_from
        && have.restore_from == want.restore_from
        && have.provider_ref == want.provider_ref
        && have.adopt == want.adopt
        && (have.disks.is_empty() || want.disks.is_empty() || root_name(have) == root_name(want))
}

/// Whether a machine takes over what it shall be told: first-boot data is read once, so one that has read other data is not
/// told anew. PVE's own cloud-init tells a guest at every start.
fn can_be_told(machine: &VirtualMachine, want: &VirtualMachineSpec) -> bool {
    let have = &machine.spec;
    let is_native = |spec: &VirtualMachineSpec| {
        let data = spec.user_data.as_ref();
        let mode = data.and_then(|data| data.cloud_init.as_ref()?.mode);
        mode == Some(DeliveryMode::Native)
    };
    let booted = machine.status.as_ref().is_some_and(machine::has_booted);
    !booted
        || (is_native(have) && is_native(want))
        || (have.user_data == want.user_data && same_addresses(have, want))
}

/// Whether the interfaces that a machine shall have get the addresses they were given.
fn same_addresses(have: &VirtualMachineSpec, want: &VirtualMachineSpec) -> bool {
    let given = |network: &Network| (network.static_ip.clone(), network.slaac == Some(true));
    want.networks.iter().all(|network| {
        let mut known = have.networks.iter();
        let known = known.find(|known| known.name == network.name);
        known.map(given).unwrap_or_default() == given(network)
    })
}

/// The name of the disk that a machine boots from, which it keeps.
fn root_name(spec: &VirtualMachineSpec) -> Option<&str> {
    let names = || spec.disks.iter().map(|disk| disk.name.as_str());
    names().find(|name| *name == "root").or(names().next())
}

/// How many machines may stay as an older template made them.
fn left_old(set: &VMSet) -> i32 {
    let strategy = set.spec.update_strategy.clone().unwrap_or_default();
    let rolling = strategy.rolling_update.unwrap_or_default();
    match strategy.kind {
        // Until somebody deletes them.
        SetUpdateType::OnDelete => set.spec.replicas,
        SetUpdateType::RollingUpdate => rolling.partition.unwrap_or(0),
    }
}

fn most_unavailable(written: Option<&IntOrString>, replicas: i32) -> Result<i32, Invalid> {
    let field = "spec.updateStrategy.rollingUpdate.maxUnavailable";
    let wrong = || {
        Invalid::new(
            field,
            "must be a number from 1 up, or a percentage such as \"25%\"",
        )
    };
    let most = match written {
        None => 1,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i32 = text
                .strip_suffix('%')
                .and_then(|n| n.parse().ok())
                .ok_or_else(wrong)?;
            (replicas * percent / 100).max(1)
        }
    };
    if most < 1 { Err(wrong()) } else { Ok(most) }
}

/// A digest of the template, short enough for a label.
fn revision(set: &VMSet) -> String {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(&set.spec.template)
        .unwrap_or_default()
        .hash(&mut hasher);
    format!("{:08x}", hasher.finish() & 0xffff_ffff)
}

/// The machine with this number, as it shall be.
fn member(set: &VMSet, index: i32) -> VirtualMachine {
    let name = format!("{}-{index}", set.name_any());
    let meta = set.spec.template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels;
    labels.insert(REVISION.to_owned(), revision(set));
    labels.insert(SET.to_owned(), set.name_any());
    let mut spec = set.spec.template.spec.clone();
    let data = spec.user_data.as_mut();
    for text in data.into_iter().flat_map(UserData::texts_mut) {
        *text = text
            .replace("{{ index }}", &index.to_string())
            .replace("{{ name }}", &name);
    }
    VirtualMachine {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.namespace(),
            labels: Some(labels),
            annotations: (!meta.annotations.is_empty()).then_some(meta.annotations),
            owner_references: set.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(spec: &serde_json::Value) -> VMSet {
        serde_json::from_value(json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSet",
            "metadata": { "name": "web", "namespace": "default", "uid": "1" }, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn the_whole_selector_counts() {
        let with = |labels: serde_json::Value| {
            set(&json!({
                "selector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a", "b"] }] },
                "template": { "metadata": { "labels": labels }, "spec": {} },
            }))
        };
        let (good, bad) = (with(json!({ "app": "b" })), with(json!({ "app": "c" })));
        let none = BTreeMap::new();
        assert!(plan(&good, &none, Timestamp::UNIX_EPOCH).is_ok());
        let refused = plan(&bad, &none, Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(refused.to_string().contains("app in (a,b)"), "{refused}");
        assert!(is_for(&good, &member(&good, 0)));
        let mut other = member(&bad, 0);
        other.metadata.owner_references = None;
        assert!(!is_for(&good, &other));
    }

    #[test]
    fn number_and_name_are_put_into_whatever_the_guest_is_told() {
        for data in [
            json!({ "cloudInit": { "inline": "{{ name }} {{ index }}" } }),
            json!({ "cloudInit": { "metaData": { "inline": "{{ name }} {{ index }}" } } }),
            json!({ "ignition": { "inline": "{{ name }} {{ index }}" } }),
            json!({ "raw": { "inline": "{{ name }} {{ index }}" } }),
        ] {
            let set = set(&json!({
                "selector": { "matchLabels": { "app": "web" } },
                "template": { "spec": { "userData": data } },
            }));
            let told = serde_json::to_string(&member(&set, 3).spec.user_data).unwrap();
            assert!(told.contains("web-3 3"), "{told}");
        }
    }
}
