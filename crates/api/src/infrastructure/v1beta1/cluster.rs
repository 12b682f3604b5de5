//! A Kubernetes cluster's place on Proxmox VE.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Deprecated, Initialization, Settings, TemplateMetadata};
use crate::vm::{LocalRef, NamespacedRef};

/// Where a Cluster API cluster lives: one or several Proxmox VE clusters, their credentials, and the network of its machines.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "ProxmoxCluster",
    namespaced,
    status = "ProxmoxClusterStatus",
    category = "cluster-api",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Cluster", "type": "string", "jsonPath": ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.initialization.provisioned"}"#,
    printcolumn = r#"{"name": "Endpoint", "type": "string", "jsonPath": ".spec.controlPlaneEndpoint.host"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterSpec {
    /// Proxmox VE to use when no Secret names one: a host name or URL.
    #[schemars(length(min = 1, max = 512))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Where the cluster's API server answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
    /// Pool that the control-plane address is claimed from when no host is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint_pool: Option<ControlPlaneEndpointPool>,
    /// Another provider sets controlPlaneEndpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_managed_control_plane: Option<bool>,
    /// Nodes that machines may be placed on; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_nodes: Vec<String>,
    /// Hints for placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_hints: Option<SchedulerHints>,
    /// Groups of nodes that are failure domains of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub node_groups: Vec<NodeGroup>,
    /// IPv4 addresses of the machines.
    #[serde(rename = "ipv4Config", skip_serializing_if = "Option::is_none")]
    pub ipv4_config: Option<IpConfig>,
    /// IPv6 addresses of the machines.
    #[serde(rename = "ipv6Config", skip_serializing_if = "Option::is_none")]
    pub ipv6_config: Option<IpConfig>,
    /// Name servers of the machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
    /// Networks of zones other than the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["zone"]))]
    pub zone_config: Vec<ZoneConfig>,
    /// Secret with the credentials of the default Proxmox VE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<NamespacedRef>,
    /// Several Proxmox VE clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// Machine shapes that a ClusterClass written for `v1alpha1` patches; its templates read them, the controllers do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::anything")]
    pub clone_spec: Option<serde_json::Value>,
}

/// A host and a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneEndpoint {
    /// Host name or address.
    #[schemars(length(max = 512))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Port.
    #[schemars(range(min = 0, max = 65535))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// A pool that the control-plane address is claimed from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneEndpointPool {
    /// API group of the pool; `ipam.cluster.x-k8s.io` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the pool.
    pub kind: String,
    /// Name of the pool.
    pub name: String,
    /// Port of the API server; 6443 when left out.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// Hints for placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerHints {
    /// Percent of a node's memory that may be promised; 100 when left out, 0 lifts the limit.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_adjustment: Option<i64>,
    /// Percent of a node's CPUs that may be promised; no limit when left out or 0.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_adjustment: Option<i64>,
}

/// Nodes that fail together: a rack, a power feed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroup {
    /// Name of the group; the failure domain's name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Instance the nodes belong to; the default Proxmox VE when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The nodes.
    #[schemars(length(min = 1))]
    pub nodes: Vec<String>,
}

/// Addresses and their gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpConfig {
    /// Addresses, ranges (a-b) or networks in CIDR notation.
    #[schemars(length(min = 1))]
    pub addresses: Vec<String>,
    /// Length of the network prefix.
    #[schemars(range(min = 0, max = 128))]
    pub prefix: i32,
    /// Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Metric of the default route; 100 when left out.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<i32>,
}

/// The network of one zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneConfig {
    /// Name of the zone.
    #[schemars(length(min = 1, max = 63))]
    pub zone: String,
    /// IPv4 addresses of its machines.
    #[serde(rename = "ipv4Config", skip_serializing_if = "Option::is_none")]
    pub ipv4_config: Option<IpConfig>,
    /// IPv6 addresses of its machines.
    #[serde(rename = "ipv6Config", skip_serializing_if = "Option::is_none")]
    pub ipv6_config: Option<IpConfig>,
    /// Name servers of its machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
}

/// What is known about a ProxmoxCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterStatus {
    /// What Cluster API waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// The same for the older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::vm::ConditionList::schema")]
    pub conditions: Vec<Condition>,
    /// Instances and node groups that machines may be spread over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// How the machines are spread over instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub instances: Vec<InstanceStatus>,
    /// The instance that mode SingleInstance picked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selected_instance: Option<String>,
    /// Address pools of the default zone.
    #[serde(
        rename = "inClusterIPPoolRef",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub in_cluster_ip_pool_ref: Vec<LocalRef>,
    /// Address pools by zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["zone"]))]
    pub in_cluster_zone_ref: Vec<ZonePools>,
    /// Where the machines run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_locations: Option<NodeLocations>,
    /// What only older contracts read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecated>,
}

/// A place whose machines may fail together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// Name of the domain.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Control-plane machines may be placed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// What else is known about it.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub attributes: std::collections::BTreeMap<String, String>,
}

/// One instance and its share of the machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Name of the instance.
    pub name: String,
    /// It answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Machines on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<i32>,
    /// Control-plane machines on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_machines: Option<i32>,
}

/// Address pools of one zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZonePools {
    /// Name of the zone.
    pub zone: String,
    /// Its IPv4 pool.
    #[serde(
        rename = "inClusterIPPoolRefV4",
        skip_serializing_if = "Option::is_none"
    )]
    pub v4: Option<LocalRef>,
    /// Its IPv6 pool.
    #[serde(
        rename = "inClusterIPPoolRefV6",
        skip_serializing_if = "Option::is_none"
    )]
    pub v6: Option<LocalRef>,
}

/// Where the machines run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLocations {
    /// Control-plane machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control_plane: Vec<MachineLocation>,
    /// Workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<MachineLocation>,
}

/// Where one machine runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineLocation {
    /// The ProxmoxMachine.
    pub machine: LocalRef,
    /// The Proxmox VE node.
    pub node: String,
    /// Its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// A ProxmoxCluster to be made by a ClusterClass.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "ProxmoxClusterTemplate",
    namespaced,
    shortname = "pct",
    category = "cluster-api",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterTemplateSpec {
    /// The ProxmoxCluster to be made.
    pub template: ClusterTemplateResource,
}

/// The ProxmoxCluster to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTemplateResource {
    /// Labels and annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec.
    pub spec: ProxmoxClusterSpec,
}
