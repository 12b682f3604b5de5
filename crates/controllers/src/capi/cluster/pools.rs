//! The address pools of a cluster, for the in-cluster address manager to give out.

use api::cluster_api::{InClusterIPPool, InClusterIPPoolSpec};
use api::infrastructure::v1beta1::{IpConfig, ProxmoxCluster};
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::super::address::Pools;
use super::super::{Stop, Wait};
use crate::context::{Context, namespace};
use crate::status::MANAGER;

/// Makes the pools that the spec describes, and keeps them as described.
pub(super) async fn ensure(context: &Context, object: &ProxmoxCluster) -> Result<(), Stop> {
    for (name, config) in all(object) {
        one(context, object, &name, config).await?;
    }
    Ok(())
}

/// Names of the pools, with what they hold.
pub(super) fn all(object: &ProxmoxCluster) -> Vec<(String, &IpConfig)> {
    let spec = &object.spec;
    let instances = spec
        .settings
        .iter()
        .flat_map(|settings| &settings.instances);
    let mut pools = Pools::of(object, None, None).named(&object.name_any());
    for zone in &spec.zone_config {
        pools.extend(Pools::of(object, None, Some(&zone.zone)).named(&object.name_any()));
    }
    for instance in instances {
        pools.extend(Pools::of(object, Some(&instance.name), None).named(&object.name_any()));
    }
    pools.sort_by(|a, b| a.0.cmp(&b.0));
    pools.dedup_by(|a, b| a.0 == b.0);
    pools
}

async fn one(
    context: &Context,
    object: &ProxmoxCluster,
    name: &str,
    config: &IpConfig,
) -> Result<(), Stop> {
    let wanted = InClusterIPPoolSpec {
        addresses: config.addresses.clone(),
        prefix: config.prefix,
        gateway: config.gateway.clone(),
    };
    let place = namespace(object);
    let known = context
        .stores
        .pools
        .get(&ObjectRef::new(name).within(&place));
    if known.is_some_and(|pool| pool.spec == wanted) {
        return Ok(());
    }
    let pool = json!({
        "apiVersion": InClusterIPPool::api_version(&()),
        "kind": InClusterIPPool::kind(&()),
        "metadata": {"name": name, "ownerReferences": object.controller_owner_ref(&()).map(|o| vec![o])},
        "spec": wanted,
    });
    let api: Api<InClusterIPPool> = Api::namespaced(context.client.clone(), &place);
    let params = PatchParams::apply(MANAGER).force();
    match api.patch(name, &params, &Patch::Apply(&pool)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(Wait::new(
            "AddressManagerMissing",
            "the kind InClusterIPPool is not installed; run `clusterctl init --ipam in-cluster`",
        )
        .into()),
        Err(error) => Err(error.into()),
    }
}
