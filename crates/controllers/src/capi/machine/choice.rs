//! Which instance a machine runs on.
//!
//! Where its guest is, else what was asked for, else the one that is the least full. An instance that was asked for is waited
//! for. One that was chosen here carries an annotation that says so, and while nothing can have been made there the choice may
//! be made again: a machine does not wait for an instance that is down, full or no longer listed when another would take it.
//! From the moment its identity is written down a guest may exist, and then there is no other place for the machine.

use api::cluster_api::{CONTROL_PLANE_LABEL, Machine};
use api::infrastructure::v1beta1::{NodeGroup, ProxmoxCluster, ProxmoxMachine};
use fleet::record::Stage;
use fleet::{GuestRecord, Outcome};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::super::cluster::{Need, Used, held};
use super::super::{Wait, spread};
use crate::context::Context;

/// Names the instance that was chosen here, so that it can be told from one that somebody asked for.
pub(super) const CHOSEN: &str = "oxmox.dev/chosen-instance";

/// The instance of a machine.
pub(super) struct Choice<'a> {
    pub(super) used: &'a Used,
    /// Nobody asked for this one.
    pub(super) free: bool,
}

impl<'a> Choice<'a> {
    fn asked(used: &'a Used) -> Self {
        Self { used, free: false }
    }

    /// What is to be written into a machine so that it says where it is. One that was begun keeps the name it knows its place by.
    pub(super) fn to_write(&self, object: &ProxmoxMachine, unbegun: bool) -> Value {
        let known = &object.spec.instance;
        let said = *known == self.used.instance || !(unbegun || known.is_none());
        let Some(name) = self.used.instance.as_ref().filter(|_| !said) else {
            return json!({});
        };
        let mut patch = json!({"spec": {"instance": name}});
        if self.free {
            patch["metadata"] = json!({"annotations": {CHOSEN: name}});
        }
        patch
    }

    /// Says why a machine waits for an instance that nobody asked for and that does not answer.
    pub(super) fn explain(&self, record: &GuestRecord, outcome: Outcome) -> Outcome {
        let begun = record.identity.is_some() && record.stage < Stage::Settled;
        match outcome {
            Outcome::Waiting {
                what,
                message,
                retry,
            } if self.free && begun && self.used.is_down() => Outcome::Waiting {
                what,
                message: format!(
                    "{message}; its guest may be there already, so no other instance is chosen"
                ),
                retry,
            },
            other => other,
        }
    }
}

fn wait(message: impl Into<String>) -> Wait {
    Wait::new("WaitingForInstance", message)
}

/// Whether nothing was begun anywhere yet: neither the record nor the spec, which is what travels, names a guest.
pub(super) fn is_unbegun(object: &ProxmoxMachine, record: &GuestRecord) -> bool {
    *record == GuestRecord::default()
        && object.spec.virtual_machine_id.is_none()
        && object.spec.provider_id.is_none()
}

/// The group of nodes that a Machine's failure domain names.
pub(super) fn group<'a>(
    machine: &Machine,
    infrastructure: &'a ProxmoxCluster,
) -> Option<&'a NodeGroup> {
    let domain = machine.spec.failure_domain.as_deref()?;
    let mut groups = infrastructure.spec.node_groups.iter();
    groups.find(|group| group.name == domain)
}

/// The instance a machine runs on.
pub(super) fn choose<'a>(
    context: &Context,
    object: &ProxmoxMachine,
    machine: &Machine,
    infrastructure: &ProxmoxCluster,
    used: &'a [Used],
    record: &GuestRecord,
) -> Result<Choice<'a>, Wait> {
    let uid = object.uid().unwrap_or_default();
    if let Some(identity) = &record.identity {
        context.chosen.lock().remove(&uid);
        let at = |used: &&Used| used.place.as_ref() == Ok(&identity.cluster);
        let found = used.iter().find(at).ok_or_else(|| {
            wait(format!(
                "its guest is on {}, which is no longer listed",
                identity.cluster
            ))
        })?;
        return Ok(Choice {
            used: found,
            free: is_chosen_here(object),
        });
    }
    let domain = machine.spec.failure_domain.as_deref();
    let group = group(machine, infrastructure);
    if let [only] = used
        && only.instance.is_none()
    {
        if let Some(wanted) = &object.spec.instance {
            return Err(not_used(infrastructure, wanted));
        }
        // Who divides the cluster means what is said; elsewhere there is nothing to divide.
        let divided = !infrastructure.spec.node_groups.is_empty();
        if let (Some(name), None, true) = (domain, group, divided) {
            return Err(wait(format!(
                "failure domain {name:?} is not in the ProxmoxCluster's nodeGroups"
            )));
        }
        return Ok(Choice::asked(only));
    }
    let of_domain = match group {
        Some(group) => group.instance.as_deref(),
        None => domain,
    };
    let named = object.spec.instance.as_deref();
    if let Some(wanted) = named.filter(|_| !is_chosen_here(object)).or(of_domain) {
        context.chosen.lock().remove(&uid);
        return find(used, wanted)
            .map(Choice::asked)
            .ok_or_else(|| not_used(infrastructure, wanted));
    }
    let need = Need::of(&object.spec, group)?;
    let mut chosen = context.chosen.lock();
    // A choice may not be seen in the watch yet.
    let before = chosen.get(&uid).map(String::as_str).or(named);
    let current = before.and_then(|name| find(used, name));
    let may_change = is_unbegun(object, record);
    match (current, before) {
        (Some(current), _) if !(may_change && current.is_out_of_question(&need)) => {
            if named == current.instance.as_deref() {
                chosen.remove(&uid);
            }
            return Ok(Choice {
                used: current,
                free: true,
            });
        }
        (None, Some(gone)) if !may_change => return Err(not_used(infrastructure, gone)),
        _ => {}
    }
    let control_plane = object.labels().contains_key(CONTROL_PLANE_LABEL);
    let candidates: Vec<_> = used
        .iter()
        .map(|used| {
            let name = used.instance.as_deref().unwrap_or_default();
            let held = held(context, infrastructure, name, control_plane, &chosen);
            used.candidate(held, &need)
        })
        .collect();
    let best = spread::choose(&candidates).and_then(|name| find(used, name));
    let best = match (current, best) {
        // Both are full: there is nothing to be gained.
        (Some(current), Some(best)) if !current.is_down() && best.is_out_of_question(&need) => {
            current
        }
        (current, best) => best.or(current).ok_or_else(|| {
            wait("no instance answers, takes machines and has the nodes this one may be on")
        })?,
    };
    chosen.insert(uid, best.instance.clone().unwrap_or_default());
    Ok(Choice {
        used: best,
        free: true,
    })
}

/// Whether the instance in the spec was not asked for by anybody.
fn is_chosen_here(object: &ProxmoxMachine) -> bool {
    let mark = object.annotations().get(CHOSEN);
    mark.is_some() && mark == object.spec.instance.as_ref()
}

fn find<'a>(used: &'a [Used], name: &str) -> Option<&'a Used> {
    let mut used = used.iter();
    used.find(|used| used.instance.as_deref() == Some(name))
}

fn not_used(infrastructure: &ProxmoxCluster, wanted: &str) -> Wait {
    let settings = infrastructure.spec.settings.as_ref();
    let mut listed = settings
        .into_iter()
        .flat_map(|settings| &settings.instances);
    wait(if listed.any(|instance| instance.name == wanted) {
        format!(
            "instance {wanted:?} is listed and not used: set the ProxmoxCluster's settings.mode to MultiInstance"
        )
    } else {
        format!("instance {wanted:?} is not in the ProxmoxCluster's settings.instances")
    })
}
