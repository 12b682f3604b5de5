//! Which Proxmox VE clusters a ProxmoxCluster uses, and what is on each.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cluster_api::CONTROL_PLANE_LABEL;
use api::infrastructure::v1beta1::{Instance, Mode, ProxmoxCluster, ProxmoxMachine};
use fleet::{ClusterFacts, ClusterName, NodeName};
use kube::ResourceExt as _;

use super::super::spread::{Candidate, pick_one};
use super::super::{Stop, Wait, connect, owner};
use super::need::Need;
use crate::context::{Context, namespace};

/// A Proxmox VE cluster in use.
#[derive(Clone, Debug)]
pub(in crate::capi) struct Used {
    /// The instance's name; nothing for the one without a list.
    pub(in crate::capi) instance: Option<String>,
    /// Its connection, or why there is none.
    pub(in crate::capi) place: Result<ClusterName, Wait>,
    /// What is known about it.
    pub(in crate::capi) facts: ClusterFacts,
    /// How it is listed.
    pub(super) listed: Option<Instance>,
}

impl Used {
    /// Whether it can take machines now.
    pub(in crate::capi) fn is_ready(&self) -> bool {
        self.place.is_ok() && self.facts.reachable && self.facts.quorate != Some(false)
    }

    /// Whether it is known that it cannot take machines now. Right after a start nothing is known.
    pub(in crate::capi) fn is_down(&self) -> bool {
        !self.is_ready() && (self.place.is_err() || self.problem().is_some())
    }

    /// Why it cannot take machines now, as far as that is known.
    fn problem(&self) -> Option<&str> {
        match &self.place {
            Err(wait) => Some(&wait.message),
            Ok(_) if self.facts.reachable && self.facts.quorate == Some(false) => {
                Some("has no quorum")
            }
            Ok(_) => self.facts.problem.as_deref(),
        }
    }

    /// Whether one of these nodes is up, or nothing is known of nodes yet.
    pub(super) fn has_one_of(&self, nodes: &[String]) -> bool {
        let mut known = self.facts.nodes.iter();
        let listed = |name: &NodeName| nodes.iter().any(|node| node == name.as_str());
        self.facts.nodes.is_empty() || known.any(|(name, node)| node.online && listed(name))
    }

    /// Whether a machine with such a need waits here in vain for now.
    pub(in crate::capi) fn is_out_of_question(&self, need: &Need<'_>) -> bool {
        self.is_down() || (self.is_ready() && !self.candidate(0, need).fits)
    }

    /// This instance as one to choose from, for a machine with such a need, when it holds so many like it.
    pub(in crate::capi) fn candidate(&self, machines: u32, need: &Need<'_>) -> Candidate<'_> {
        let allowed: Vec<_> = self
            .facts
            .nodes
            .iter()
            .filter(|(name, _)| need.allows(self, name))
            .collect();
        let free: Vec<u64> = allowed
            .iter()
            .filter(|(name, node)| node.online && need.finds_devices(self, name))
            .map(|(_, node)| {
                let used = node.memory_used.as_bytes();
                node.memory.as_bytes().saturating_sub(used)
            })
            .collect();
        let weight = self.listed.as_ref().and_then(|listed| listed.weight);
        Candidate {
            name: self.instance.as_deref().unwrap_or_default(),
            weight: weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0)),
            machines,
            ready: self.is_ready() && !allowed.is_empty(),
            fits: free.iter().any(|free| *free >= need.memory) && need.finds_template(self),
            free_memory: free.iter().sum(),
        }
    }
}

/// The instances that are listed for use: all, the first, or none at all.
fn listed(object: &ProxmoxCluster) -> (Mode, &[Instance]) {
    match &object.spec.settings {
        Some(settings) => (settings.mode.unwrap_or_default(), &settings.instances),
        None => (Mode::Default, &[]),
    }
}

/// Connects every Proxmox VE cluster that the mode puts to use. Secrets are read only where nobody has read them lately.
///
/// Every pass over every machine asks for it, so it must not cost more the more machines there are.
pub(in crate::capi) async fn used(
    context: &Context,
    object: &ProxmoxCluster,
) -> Result<Vec<Used>, Stop> {
    let (mode, instances) = listed(object);
    let mut all = Vec::new();
    if instances.is_empty() {
        all.push(one(context, object, None).await?);
        return Ok(all);
    }
    let wanted = match mode {
        Mode::Default => &instances[..1],
        Mode::SingleInstance | Mode::MultiInstance => instances,
    };
    for instance in wanted {
        all.push(one(context, object, Some(instance)).await?);
    }
    if mode == Mode::SingleInstance {
        let candidates: Vec<_> = all
            .iter()
            .map(|used| used.candidate(0, &Need::default()))
            .collect();
        let listed = |name: &String| instances.iter().any(|instance| instance.name == *name);
        let picked = || {
            let uid = object.uid().unwrap_or_default();
            pick_one(&candidates, &uid).map(str::to_owned)
        };
        let before = selected(context, object).filter(listed);
        // Status does not travel: after a move the machines know where they are.
        let lived_on = || named_by_machines(context, object).into_iter().find(listed);
        let Some(chosen) = before.or_else(lived_on).or_else(picked) else {
            return Err(Wait::new(
                "ProxmoxUnreachable",
                "no instance answers, so none can be picked",
            )
            .into());
        };
        all.retain(|used| used.instance.as_deref() == Some(&chosen));
    }
    Ok(all)
}

/// The instance that was picked, as far as anybody wrote it down.
fn selected(context: &Context, object: &ProxmoxCluster) -> Option<String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Selected {
        selected_instance: Option<String>,
    }
    let uid = object.uid().unwrap_or_default();
    match context.statuses.written::<Selected>(&uid) {
        Some(written) => written.selected_instance,
        None => object.status.as_ref()?.selected_instance.clone(),
    }
}

/// Asks every Proxmox VE cluster in use for the devices it has.
pub(in crate::capi) async fn learn_devices(context: &Context, used: &mut [Used]) {
    for used in used {
        if let Ok(name) = &used.place
            && used.facts.reachable
        {
            context.fleet.learn_devices(name).await;
            used.facts = context.fleet.facts(name).unwrap_or_default();
        }
    }
}

async fn one(
    context: &Context,
    object: &ProxmoxCluster,
    instance: Option<&Instance>,
) -> Result<Used, Stop> {
    let place = match context.places.known(object, instance) {
        Some(name) => Ok(name),
        None => match connect::connect(context, object, instance).await {
            Ok(name) => Ok(name),
            // One instance's credentials being wrong is no reason to stop using the others.
            Err(Stop::Wait(wait)) => Err(wait),
            Err(other) => return Err(other),
        },
    };
    let facts = place
        .as_ref()
        .ok()
        .and_then(|name| context.fleet.facts(name))
        .unwrap_or_default();
    Ok(Used {
        instance: instance.map(|instance| instance.name.clone()),
        place,
        facts,
        listed: instance.cloned(),
    })
}

/// Machines of a role that an instance has or was just chosen for; those on their way out make room already.
pub(in crate::capi) fn held(
    context: &Context,
    object: &ProxmoxCluster,
    instance: &str,
    control_plane: bool,
    chosen: &BTreeMap<String, String>,
) -> u32 {
    let cluster = owner::cluster_label(object).map_or_else(|| object.name_any(), str::to_owned);
    let place = namespace(object);
    let all = context.stores.proxmox_machines.state();
    let held = all.iter().filter(|machine| {
        let uid = machine.metadata.uid.as_ref();
        let newest = uid.and_then(|uid| chosen.get(uid));
        let on = newest
            .or(machine.spec.instance.as_ref())
            .map(String::as_str);
        on == Some(instance)
            && machine.metadata.deletion_timestamp.is_none()
            && machine.labels().contains_key(CONTROL_PLANE_LABEL) == control_plane
            && owner::cluster_label(&***machine) == Some(cluster.as_str())
            && namespace(&***machine) == place
    });
    u32::try_from(held.count()).unwrap_or(u32::MAX)
}

/// Why no instance can be used, if none can.
pub(super) fn none_answers(used: &[Used]) -> Option<String> {
    if used.iter().any(Used::is_ready) {
        return None;
    }
    let problems = used.iter().map(|used| {
        let name = used.instance.as_deref().unwrap_or("Proxmox VE");
        let problem = used.problem().unwrap_or("has not answered yet");
        format!("{name}: {problem}")
    });
    Some(problems.collect::<Vec<_>>().join("; "))
}

/// The instances that machines of a cluster are on or ask for, by the machines' names.
fn named_by_machines(context: &Context, object: &ProxmoxCluster) -> Vec<String> {
    let all = machines(context, object);
    let names = all
        .iter()
        .filter_map(|machine| machine.spec.instance.clone());
    names.collect()
}

/// The machines of a cluster, by name.
pub(super) fn machines(context: &Context, object: &ProxmoxCluster) -> Vec<Arc<ProxmoxMachine>> {
    let cluster = owner::cluster_label(object).map_or_else(|| object.name_any(), str::to_owned);
    let place = namespace(object);
    let mut all = context.stores.proxmox_machines.state();
    all.retain(|machine| {
        namespace(&**machine) == place && owner::cluster_label(&**machine) == Some(&cluster)
    });
    all.sort_by_key(|machine| machine.name_any());
    all
}
