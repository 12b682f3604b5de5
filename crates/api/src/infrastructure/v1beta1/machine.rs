//! One machine of a Kubernetes cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::Network;
use crate::vm::{Disk, Firewall, FleetRecord, Hardware, HighAvailability};

/// One machine of a Kubernetes cluster: a guest on Proxmox VE.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "ProxmoxMachine",
    namespaced,
    status = "ProxmoxMachineStatus",
    shortname = "moxm",
    category = "cluster-api",
    category = "proxmox",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Cluster", "type": "string", "jsonPath": ".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.initialization.provisioned"}"#,
    printcolumn = r#"{"name": "Instance", "type": "string", "jsonPath": ".spec.instance", "priority": 1}"#,
    printcolumn = r#"{"name": "Node", "type": "string", "jsonPath": ".status.proxmoxNode"}"#,
    printcolumn = r#"{"name": "Provider_ID", "type": "string", "jsonPath": ".spec.providerID"}"#,
    printcolumn = r#"{"name": "Machine", "type": "string", "jsonPath": ".metadata.ownerReferences[?(@.kind==\"Machine\")].name"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.template) && has(self.templateSelector))").message("template and templateSelector exclude each other; leave one out"))]
#[x_kube(validation = Rule::new("!(has(self.diskSize) && has(self.disks) && has(self.disks.bootVolume))").message("diskSize and disks.bootVolume say the same thing; leave one out"))]
#[x_kube(validation = Rule::new("!(has(self.full) && !self.full) || !has(self.format)").message("format needs a full clone; leave format out or set full: true"))]
#[x_kube(validation = Rule::new("!(has(self.full) && !self.full) || !has(self.storage)").message("storage needs a full clone; leave storage out or set full: true"))]
pub struct ProxmoxMachineSpec {
    /// What the Node calls its machine; set by the controller.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub provider_id: Option<String>,
    /// VMID of the guest; set by the controller.
    #[serde(rename = "virtualMachineID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_id: Option<i64>,
    /// Instance of the ProxmoxCluster's settings.instances to run on; chosen by the controller when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub instance: Option<String>,
    /// Node to run on; placed by the controller when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Nodes it may be placed on, instead of the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_nodes: Option<Vec<String>>,
    /// Template to clone, by name or VMID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<IntOrString>,
    /// Template to clone, by tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_selector: Option<TemplateSelector>,
    /// Node that holds the template; found by the controller when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub source_node: Option<String>,
    /// Full clone; false makes a linked clone. Full when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<bool>,
    /// Disk format of a full clone: raw, qcow2 or vmdk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(raw|qcow2|vmdk)$"))]
    pub format: Option<String>,
    /// Storage of a full clone's disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Storage of the bootstrap ISO; one that takes ISOs is found when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_storage: Option<String>,
    /// Snapshot of the template to clone from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snap_name: Option<String>,
    /// Resource pool of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Description of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tags of the guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// CPU sockets; the template's when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub sockets: Option<i32>,
    /// CPU cores per socket; the template's when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub cores: Option<i32>,
    /// Memory in MiB, or with a unit (`8Gi`); the template's when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<IntOrString>,
    /// Size of the boot disk in GiB, or with a unit (`50Gi`); the template's when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<IntOrString>,
    /// Disks in detail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<Disks>,
    /// Virtual hardware besides CPUs, memory, disks and network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Box<Hardware>>,
    /// Network; `net0` of the template with an address from the cluster's pools when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// VMIDs to take.
    #[serde(rename = "vmIDRange", skip_serializing_if = "Option::is_none")]
    pub vm_id_range: Option<VmIdRange>,
    /// Which signs of life to wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<Checks>,
    /// What the guest's meta-data carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_settings: Option<MetadataSettings>,
    /// Let Proxmox VE's HA manager keep the guest running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_availability: Option<HighAvailability>,
    /// Firewall of the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<Firewall>,
    /// How long the guest may take to shut down when its machine is deleted, before it is switched off. It is switched off at once
    /// when left out or 0: by then Cluster API has drained the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub shutdown_timeout_seconds: Option<i32>,
}

/// A template, by its tags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSelector {
    /// Tags the template has.
    #[schemars(length(min = 1))]
    pub match_tags: Vec<String>,
    /// exact (no other tags; the default), uniqueSubset (others too, one template only) or bestSubset (fewest others).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(exact|uniqueSubset|bestSubset)$"))]
    pub match_policy: Option<String>,
}

/// A range of VMIDs, both ends included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("self.end >= self.start").message("end should be greater than or equal to start"))]
pub struct VmIdRange {
    /// First VMID.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub start: i64,
    /// Last VMID.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub end: i64,
}

/// Disks in detail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disks {
    /// The disk the template brings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_volume: Option<BootVolume>,
    /// Disks besides it, empty at first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub additional: Vec<Disk>,
}

/// The disk the template brings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootVolume {
    /// Name of the disk in Proxmox VE, such as `scsi0`.
    #[schemars(length(min = 1))]
    pub disk: String,
    /// Size in GiB.
    #[schemars(range(min = 5))]
    pub size_gb: i32,
}

/// Which signs of life to wait for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checks {
    /// Do not wait for cloud-init to finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_cloud_init_status: Option<bool>,
    /// Do not wait for the guest agent; implies the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_qemu_guest_agent: Option<bool>,
}

/// What the guest's meta-data carries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataSettings {
    /// Add `provider-id`.
    #[serde(
        rename = "providerIDInjection",
        skip_serializing_if = "Option::is_none"
    )]
    pub provider_id_injection: Option<bool>,
}

/// What is known about a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxMachineStatus {
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
    /// Addresses for the Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Failure domain it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// Proxmox VE node it runs on, as seen last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxmox_node: Option<String>,
    /// pending or ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_status: Option<String>,
    /// The guest has been given its bootstrap data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_data_provided: Option<bool>,
    /// Addresses by interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["net"]))]
    pub ip_addresses: Vec<IpAddresses>,
    /// Interfaces, as older versions reported them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<NetworkStatus>,
    /// Proxmox VE task under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_ref: Option<String>,
    /// When a failed step is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Time>,
    /// What the engine wrote down before it acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<FleetRecord>,
    /// What only older contracts read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecated>,
}

/// An interface, as older versions reported it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// The cable is plugged in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,
    /// Its addresses.
    #[serde(rename = "ipAddrs", default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addrs: Vec<String>,
    /// Its MAC address.
    pub mac_addr: String,
    /// Its name in Proxmox VE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_name: Option<String>,
}

/// What Cluster API waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// The infrastructure is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

/// An address for the Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct MachineAddress {
    /// Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS.
    #[serde(rename = "type")]
    #[schemars(regex(pattern = "^(Hostname|ExternalIP|InternalIP|ExternalDNS|InternalDNS)$"))]
    pub kind: String,
    /// The address.
    #[schemars(length(min = 1, max = 256))]
    pub address: String,
}

/// Addresses of one interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct IpAddresses {
    /// The interface, or `default`.
    pub net: String,
    /// IPv4 addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipv4: Vec<String>,
    /// IPv6 addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipv6: Vec<String>,
}

/// What only older contracts read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
pub struct Deprecated {
    /// The v1beta1 contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<DeprecatedV1Beta1>,
}

/// What only the v1beta1 contract reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeprecatedV1Beta1 {
    /// Conditions in its form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::any_objects")]
    pub conditions: Option<Vec<serde_json::Value>>,
    /// Why it failed for good, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
}

/// A machine to be made by Cluster API.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "ProxmoxMachineTemplate",
    namespaced,
    status = "ProxmoxMachineTemplateStatus",
    shortname = "pmt",
    category = "cluster-api",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxMachineTemplateSpec {
    /// The machine to be made.
    pub template: MachineTemplateResource,
}

/// The machine to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTemplateResource {
    /// Labels and annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The spec.
    pub spec: ProxmoxMachineSpec,
}

/// Labels and annotations of what a template makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// What the autoscaler reads to grow from zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxMachineTemplateStatus {
    /// CPU, memory and disk of a machine made from it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// What its node runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_info: Option<NodeInfo>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::vm::ConditionList::schema")]
    pub conditions: Vec<Condition>,
}

/// What a node runs on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// CPU architecture: amd64, arm64, s390x or ppc64le.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Operating system: linux.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<String>,
}
