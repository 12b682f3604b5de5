//! The Secrets a ProxmoxCluster reads.
//!
//! They are kept until it is gone, and go where it goes: `clusterctl move` takes along what carries its label.
//! Secrets of another namespace are shared by their owner's decision and left alone.

use std::sync::Arc;

use api::infrastructure::v1beta1::ProxmoxCluster;
use api::vm::NamespacedRef;

use crate::context::{Context, Error, namespace};
use crate::kinds::Watches;
use crate::secrets::Keep;

pub(crate) const KEEP: Keep = Keep {
    // The name other providers used, so that a take-over leaves none behind.
    finalizer: "proxmoxcluster.infrastructure.cluster.x-k8s.io/secret",
    label: Some("clusterctl.cluster.x-k8s.io/move"),
    // Other providers kept those of other namespaces too.
    needed: |context, place, name| {
        let mut clusters = context.stores.proxmox_clusters.state().into_iter();
        clusters.any(|cluster| {
            let own = namespace(&*cluster);
            references(&cluster)
                .any(|it| it.name == name && it.namespace.as_deref().unwrap_or(&own) == place)
        })
    },
};

/// Every Secret a ProxmoxCluster names.
pub(super) fn references(object: &ProxmoxCluster) -> impl Iterator<Item = &NamespacedRef> {
    let instances = object
        .spec
        .settings
        .iter()
        .flat_map(|settings| &settings.instances);
    instances
        .filter_map(|instance| instance.credentials_ref.as_ref())
        .chain(&object.spec.credentials_ref)
}

/// Names of those in its own namespace.
fn own(object: &ProxmoxCluster) -> Vec<String> {
    let place = namespace(object);
    let mut names: Vec<String> = references(object)
        .filter(|reference| reference.namespace.as_ref().is_none_or(|n| *n == place))
        .map(|reference| reference.name.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Keeps the Secrets until the cluster is gone, and has them moved with it.
pub(super) async fn hold(context: &Context, object: &ProxmoxCluster) -> Result<(), Error> {
    if context.places.is_held(object) {
        return Ok(());
    }
    // Said first: a Secret that changes meanwhile takes it back.
    context.places.hold(object);
    let held = KEEP.hold(context, object, &own(object)).await;
    if held.is_err() {
        context.places.let_go(object);
    }
    held.map(drop)
}

/// Those that a cluster names no more are let go.
pub(super) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    Keep::follow(&mut watches.proxmox_clusters, context, own);
}
