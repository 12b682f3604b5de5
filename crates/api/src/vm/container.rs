//! `Container`: an LXC guest.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{
    common::{ConditionList, KeySelector, LocalRef, NamespacedRef, Phase},
    machine::{DeletionPolicy, RestoreFrom, RevertTo, RevertWish, Startup},
    power::PowerState,
    quantity::Bytes,
    record::{FleetRecord, StepView},
};

/// An LXC container: a guest that shares its node's kernel.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "Container",
    plural = "containers",
    namespaced,
    status = "ContainerStatus",
    shortname = "lxc",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    doc = "An LXC container: a guest that shares its node's kernel.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "VMID", type_ = "integer", json_path = ".status.vmid"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "IPs", type_ = "string", json_path = ".status.ips[*]"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.providerRef) || !has(oldSelf.providerRef) || self.providerRef == oldSelf.providerRef").message("providerRef cannot change; make a new Container there"),
    validation = Rule::new("has(self.template) != has(self.restoreFrom)").message("give template or restoreFrom, exactly one"),
    validation = Rule::new("has(self.template) == has(oldSelf.template) && (!has(self.template) || self.template == oldSelf.template)").message("template is used when the container is made and cannot change; make a new Container"),
    validation = Rule::new("has(self.restoreFrom) == has(oldSelf.restoreFrom) && (!has(self.restoreFrom) || self.restoreFrom == oldSelf.restoreFrom)").message("restoreFrom is used when the container is made and cannot change; make a new Container"),
    validation = Rule::new("has(self.unprivileged) == has(oldSelf.unprivileged) && (!has(self.unprivileged) || self.unprivileged == oldSelf.unprivileged)").message("unprivileged is used when the container is made and cannot change; make a new Container"),
    validation = Rule::new("has(self.sshKeys) == has(oldSelf.sshKeys) && (!has(self.sshKeys) || self.sshKeys == oldSelf.sshKeys)").message("sshKeys are used when the container is made and cannot change; change /root/.ssh/authorized_keys in it, or make a new Container"),
    validation = Rule::new("has(self.passwordSecretRef) == has(oldSelf.passwordSecretRef) && (!has(self.passwordSecretRef) || self.passwordSecretRef == oldSelf.passwordSecretRef)").message("passwordSecretRef is used when the container is made and cannot change; change the password in it, or make a new Container"),
    validation = Rule::new("!has(self.restoreFrom) || !(has(self.passwordSecretRef) || has(self.sshKeys) || has(self.unprivileged))").message("passwordSecretRef, sshKeys and unprivileged are for new containers: one that is restored has what it had; leave them out")
)]
pub struct ContainerSpec {
    /// The Provider whose cluster it runs on. May be left out while the namespace has exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<NamespacedRef>,
    /// The template: a volume id (`local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst`).
    #[schemars(length(min = 1, max = 512))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Instead: the backup to make it from. What is declared beside it replaces what the backup brings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,
    /// CPUs.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory; 512Mi when left out, unless it is restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Bytes>,
    /// The root file system; 8Gi when left out, unless it is restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_fs: Option<RootFs>,
    /// More file systems.
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_points: Vec<MountPoint>,
    /// Network interfaces.
    #[schemars(length(max = 10))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<ContainerNetwork>,
    /// Whether it runs: `On`, `Off`, `OffGraceful` or `OffHard`.
    #[serde(default)]
    #[schemars(schema_with = "power_words")]
    pub power_state: PowerState,
    /// Without root on the host; on unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unprivileged: Option<bool>,
    /// Features: `nesting=1`, `keyctl=1`, …
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Public keys root may log in with.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// root's password, in a Secret, by default under the key `password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_secret_ref: Option<KeySelector>,
    /// The policy that says where it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_ref: Option<LocalRef>,
    /// The one node to run on.
    #[schemars(length(max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Tags on PVE.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Notes on PVE.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Resource pool on PVE.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Start it with its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_boot: Option<bool>,
    /// When it starts and stops with its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// PVE refuses to remove it while set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protection: Option<bool>,
    /// What happens to the guest when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// The snapshot to go back to, once for each new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<RevertTo>,
}

// CEL cannot see a field without a type, so what containers cannot do is left out of the enum.
fn power_words(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-preserve-unknown-fields": true,
        "enum": ["On", "Off", "OffGraceful", "OffHard", true, false],
    })
}

/// The root file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootFs {
    /// Size. May grow; never shrinks.
    pub size: Bytes,
    /// PVE storage.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// A file system of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MountPoint {
    /// Name, unique in the container.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Where it is mounted.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// Size. May grow; never shrinks.
    pub size: Bytes,
    /// PVE storage.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Include in backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// The container cannot write to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// A network interface of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerNetwork {
    /// Name of the network; the Provider's network map says which bridge that is.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Bridge or SDN VNet, instead of what the name stands for.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// VLAN tag.
    #[schemars(range(min = 1, max = 4094))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// MAC address; one is chosen and kept when left out.
    #[schemars(regex(pattern = r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// IPv4 address with prefix length, or `dhcp` (default).
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// IPv4 gateway.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// IPv6 address with prefix length, `dhcp` or `auto`.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address6: Option<String>,
    /// IPv6 gateway.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway6: Option<String>,
    /// Apply PVE's firewall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<bool>,
}

/// What is known about a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// `Ready`.
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for the eye.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Its VMID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmid: Option<u32>,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// The wish to go back to a snapshot that is being acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revert: Option<RevertWish>,
    /// The VMSnapshot the container was last taken back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverted_to: Option<String>,
    /// What is being done right now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_step: Option<StepView>,
    /// What the engine recorded before it acted, so that it finds its own work again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<FleetRecord>,
}
