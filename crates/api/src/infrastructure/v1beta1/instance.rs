//! Several Proxmox VE clusters under one Kubernetes cluster.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IpConfig, TemplateSelector, VmIdRange};
use crate::vm::NamespacedRef;

/// How the machines are spread over Proxmox VE clusters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.mode) || self.mode == 'Default' || (has(self.instances) && self.instances.size() > 0)").message("instances must list at least one Proxmox VE cluster in this mode"))]
pub struct Settings {
    /// Which instances are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The Proxmox VE clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub instances: Vec<Instance>,
}

/// Which instances are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// The first instance; the ProxmoxCluster's own credentials when none is listed.
    #[default]
    Default,
    /// One instance, picked once and remembered.
    SingleInstance,
    /// All instances, evenly by weight and free capacity.
    MultiInstance,
}

/// One Proxmox VE cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Name of the instance; also a failure domain.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its nodes that may be used; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Where its template is, instead of what the machine says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<InstanceTemplate>,
    /// Secret with its credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<NamespacedRef>,
    /// Share of the machines it gets, in proportion to the others.
    #[schemars(range(min = 0, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Its network, where it differs from the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<InstanceNetwork>,
    /// Storage of the machines' disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Storage of the bootstrap ISO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_storage: Option<String>,
    /// Resource pool of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// VMIDs to take.
    #[serde(rename = "vmIDRange", skip_serializing_if = "Option::is_none")]
    pub vm_id_range: Option<VmIdRange>,
}

/// A template, by tags or by place and VMID.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.templateSelector) || (has(self.templateID) && has(self.sourceNode))").message("template needs templateSelector, or sourceNode together with templateID"))]
pub struct InstanceTemplate {
    /// Node that holds the template.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    /// VMID of the template.
    #[serde(rename = "templateID", skip_serializing_if = "Option::is_none")]
    pub template_id: Option<i32>,
    /// Tags of the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_selector: Option<TemplateSelector>,
}

/// What is different about an instance's network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceNetwork {
    /// Bridge of `net0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// VLAN of `net0`.
    #[schemars(range(min = 1, max = 4094))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i32>,
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
