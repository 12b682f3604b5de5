//! The Secrets a ProxmoxCluster reads.
//!
//! They are kept until it is gone, and go where it goes: `clusterctl move` takes along what carries its label.
//! Secrets of another namespace are shared by their owner's decision and left alone.

use api::infrastructure::v1beta1::ProxmoxCluster;
use api::vm::NamespacedRef;

use crate::context::{Context, Error, namespace};
use crate::secrets::Keep;

const KEEP: Keep = Keep {
    // The name other providers used, so that a take-over leaves none behind.
    finalizer: "proxmoxcluster.infrastructure.cluster.x-k8s.io/secret",
    label: Some("clusterctl.cluster.x-k8s.io/move"),
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
    KEEP.hold(context, object, &own(object)).await?;
    context.places.hold(object);
    Ok(())
}

/// Lets go of the Secrets that no other cluster needs.
pub(super) async fn release(context: &Context, object: &ProxmoxCluster) -> Result<(), Error> {
    let place = namespace(object);
    let others = context.stores.proxmox_clusters.state();
    let needed = |name: &String| {
        others.iter().any(|other| {
            other.metadata.uid != object.metadata.uid
                && namespace(&**other) == place
                && own(other).contains(name)
        })
    };
    let mut names = own(object);
    names.retain(|name| !needed(name));
    KEEP.release(context, &place, &names).await
}
