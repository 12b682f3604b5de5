//! Which machines a set shall have, and what is to be done to have them. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::vm::{
    DeliveryMode, NamespacedRef, Network, SetUpdateType, UserData, VMSet, VirtualMachine,
    VirtualMachineSpec, condition,
};
use fleet::record::Stage;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{
    Resource as _, ResourceExt as _,
    api::ObjectMeta,
    core::{Selector, SelectorExt as _},
};
use sha2::{Digest as _, Sha256};

use crate::{
    context::namespace,
    vm::{machine, made::provider_of, translate::Invalid},
};

/// The label with the digest of the template a machine was made from.
pub(super) const REVISION: &str = "infra.virtrigaud.io/revision";
/// The label with the name of the set a machine belongs to.
const SET: &str = "infra.virtrigaud.io/set";

/// What is to be done now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) apply: Vec<i32>,
    pub(super) delete: Vec<(String, String)>,
}

pub(super) fn plan(
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
    let count = |is: &dyn Fn(&Arc<VirtualMachine>) -> bool| {
        let them = wanted.clone().filter(|(_, machine)| is(machine));
        i32::try_from(them.count()).unwrap_or(i32::MAX)
    };
    let up = |machine: &Arc<VirtualMachine>| is_available(machine, spec.min_ready_seconds, now);
    let stays = |machine: &Arc<VirtualMachine>| {
        let old = machine.labels().get(REVISION) != Some(&revision);
        old && machine.metadata.deletion_timestamp.is_none()
    };
    // How many more may go down, and how many may be under way: those that are down anyway are not taken all at once either, for
    // they may only be out of sight.
    let mut may_go_down = most - (spec.replicas - count(&up));
    let mut may_begin = most - (spec.replicas - count(&|machine| stays(machine) || up(machine)));
    for (index, machine) in wanted.clone().rev() {
        if !stays(machine) || *index < rolling.partition.unwrap_or(0) {
            continue;
        }
        if is_made(machine) {
            if may_begin <= 0 || (up(machine) && may_go_down <= 0) {
                continue;
            }
            may_begin -= 1;
            may_go_down -= i32::from(up(machine));
        }
        let wanted = member(set, *index).spec;
        if same_origin(machine, &wanted) && can_be_told(machine, &wanted) {
            plan.apply.push(*index);
        } else {
            plan.delete.push(identity(machine));
        }
    }
    plan.apply.sort_unstable();
    Ok(plan)
}

/// Whether there is a guest, of which nobody knows what is on it.
fn is_made(machine: &VirtualMachine) -> bool {
    let status = machine.status.as_ref();
    status.is_some_and(|status| machine::record(status).stage >= Stage::Made)
}

fn identity(machine: &Arc<VirtualMachine>) -> (String, String) {
    (machine.name_any(), machine.uid().unwrap_or_default())
}

pub(super) fn is_ready(machine: &Arc<VirtualMachine>) -> bool {
    let status = machine.status.as_ref();
    let current = status.and_then(|s| s.observed_generation) == machine.metadata.generation;
    let ready = status.and_then(|status| condition(&status.conditions, "Ready"));
    machine.metadata.deletion_timestamp.is_none()
        && current
        && ready.is_some_and(|ready| ready.status == "True")
}

/// How long until a machine counts as available; `None` while it is not Ready.
pub(super) fn until_available(
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

pub(super) fn is_available(machine: &Arc<VirtualMachine>, seconds: u32, now: Timestamp) -> bool {
    until_available(machine, seconds, now).is_some_and(|left| left.is_zero())
}

fn same_origin(machine: &VirtualMachine, want: &VirtualMachineSpec) -> bool {
    let have = &machine.spec;
    have.image_ref == want.image_ref
        && have.clone_from == want.clone_from
        && have.restore_from == want.restore_from
        && same_provider(machine, want)
        && have.adopt == want.adopt
        && (want.linked_clone.is_none() || have.linked_clone == want.linked_clone)
        && (have.disks.is_empty() || want.disks.is_empty() || root_name(have) == root_name(want))
}

/// Whether a machine stays where it is: a Provider that is left out is the one it has.
fn same_provider(machine: &VirtualMachine, want: &VirtualMachineSpec) -> bool {
    let Some(want) = &want.provider_ref else {
        return true;
    };
    let place = namespace(machine);
    let recorded = || {
        let cluster = machine::recorded_cluster(machine.status.as_ref()?)?;
        provider_of(&cluster, &place)
    };
    let full = |it: &NamespacedRef| {
        (
            it.name.clone(),
            it.namespace.clone().unwrap_or(place.clone()),
        )
    };
    let have = machine.spec.provider_ref.clone().or_else(recorded);
    have.is_none_or(|have| full(&have) == full(want))
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
pub(super) fn left_old(set: &VMSet) -> i32 {
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

/// A digest of the template, short enough for a label, and the same whatever this program was built with.
pub(super) fn revision(set: &VMSet) -> String {
    let template = serde_json::to_vec(&set.spec.template).unwrap_or_default();
    let digest = Sha256::digest(template);
    let short = digest.iter().take(4);
    let short = short.fold(0u32, |all, byte| (all << 8) | u32::from(*byte));
    format!("{short:08x}")
}

/// The machine with this number, as it shall be.
pub(super) fn member(set: &VMSet, index: i32) -> VirtualMachine {
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

/// How the set knows its machines.
pub(super) fn selector(set: &VMSet) -> Result<Selector, Invalid> {
    let written = set.spec.selector.clone();
    Selector::try_from(written)
        .map_err(|error| Invalid::new("spec.selector.matchExpressions", error.to_string()))
}

/// Whether a machine that has the name of a member may be taken for one: it is the set's, or nobody's and meant by its selector.
pub(super) fn is_for(set: &VMSet, machine: &VirtualMachine) -> bool {
    let owners = machine.owner_references();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    if let Some(controller) = controller {
        return Some(&controller.uid) == set.uid().as_ref();
    }
    selector(set).is_ok_and(|wanted| !wanted.selects_all() && wanted.matches(machine.labels()))
}

#[cfg(test)]
mod tests {
    use api::vm::FleetRecord;
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
    fn a_provider_that_is_named_later_on_makes_no_other_machine_unless_it_is_another() {
        let provider = |name: &str| serde_json::from_value(json!({ "name": name })).unwrap();
        let mut machine: VirtualMachine = serde_json::from_value(json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
            "metadata": { "name": "web-0", "namespace": "default" }, "spec": {},
        }))
        .unwrap();
        let mut want = machine.spec.clone();
        want.provider_ref = Some(provider("pve"));
        assert!(same_origin(&machine, &want), "nothing was made yet");
        machine.spec.provider_ref = Some(provider("pve"));
        want.provider_ref = None;
        assert!(same_origin(&machine, &want));
        want.provider_ref = Some(provider("pve"));
        want.provider_ref.as_mut().unwrap().namespace = Some("default".to_owned());
        assert!(same_origin(&machine, &want));
        want.provider_ref = Some(provider("other"));
        assert!(!same_origin(&machine, &want));
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

    /// A machine of the set, made from an older image.
    fn old(index: i32, ready: &str) -> VirtualMachine {
        let record = fleet::GuestRecord {
            stage: Stage::Settled,
            ..fleet::GuestRecord::default()
        };
        serde_json::from_value(json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
            "metadata": { "name": format!("web-{index}"), "uid": index.to_string(), "generation": 1 },
            "spec": { "imageRef": { "name": "jammy" } },
            "status": { "observedGeneration": 1, "record": FleetRecord::of(&record), "conditions": [{
                "type": "Ready", "status": ready, "reason": "", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z",
            }] },
        }))
        .unwrap()
    }

    #[test]
    fn machines_that_are_out_of_sight_are_not_replaced_all_at_once() {
        let set = set(&json!({
            "replicas": 4,
            "selector": { "matchLabels": {} },
            "template": { "spec": { "imageRef": { "name": "noble" } } },
        }));
        let deleted = |ready: [&str; 4]| {
            let machines = (0..4).zip(ready);
            let machines = machines.map(|(index, ready)| (index, Arc::new(old(index, ready))));
            let plan = plan(&set, &machines.collect(), Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(plan.apply, [0; 0]);
            let names = plan.delete.into_iter().map(|(name, _)| name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(deleted(["True"; 4]), ["web-3"]);
        assert_eq!(deleted(["False"; 4]), ["web-3"]);
        // One that is down is mended before others go down.
        assert_eq!(deleted(["True", "False", "True", "True"]), ["web-1"]);
        let mut machines: BTreeMap<i32, _> = (0..4)
            .map(|index| (index, Arc::new(old(index, "False"))))
            .collect();
        machines.insert(3, Arc::new(member(&set, 3)));
        let while_one_comes = plan(&set, &machines, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(while_one_comes, Plan::default());
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
