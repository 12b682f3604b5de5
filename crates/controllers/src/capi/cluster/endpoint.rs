//! Where the cluster's API server answers.

use api::cluster_api::{
    Cluster, IPAddress, IPAddressClaim, IPAddressClaimSpec, ObjectRef as PoolRef,
};
use api::infrastructure::v1beta1::{ControlPlaneEndpointPool, ProxmoxCluster};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::super::address::IPAM_GROUP;
use super::super::{Stop, Wait};
use crate::context::{Context, namespace};

/// The port API servers listen on unless told otherwise.
const PORT: i32 = 6443;

/// Whether the endpoint is known; claims an address for it where a pool is named.
pub(super) async fn ensure(
    context: &Context,
    object: &ProxmoxCluster,
    cluster: &Cluster,
) -> Result<(), Stop> {
    let host = object
        .spec
        .control_plane_endpoint
        .as_ref()
        .and_then(|e| e.host.as_deref());
    if host.is_some_and(|host| !host.is_empty()) {
        return Ok(());
    }
    // Whoever manages the control plane may also write its endpoint into the Cluster.
    if cluster
        .spec
        .control_plane_endpoint
        .as_ref()
        .is_some_and(|e| !e.host.is_empty())
    {
        return Ok(());
    }
    match &object.spec.control_plane_endpoint_pool {
        Some(pool) => claimed(context, object, cluster, pool).await,
        None => Err(Wait::new(
            "MissingControlPlaneEndpoint",
            if object.spec.external_managed_control_plane == Some(true) {
                "waiting for the control-plane provider to write spec.controlPlaneEndpoint"
            } else {
                "set spec.controlPlaneEndpoint, or name a pool in spec.controlPlaneEndpointPool"
            },
        )
        .into()),
    }
}

async fn claimed(
    context: &Context,
    object: &ProxmoxCluster,
    cluster: &Cluster,
    pool: &ControlPlaneEndpointPool,
) -> Result<(), Stop> {
    let place = namespace(object);
    let name = format!("{}-control-plane-endpoint", object.name_any());
    let claim = context
        .stores
        .claims
        .get(&ObjectRef::new(&name).within(&place));
    let Some(claim) = claim else {
        let mut claim = IPAddressClaim::new(
            &name,
            IPAddressClaimSpec {
                cluster_name: Some(cluster.name_any()),
                pool_ref: PoolRef {
                    api_group: Some(pool.api_group.clone().unwrap_or_else(|| IPAM_GROUP.into())),
                    kind: pool.kind.clone(),
                    name: pool.name.clone(),
                },
            },
        );
        claim.metadata = ObjectMeta {
            owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..claim.metadata
        };
        let api: Api<IPAddressClaim> = Api::namespaced(context.client.clone(), &place);
        match api.create(&PostParams::default(), &claim).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
        return Err(waiting(&name).into());
    };
    let given = claim
        .status
        .as_ref()
        .and_then(|status| status.address_ref.as_ref());
    let Some(given) = given else {
        return Err(waiting(&name).into());
    };
    let addresses: Api<IPAddress> = Api::namespaced(context.client.clone(), &place);
    let address = addresses.get(&given.name).await?;
    let endpoint = json!({"spec": {"controlPlaneEndpoint": {
        "host": address.spec.address, "port": pool.port.unwrap_or(PORT),
    }}});
    let api: Api<ProxmoxCluster> = Api::namespaced(context.client.clone(), &place);
    api.patch(
        &object.name_any(),
        &PatchParams::default(),
        &Patch::Merge(&endpoint),
    )
    .await?;
    Ok(())
}

fn waiting(claim: &str) -> Wait {
    Wait::new(
        "WaitingForStaticIPAllocation",
        format!("IPAddressClaim {claim} has no address yet"),
    )
}
