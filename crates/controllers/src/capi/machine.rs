//! `ProxmoxMachine`: one machine of a Kubernetes cluster, one guest.

mod bootstrap;
mod choice;
mod intent;
mod network;
mod remove;
mod report;
mod source;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::cluster_api::{Cluster, Machine};
use api::infrastructure::ZONE_LABEL;
use api::infrastructure::v1beta1::{
    Instance, NodeGroup, ProxmoxCluster, ProxmoxMachine, ProxmoxMachineStatus,
};
use api::vm::FleetRecord;
use fleet::{ClusterName, GuestRecord, Outcome};
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{Stop, Wait, notice, owner};
use crate::context::{Context, Error, namespace};
use crate::kinds::Watches;
use crate::work::Action;

pub(super) use intent::{gibibytes, memory};
pub(crate) use network::Asked;
pub(super) use source::templates;

/// How long a machine that is being worked on is left to the engine's call at most, and a step of it unsaid.
const LULL: Duration = Duration::from_secs(10);
/// How long what was asked for may take before its absence is worth saying.
const MOMENT: Duration = Duration::from_secs(3);
/// How long a machine that waits for somebody else is left alone at most.
const RECHECK: Duration = Duration::from_mins(1);

/// Everything one pass reads.
struct Subject<'a> {
    object: &'a ProxmoxMachine,
    machine: &'a Machine,
    cluster: &'a Cluster,
    infrastructure: &'a ProxmoxCluster,
    /// The instance it is on; nothing where the cluster lists none.
    instance: Option<&'a Instance>,
    place: ClusterName,
}

impl Subject<'_> {
    /// The group of nodes that its failure domain is. One of another instance says nothing where the instance was asked for.
    fn group(&self) -> Option<&NodeGroup> {
        let here = self.instance.map(|instance| &instance.name);
        choice::group(self.machine, self.infrastructure)
            .filter(|group| group.instance.is_none() || group.instance.as_ref() == here)
    }

    /// The failure domain it is in.
    fn failure_domain(&self) -> Option<String> {
        let instance = self.instance.map(|instance| instance.name.clone());
        let group = self.group().map(|group| group.name.clone());
        let said = || self.machine.spec.failure_domain.clone();
        group.or(instance).or_else(said)
    }
}

/// Provider ID and VMID that were written into specs, by UID: the watch may be behind.
#[derive(Default)]
pub(crate) struct Identified(Mutex<BTreeMap<String, (String, i64)>>);

impl Identified {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (String, i64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A machine is looked at again when its Machine, its claims or its cluster have changed.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let to = context.clone();
    watches.capi_machines.subscribe(move |machine: &Machine| {
        let reference = machine.spec.infrastructure_ref.as_ref();
        if let Some(reference) = reference.filter(|it| it.kind == "ProxmoxMachine") {
            let object = ObjectRef::new(&reference.name).within(&namespace(machine));
            to.queues.proxmox_machines.push(object);
        }
    });
    let to = context.clone();
    watches.claims.subscribe(move |claim| {
        let owners = claim.owner_references().iter();
        for owner in owners.filter(|owner| owner.kind == "ProxmoxMachine") {
            let object = ObjectRef::new(&owner.name).within(&namespace(claim));
            to.queues.proxmox_machines.push(object);
        }
    });
    let of_cluster = |to: &Context, place: &str, cluster: Option<&str>| {
        for object in to.stores.proxmox_machines.state() {
            if namespace(&*object) == place && owner::cluster_label(&*object) == cluster {
                to.queues.proxmox_machines.push_object(&object);
            }
        }
    };
    let (to, changes) = (context.clone(), crate::hub::SpecChanges::new());
    watches.capi_clusters.subscribe(move |cluster: &Cluster| {
        // Cluster API counts its machines there all the time; of that nothing is read.
        if changes.is_new_with(cluster, owner::is_provisioned(cluster)) {
            of_cluster(&to, &namespace(cluster), Some(&cluster.name_any()));
        }
    });
    let (to, changes) = (context.clone(), crate::hub::SpecChanges::new());
    watches.proxmox_clusters.subscribe(move |cluster| {
        if changes.is_new(cluster) {
            of_cluster(&to, &namespace(cluster), owner::cluster_label(cluster));
        }
    });
}

/// The engine's record of a machine.
fn record(status: &ProxmoxMachineStatus) -> GuestRecord {
    let kept = status.record.as_ref();
    kept.and_then(FleetRecord::read).unwrap_or_default()
}

impl crate::removal::KeepsGuest for ProxmoxMachineStatus {
    fn guest(&self) -> GuestRecord {
        record(self)
    }
}

pub(crate) async fn reconcile(
    object: Arc<ProxmoxMachine>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if owner::is_foreign(&context, &*object) {
        return Ok(Action::await_change());
    }
    let uid = object.uid().unwrap_or_default();
    let before: ProxmoxMachineStatus = context.statuses.newest(&uid, object.status.as_ref());
    if context.statuses.is_behind(&uid) {
        // What could not be written last time goes first: nothing is done on an unstored record.
        write(&context, &object, &before).await?;
    }
    let cluster = owner::cluster_label(&*object)
        .ok_or_else(|| {
            Wait::new(
                "WaitingForOwner",
                "the machine carries no cluster label yet",
            )
        })
        .and_then(|name| owner::cluster(&context, &namespace(&*object), name));
    if owner::is_paused(&*object, cluster.as_deref().ok()) {
        let status = report::paused(&context, &object, &before);
        write(&context, &object, &status).await?;
        return Ok(Action::await_change());
    }
    if object.metadata.deletion_timestamp.is_some() {
        context.chosen.lock().remove(&uid);
        context.identified.lock().remove(&uid);
        context.unnoticed.forget(&uid);
        return remove::remove(&object, &context, cluster.ok().as_deref(), before).await;
    }
    let status = before.clone();
    match bring(&object, &context, cluster, status).await {
        Ok((status, outcome)) => {
            report::announce(&context, &object, &before, &status).await;
            Ok(match outcome {
                // What was put off is written by then.
                Outcome::Waiting { retry, .. } if context.statuses.is_put_off(&uid) => {
                    Action::requeue(retry.min(LULL))
                }
                Outcome::Waiting { retry, .. } => Action::requeue(retry),
                Outcome::Working { .. } | Outcome::Persist => Action::requeue(LULL),
                Outcome::Settled => {
                    // Without its Machine there is nobody to notice.
                    let machine = owner::machine_of(&context, &*object);
                    let noticed = machine.map_or(true, |it| owner::is_machine_provisioned(&it));
                    notice::see_to_it(&context, &*object, noticed).await?
                }
                Outcome::Gone | Outcome::Failed { .. } => Action::await_change(),
            })
        }
        Err(Stop::Wait(wait)) => {
            let newest = context.statuses.newest(&uid, Some(&before));
            let status = report::waiting(&context, &object, &newest, &wait);
            write(&context, &object, &status).await?;
            Ok(Action::requeue(RECHECK))
        }
        Err(Stop::Asked) => Ok(Action::requeue(MOMENT)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Brings a machine one step nearer to being one.
async fn bring(
    object: &ProxmoxMachine,
    context: &Context,
    cluster: Result<Arc<Cluster>, Wait>,
    mut status: ProxmoxMachineStatus,
) -> Result<(ProxmoxMachineStatus, Outcome), Stop> {
    let machine = owner::machine_of(context, object)?;
    let cluster = cluster?;
    let infrastructure = owner::infrastructure(context, &cluster)?;
    if !owner::is_provisioned(&cluster) {
        return Err(Wait::new(
            "WaitingForClusterInfrastructureReady",
            "the cluster's infrastructure is not ready yet",
        )
        .into());
    }
    let known = record(&status);
    if machine.spec.bootstrap.data_secret_name.is_none() && !known.booted {
        return Err(Wait::new("WaitingForBootstrapData", "there is no bootstrap data yet").into());
    }
    let mut used = super::cluster::used(context, &infrastructure).await?;
    if known.identity.is_none() && super::cluster::has_devices(&object.spec) {
        super::cluster::learn_devices(context, &mut used).await;
    }
    let choice = choice::choose(context, object, &machine, &infrastructure, &used, &known)?;
    let chosen = choice.used;
    let mut instances = infrastructure
        .spec
        .settings
        .iter()
        .flat_map(|s| &s.instances);
    let subject = Subject {
        object,
        machine: &machine,
        cluster: &cluster,
        infrastructure: &infrastructure,
        instance: instances.find(|instance| Some(&instance.name) == chosen.instance.as_ref()),
        place: chosen.place.clone()?,
    };
    // Held, and its place written down, before anything is done there: so it is never chosen twice.
    let unbegun = choice::is_unbegun(object, &known);
    context
        .hold_with(object, choice.to_write(object, unbegun))
        .await?;
    let given = network::addresses(context, &subject, unbegun).await?;
    let told = known.booted || intent::adopted(&subject, &known)?.is_some();
    let secret = bootstrap::read(context, &subject, told).await?;
    loop {
        let known = record(&status);
        let intent = intent::intent(&subject, chosen, &known, &given, &secret)?;
        if !status.conditions.is_empty() && context.is_unseen(&intent.cluster) {
            return Err(Stop::Asked);
        }
        let mut progress = context.fleet.guest(&intent, &known).await;
        progress.outcome = choice.explain(&known, progress.outcome);
        let outcome = progress.outcome.clone();
        context
            .tell(object, &report::notable(&progress.events))
            .await;
        let now = report::status(context, &subject, &status, progress, &given);
        let uid = object.uid().unwrap_or_default();
        let step = report::is_only_a_step(&outcome, &status, &now);
        if !step || !context.statuses.put_off(&uid, &now, LULL) {
            write(context, object, &now).await?;
        }
        status = now;
        identify(context, object, &record(&status)).await?;
        if outcome != Outcome::Persist {
            return Ok((status, outcome));
        }
    }
}

/// Writes down who the guest is, where Cluster API and people look for it.
async fn identify(
    context: &Context,
    object: &ProxmoxMachine,
    record: &GuestRecord,
) -> Result<(), Error> {
    let Some(identity) = &record.identity else {
        return Ok(());
    };
    let provider_id = format!("proxmox://{}", identity.uuid);
    let vmid = i64::from(identity.vmid.get());
    // A machine that came from elsewhere keeps the name its Node knows it by.
    let known = object.spec.provider_id.clone().filter(|_| identity.adopted);
    let kept = known.unwrap_or(provider_id);
    let uid = object.uid().unwrap_or_default();
    let seen = object.spec.provider_id.as_ref() == Some(&kept)
        && object.spec.virtual_machine_id == Some(vmid);
    // What was written may not show in the watch yet.
    if seen || context.identified.lock().get(&uid) == Some(&(kept.clone(), vmid)) {
        return Ok(());
    }
    let api: Api<ProxmoxMachine> = context.api(object);
    let patch = json!({
        "metadata": {"uid": uid, "labels": {ZONE_LABEL: super::address::zone(object)}},
        "spec": {"providerID": kept, "virtualMachineID": vmid},
    });
    api.patch(
        &object.name_any(),
        &PatchParams::default(),
        &Patch::Merge(&patch),
    )
    .await?;
    context.identified.lock().insert(uid, (kept, vmid));
    Ok(())
}

async fn write(
    context: &Context,
    object: &ProxmoxMachine,
    status: &ProxmoxMachineStatus,
) -> Result<(), Error> {
    context
        .statuses
        .write(&context.client, object, object.status.as_ref(), status)
        .await?;
    Ok(())
}
