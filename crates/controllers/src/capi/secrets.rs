//! The Secrets a ProxmoxCluster reads.
//!
//! Without its credentials a cluster cannot be taken down, so they are kept until it is gone: a finalizer holds them even when
//! their whole namespace is deleted. And they go where the cluster goes: `clusterctl move` takes along what carries its label.
//! Secrets of another namespace are shared by their owner's decision and left alone.

use api::infrastructure::v1beta1::ProxmoxCluster;
use api::vm::NamespacedRef;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::context::{Context, Error, namespace};

/// The name other providers used, so that a take-over leaves none behind.
const FINALIZER: &str = "proxmoxcluster.infrastructure.cluster.x-k8s.io/secret";
const MOVE_LABEL: &str = "clusterctl.cluster.x-k8s.io/move";

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
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace(object));
    for name in own(object) {
        let Some(secret) = api.get_metadata_opt(&name).await? else {
            continue;
        };
        let mut finalizers = secret.finalizers().to_vec();
        let held = finalizers.iter().any(|f| f == FINALIZER);
        if secret.metadata.deletion_timestamp.is_some()
            || (held && secret.labels().contains_key(MOVE_LABEL))
        {
            continue;
        }
        if !held {
            finalizers.push(FINALIZER.to_owned());
        }
        let patch = json!({"metadata": {
            "resourceVersion": secret.resource_version(),
            "finalizers": finalizers, "labels": {MOVE_LABEL: ""},
        }});
        let params = PatchParams::default();
        match api
            .patch_metadata(&name, &params, &Patch::Merge(&patch))
            .await
        {
            Ok(_) => {}
            // An administrator may not want it written. Then it can be lost, and they should know.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let text = format!(
                    "Secret {name:?} is not kept until the cluster is gone: {}",
                    status.message
                );
                context.warn(object, "SecretNotHeld", &text).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    context.places.hold(object);
    Ok(())
}

/// Lets go of the Secrets that no other cluster needs.
pub(super) async fn release(context: &Context, object: &ProxmoxCluster) -> Result<(), Error> {
    let place = namespace(object);
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &place);
    let others = context.stores.proxmox_clusters.state();
    for name in own(object) {
        let needed = others.iter().any(|other| {
            other.metadata.uid != object.metadata.uid
                && namespace(&**other) == place
                && own(other).contains(&name)
        });
        let Some(secret) = api.get_metadata_opt(&name).await? else {
            continue;
        };
        if needed || !secret.finalizers().iter().any(|f| f == FINALIZER) {
            continue;
        }
        let rest: Vec<_> = secret
            .finalizers()
            .iter()
            .filter(|f| *f != FINALIZER)
            .collect();
        let patch = json!({"metadata": {
            "resourceVersion": secret.resource_version(), "finalizers": rest,
        }});
        let params = PatchParams::default();
        match api
            .patch_metadata(&name, &params, &Patch::Merge(&patch))
            .await
        {
            Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {}
            other => drop(other?),
        }
    }
    Ok(())
}
