//! `ProxmoxCluster`: the Proxmox VE clusters, address pools and endpoint of one Kubernetes cluster.

mod endpoint;
mod instances;
mod need;
mod pools;
mod report;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::cluster_api::Cluster;
use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxClusterStatus};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tokio::time::Instant;

use super::{Stop, Wait, notice, owner, secrets};
use crate::context::{Context, Error, FIRST_LOOK, namespace};
use crate::kinds::Watches;
use crate::work::Action;

pub(super) use instances::{Used, held, learn_devices, used};
pub(super) use need::{Need, has_devices};

/// How often what is known about the Proxmox VE clusters is written down anew.
const LOOK: Duration = Duration::from_secs(30);

/// How often a cluster that is as it should be is looked at for its machines' sake. Each of a hundred machines that come up
/// at once changes what is said about it several times; it is said together.
const PACE: Duration = Duration::from_secs(10);

/// When clusters that are as they should be were looked at, and in which generation.
#[derive(Default)]
pub(crate) struct Paces(Mutex<BTreeMap<String, (Instant, Option<i64>)>>);

impl Paces {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, Option<i64>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a cluster can still be left as it is; nothing if it has been changed.
    fn rest(&self, uid: &str, object: &ProxmoxCluster) -> Option<Duration> {
        let (at, generation) = *self.lock().get(uid)?;
        let rest = PACE.checked_sub(at.elapsed())?;
        (generation == object.metadata.generation && !rest.is_zero()).then_some(rest)
    }

    fn looked(&self, uid: String, object: &ProxmoxCluster) {
        let now = (Instant::now(), object.metadata.generation);
        self.lock().insert(uid, now);
    }

    fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }
}

/// A ProxmoxCluster is looked at again when its Cluster, one of its machines or one of its Secrets has changed.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    secrets::wire(watches, context);
    let (to, changes) = (context.clone(), crate::hub::SpecChanges::new());
    watches.capi_clusters.subscribe(move |cluster: &Cluster| {
        let reference = cluster.spec.infrastructure_ref.as_ref();
        if let Some(reference) = reference.filter(|_| changes.is_new(cluster)) {
            let object = ObjectRef::new(&reference.name).within(&namespace(cluster));
            to.queues.proxmox_clusters.push(object);
        }
    });
    let to = context.clone();
    watches.proxmox_machines.subscribe(move |machine| {
        let place = namespace(machine);
        if let Some(name) = owner::cluster_label(machine)
            && let Ok(cluster) = owner::cluster(&to, &place, name)
            && let Some(reference) = &cluster.spec.infrastructure_ref
        {
            to.queues
                .proxmox_clusters
                .push(ObjectRef::new(&reference.name).within(&place));
        }
    });
}

/// Looks at the ProxmoxClusters that read a Secret.
pub(crate) fn secret_changed(context: &Context, place: &str, name: &str) {
    for cluster in context.stores.proxmox_clusters.state() {
        let own = namespace(&*cluster);
        let reads = secrets::references(&cluster).any(|reference| {
            reference.name == name && reference.namespace.as_deref().unwrap_or(&own) == place
        });
        if reads {
            context.paces.forget(&cluster.uid().unwrap_or_default());
            context.places.forget(&cluster);
            context.queues.proxmox_clusters.push_object(&cluster);
        }
    }
}

pub(crate) async fn reconcile(
    object: Arc<ProxmoxCluster>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    if owner::is_foreign(&context, &*object) {
        return Ok(Action::await_change());
    }
    let uid = object.uid().unwrap_or_default();
    let cluster = owner::cluster_of(&context, &object);
    let paused = owner::is_paused(&*object, cluster.as_deref().ok());
    let leaves = object.metadata.deletion_timestamp.is_some();
    if !paused
        && !leaves
        && let Some(rest) = context.paces.rest(&uid, &object)
    {
        return Ok(Action::requeue(rest));
    }
    let before: ProxmoxClusterStatus = context.statuses.newest(&uid, object.status.as_ref());
    if paused {
        let status = report::paused(&context, &object, &before);
        write(&context, &object, &status).await?;
        return Ok(Action::await_change());
    }
    if leaves {
        return remove(&object, &context, &before).await;
    }
    let status = match &cluster {
        Err(wait) => report::waiting(&context, &object, &before, wait),
        Ok(cluster) => {
            context.hold(&*object).await?;
            match prepare(&object, &context, cluster).await {
                Ok(used) => report::available(&context, &object, &before, &used),
                Err(Stop::Wait(wait)) => {
                    context.warn(&*object, wait.reason, &wait.message).await;
                    report::waiting(&context, &object, &before, &wait)
                }
                Err(Stop::Asked) => return Ok(Action::requeue(FIRST_LOOK)),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
    };
    write(&context, &object, &status).await?;
    if status.ready != Some(true) {
        return Ok(Action::requeue(LOOK));
    }
    context.paces.looked(uid, &object);
    let noticed = cluster.is_ok_and(|cluster| owner::is_provisioned(&cluster));
    let soon = notice::see_to_it(&context, &*object, noticed).await?;
    Ok(soon.within(LOOK))
}

/// Makes everything ready that machines need: connections, pools, the endpoint.
async fn prepare(
    object: &ProxmoxCluster,
    context: &Context,
    cluster: &Cluster,
) -> Result<Vec<Used>, Stop> {
    let used = instances::used(context, object).await?;
    let mut places = used.iter().filter_map(|used| used.place.as_ref().ok());
    let said = object
        .status
        .as_ref()
        .is_some_and(|status| !status.conditions.is_empty());
    // What was said holds until all of them were looked at; to begin, one that answers is enough.
    if (said || !used.iter().any(Used::is_ready)) && places.any(|place| context.is_unseen(place)) {
        return Err(Stop::Asked);
    }
    secrets::hold(context, object).await?;
    pools::ensure(context, object).await?;
    endpoint::ensure(context, object, cluster).await?;
    if let Some(problem) = instances::none_answers(&used) {
        return Err(Wait::new("ProxmoxUnreachable", problem).into());
    }
    Ok(used)
}

/// A ProxmoxCluster goes after its machines.
async fn remove(
    object: &ProxmoxCluster,
    context: &Context,
    before: &ProxmoxClusterStatus,
) -> Result<Action, Error> {
    let left = instances::machines(context, object);
    let uid = object.uid().unwrap_or_default();
    context.paces.forget(&uid);
    context.unnoticed.forget(&uid);
    if left.is_empty() {
        context.release(object).await?;
        context.places.forget(object);
        return Ok(Action::await_change());
    }
    let names: Vec<_> = left.iter().map(|machine| machine.name_any()).collect();
    let wait = Wait::new(
        "WaitingForMachines",
        format!("its machines go first: {}", names.join(", ")),
    );
    let status = report::waiting(context, object, before, &wait);
    write(context, object, &status).await?;
    Ok(Action::requeue(LOOK))
}

async fn write(
    context: &Context,
    object: &ProxmoxCluster,
    status: &ProxmoxClusterStatus,
) -> Result<(), Error> {
    context
        .statuses
        .write(&context.client, object, object.status.as_ref(), status)
        .await?;
    Ok(())
}
