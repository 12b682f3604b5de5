//! The kinds of Cluster API and its address management, as far as an infrastructure provider reads them.
//!
//! They belong to other projects, so there is no schema here: unknown fields are left alone and nothing of this is installed
//! where Cluster API is. Where its part is only played, [`stand_ins`] make an API server take the objects.

#![expect(
    missing_docs,
    reason = "the fields are documented by the projects they belong to"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceSubresourceStatus, CustomResourceSubresources,
    CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ObjectMeta;
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize};

/// Label with the name of the Cluster an object belongs to.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label of control-plane machines.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// Annotation that pauses one object.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Annotation of objects that somebody else looks after.
pub const MANAGED_BY_ANNOTATION: &str = "cluster.x-k8s.io/managed-by";
/// Label that divides objects among several managers.
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";

#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    namespaced,
    status = "ClusterStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    #[serde(default)]
    pub paused: bool,
    pub control_plane_endpoint: Option<Endpoint>,
    pub infrastructure_ref: Option<ObjectRef>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub port: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    pub api_group: Option<String>,
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub initialization: Option<Initialization>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    pub infrastructure_provisioned: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    namespaced,
    status = "MachineStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    #[serde(default)]
    pub cluster_name: String,
    #[serde(default)]
    pub bootstrap: Bootstrap,
    pub failure_domain: Option<String>,
    pub infrastructure_ref: Option<ObjectRef>,
    pub version: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    pub data_secret_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    pub initialization: Option<Initialization>,
    pub node_ref: Option<NodeRef>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRef {
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "IPAddressClaim",
    namespaced,
    status = "IPAddressClaimStatus",
    plural = "ipaddressclaims",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    pub pool_ref: ObjectRef,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimStatus {
    pub address_ref: Option<NodeRef>,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "IPAddress",
    namespaced,
    plural = "ipaddresses",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressSpec {
    pub address: String,
    pub prefix: Option<i32>,
    pub gateway: Option<String>,
    pub claim_ref: NodeRef,
    pub pool_ref: ObjectRef,
}

#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "InClusterIPPool",
    namespaced,
    plural = "inclusterippools",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct InClusterIPPoolSpec {
    pub addresses: Vec<String>,
    pub prefix: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

/// Definitions of these kinds that take everything, for where nothing else of Cluster API is: simulations and measurements.
pub fn stand_ins() -> Vec<CustomResourceDefinition> {
    vec![
        stand_in::<Cluster>(),
        stand_in::<Machine>(),
        stand_in::<IPAddressClaim>(),
        stand_in::<IPAddress>(),
        stand_in::<InClusterIPPool>(),
    ]
}

fn stand_in<K: Resource<DynamicType = ()>>() -> CustomResourceDefinition {
    let (group, kind, plural) = (K::group(&()), K::kind(&()), K::plural(&()));
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{plural}.{group}")),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: group.into_owned(),
            scope: "Namespaced".to_owned(),
            names: CustomResourceDefinitionNames {
                singular: Some(kind.to_lowercase()),
                kind: kind.into_owned(),
                plural: plural.into_owned(),
                ..CustomResourceDefinitionNames::default()
            },
            versions: vec![CustomResourceDefinitionVersion {
                name: K::version(&()).into_owned(),
                served: true,
                storage: true,
                schema: Some(CustomResourceValidation {
                    open_api_v3_schema: Some(JSONSchemaProps {
                        type_: Some("object".to_owned()),
                        x_kubernetes_preserve_unknown_fields: Some(true),
                        ..JSONSchemaProps::default()
                    }),
                }),
                subresources: Some(CustomResourceSubresources {
                    status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
                    ..CustomResourceSubresources::default()
                }),
                ..CustomResourceDefinitionVersion::default()
            }],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}
