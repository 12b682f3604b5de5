//! `VirtualMachine`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{ConditionList, LocalRef, NamespacedRef, Phase},
    disk::Disk,
    hardware::Hardware,
    network::{Network, NetworkStatus},
    power::PowerState,
    quantity::Bytes,
    record::{FleetRecord, StepView},
    user_data::UserData,
};

/// A virtual machine.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VirtualMachine",
    plural = "virtualmachines",
    namespaced,
    status = "VirtualMachineStatus",
    shortname = "vm",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    validation = Rule::new("!has(self.spec.providerRef) || !has(oldSelf.spec.providerRef) || self.spec.providerRef == oldSelf.spec.providerRef").message("providerRef cannot change: a guest does not move between PVE clusters; make a new VirtualMachine there"),
    validation = Rule::new("!has(self.spec.imageRef) || !has(oldSelf.spec.imageRef) || self.spec.imageRef == oldSelf.spec.imageRef").message("imageRef is used when the machine is made and cannot change; make a new VirtualMachine, or use a VMSet to roll a new image out"),
    validation = Rule::new("!has(self.spec.imageRef) || has(oldSelf.spec.imageRef) || !has(oldSelf.status) || !has(oldSelf.status.vmid)").message("imageRef is used when the machine is made and cannot be added now that it has a guest; make a new VirtualMachine with this imageRef"),
    validation = Rule::new("!has(self.spec.linkedClone) || !has(oldSelf.status) || !has(oldSelf.status.vmid) || (has(oldSelf.spec.linkedClone) && self.spec.linkedClone == oldSelf.spec.linkedClone)").message("linkedClone is used when the machine is made and cannot change now that it has a guest; make a new VirtualMachine"),
    validation = Rule::new("!has(oldSelf.spec.adopt) || has(self.spec.adopt)").message("adopt cannot be taken out: the guest was there before; delete this VirtualMachine to let it go"),
    validation = Rule::new("has(oldSelf.spec.adopt) || !has(self.spec.adopt)").message("adopt cannot be added: this VirtualMachine has a guest of its own, or is about to make one; make a new VirtualMachine for the other guest"),
    validation = Rule::new("!has(self.spec.adopt) || !has(oldSelf.spec.adopt) || self.spec.adopt.vmid == oldSelf.spec.adopt.vmid").message("adopt.vmid cannot change; make a new VirtualMachine for the other guest"),
    validation = Rule::new("has(self.spec.cloneFrom) == has(oldSelf.spec.cloneFrom) && (!has(self.spec.cloneFrom) || self.spec.cloneFrom == oldSelf.spec.cloneFrom)").message("cloneFrom is used when the machine is made and cannot change; make a new VirtualMachine"),
    validation = Rule::new("has(self.spec.restoreFrom) == has(oldSelf.spec.restoreFrom) && (!has(self.spec.restoreFrom) || self.spec.restoreFrom == oldSelf.spec.restoreFrom)").message("restoreFrom is used when the machine is made and cannot change; make a new VirtualMachine"),
    validation = Rule::new("!has(self.spec.disks) || !has(oldSelf.spec.disks) || self.spec.disks.size() == 0 || oldSelf.spec.disks.size() == 0 || (self.spec.disks.exists(d, d.name == 'root') ? 'root' : self.spec.disks[0].name) == (oldSelf.spec.disks.exists(d, d.name == 'root') ? 'root' : oldSelf.spec.disks[0].name)").message("the disk that the machine boots from (the one named root, else the first) cannot become another one; keep its name and its place in disks"),
    doc = "A virtual machine on a Proxmox VE cluster.",
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
        name = "Provider",
        type_ = "string",
        json_path = ".spec.providerRef.name",
        priority = 1
    ),
    printcolumn(
        name = "Class",
        type_ = "string",
        json_path = ".spec.classRef.name",
        priority = 1
    ),
    printcolumn(
        name = "Image",
        type_ = "string",
        json_path = ".spec.imageRef.name",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.managementPolicy) || self.managementPolicy != 'Observe' || !has(self.deletionPolicy) || self.deletionPolicy == 'Orphan'").message("managementPolicy Observe changes nothing, and removes nothing: leave deletionPolicy out, or set managementPolicy to Manage"),
    validation = Rule::new("!has(self.managementPolicy) || self.managementPolicy != 'Observe' || has(self.adopt)").message("managementPolicy Observe looks at a guest that exists: give its adopt.vmid, or set managementPolicy to Manage"),
    validation = Rule::new("!has(self.managementPolicy) || self.managementPolicy != 'Observe' || !(has(self.node) || has(self.snapshot) || has(self.restarts))").message("managementPolicy Observe changes nothing, so node, snapshot and restarts can have no effect: leave them out, or set managementPolicy to Manage"),
    validation = Rule::new("[has(self.adopt), has(self.imageRef), has(self.cloneFrom), has(self.restoreFrom)].filter(x, x).size() <= 1").message("a machine has one origin: give one of imageRef, cloneFrom, restoreFrom and adopt"),
    validation = Rule::new("has(self.classRef) || has(self.adopt) || has(self.cloneFrom) || has(self.restoreFrom) || has(self.cpus) == has(self.memory)").message("a new machine needs both cpus and memory: give the other one too, or a classRef that has it")
)]
pub struct VirtualMachineSpec {
    /// The Provider whose cluster it runs on. May be left out while the namespace has exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<NamespacedRef>,
    /// The class that says how big it is. Changing it (or the class itself) reconfigures the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_ref: Option<LocalRef>,
    /// CPUs, instead of the class's.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory, instead of the class's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The image it is made from. Without one the machine starts with empty disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_ref: Option<LocalRef>,
    /// Copy another VirtualMachine instead of an image; what a VMClone writes here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clone_from: Option<CloneFrom>,
    /// Make it from a backup instead of an image; what a VMRestore writes here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,
    /// Whether it runs: `On`, `Off` or `OffGraceful` (asked to shut down, cut off after the timeout),
    /// `OffHard` (cut off), `Paused` or `Suspended`. Unquoted `On` and `Off` work. Left out, a machine that is made runs, and
    /// one that was adopted is left as it is.
    #[schemars(with = "PowerState")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state: Option<PowerState>,
    /// How long a clean shutdown may take before the guest is cut off.
    #[schemars(range(min = 1, max = 86400))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_timeout_seconds: Option<u32>,
    /// Raise it to restart the running guest once.
    #[schemars(range(min = 0, max = 4_294_967_295u32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// Network interfaces, in the order the guest sees them. Without any, the image's are kept.
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// Disks. The first one listed, or the one named `root`, is the disk the image brings, grown to size.
    #[schemars(length(max = 30))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    /// What the guest is told when it first boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<UserData>,
    /// Virtual hardware, field by field instead of the class's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Box<Hardware>>,
    /// The policy that says where it is placed and moved to. A machine that exists is not moved by another policy: a VMMigration does
    /// that, and heeds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_ref: Option<LocalRef>,
    /// The one node to run on. A running machine is migrated there.
    #[schemars(length(max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Clone linked or full, instead of the image's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linked_clone: Option<bool>,
    /// Tags on PVE.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Notes on PVE, above the line that marks the owner.
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
    /// PVE refuses to remove it or its disks while set; deleting this object then waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protection: Option<bool>,
    /// PVE's high availability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ha: Option<HighAvailability>,
    /// PVE's firewall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<Firewall>,
    /// What may be done to apply a change.
    #[serde(default)]
    pub update_policy: UpdatePolicy,
    /// What happens to the guest when this object is deleted. A guest that was made for it is deleted too; one that was
    /// adopted or is only observed is left as it is, unless this says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// How much of the guest is ours to change.
    #[serde(default)]
    pub management_policy: ManagementPolicy,
    /// What happens when someone removes the guest on PVE.
    #[serde(default)]
    pub loss_policy: LossPolicy,
    /// Take over a guest that exists, instead of making one. It is observed first and never restarted for
    /// a default; only fields written in this spec are changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopt: Option<Adoption>,
    /// The snapshot the machine was last set back to, as declared state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<RevertTo>,
    /// What must be true for `Ready`.
    #[serde(default)]
    pub readiness: Readiness,
}

/// When a machine starts and stops with its node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Startup {
    /// Place in the order; lower starts first and stops last.
    #[schemars(range(min = 0, max = 100_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<u32>,
    /// Seconds to wait after starting it.
    #[schemars(range(min = 0, max = 100_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_delay_seconds: Option<u32>,
    /// Seconds it may take to stop.
    #[schemars(range(min = 0, max = 100_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_timeout_seconds: Option<u32>,
}

/// PVE's high availability for one guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HighAvailability {
    /// Let PVE restart it on another node when its own dies.
    #[serde(default)]
    pub enabled: bool,
    /// Nodes it prefers (PVE 9).
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// HA group (PVE 8).
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Starts tried on one node.
    #[schemars(range(min = 0, max = 10))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_restart: Option<u32>,
    /// Nodes tried.
    #[schemars(range(min = 0, max = 10))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_relocate: Option<u32>,
}

/// PVE's firewall for one guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Firewall {
    /// On or off. While it is on, so is `firewall` of every network that does not say false; it filters no other.
    #[serde(default)]
    pub enabled: bool,
    /// What happens to packets no rule speaks of, inward: ACCEPT, DROP or REJECT.
    #[schemars(length(max = 8), extend("enum" = ["ACCEPT", "DROP", "REJECT"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_in: Option<String>,
    /// The same outward.
    #[schemars(length(max = 8), extend("enum" = ["ACCEPT", "DROP", "REJECT"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_out: Option<String>,
    /// Security groups of the cluster to apply.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Rules, in order.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FirewallRule>,
}

/// One firewall rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirewallRule {
    /// `in` or `out`.
    #[schemars(length(max = 8), extend("enum" = ["in", "out"]))]
    pub direction: String,
    /// ACCEPT, DROP or REJECT.
    #[schemars(length(max = 8), extend("enum" = ["ACCEPT", "DROP", "REJECT"]))]
    pub action: String,
    /// Protocol: `tcp`, `udp`, `icmp`, …
    #[schemars(length(max = 16))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Destination ports: `80,443` or `8000:8100`.
    #[schemars(length(max = 128))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
    /// Source address or network.
    #[schemars(length(max = 256))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Destination address or network.
    #[schemars(length(max = 256))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// A note.
    #[schemars(length(max = 128))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// What may be done to apply a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdatePolicy {
    /// Change what can be changed while it runs; the rest waits for the next start, and the condition
    /// `RestartRequired` names it.
    #[default]
    Live,
    /// The same, and restart the guest when something needs it.
    RestartIfNeeded,
    /// Write everything down for the next start; touch nothing now.
    Staged,
}

impl VirtualMachineSpec {
    /// What happens to the guest when this object is deleted.
    #[must_use]
    pub fn deletion(&self, adopted: bool) -> DeletionPolicy {
        match self.management_policy {
            ManagementPolicy::Observe => DeletionPolicy::Orphan,
            ManagementPolicy::Manage => self.deletion_policy.unwrap_or(if adopted {
                DeletionPolicy::Orphan
            } else {
                DeletionPolicy::Delete
            }),
        }
    }
}

/// What happens to the guest when its object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Stop and remove it, with its disks.
    #[default]
    Delete,
    /// Stop it, and keep it on PVE with its mark; an object of the same name does not get it back.
    Retain,
    /// Leave it as it is, without an owner.
    Orphan,
}

/// How much of the guest is ours to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ManagementPolicy {
    /// Keep it as the spec says.
    #[default]
    Manage,
    /// Only look, and report.
    Observe,
}

/// What happens when the guest was removed behind our back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LossPolicy {
    /// Say so, and wait for a person.
    #[default]
    Report,
    /// Make it anew from its image.
    Recreate,
}

/// A guest to take over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// Its VMID.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub vmid: u32,
}

/// A machine to copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneFrom {
    /// The VirtualMachine, in the same namespace.
    pub vm_ref: LocalRef,
    /// A VMSnapshot of it to copy, instead of its present state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_ref: Option<LocalRef>,
}

/// A backup to make a guest from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.backupRef) != has(self.volume)").message("give backupRef (a VMBackup) or volume (a PVE backup volume), exactly one"))]
pub struct RestoreFrom {
    /// The VMBackup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_ref: Option<LocalRef>,
    /// A backup volume on PVE.
    #[schemars(length(max = 512))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Storage for the disks. Left out, a machine's go where they were, and a container's to the storage its node keeps
    /// containers on.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// A snapshot to go back to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevertTo {
    /// The VMSnapshot. Setting another one goes back to that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revert_to_ref: Option<LocalRef>,
}

/// What must be true for `Ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Readiness {
    /// The guest runs, and has reported an address if its agent is on.
    #[default]
    Address,
    /// PVE says it runs.
    Running,
}

/// The condition of a machine whose disk came larger from its source than it is declared.
pub const LARGER_DISKS: &str = "LargerDisks";

/// What is known about a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineStatus {
    /// `Ready`, `Provisioned`, `RestartRequired`, `Drifted`, …
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for the eye.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// `On`, `Off`, `Paused` or `Suspended`, as PVE says.
    #[schemars(schema_with = "power_word")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state: Option<String>,
    /// Its VMID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmid: Option<u32>,
    /// The node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its SMBIOS UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The name of the PVE cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// All addresses the guest reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// Interface by interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkStatus>,
    /// CPUs it has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory it has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Settings that wait for the next start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_changes: Vec<String>,
    /// Settings someone changed behind our back that are not ours to put right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<String>,
    /// Why this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// What is being done right now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_step: Option<StepView>,
    /// Where its console is: at Oxmox, without the token that opens it (`oxmox vm console` makes one), or on PVE's own pages.
    #[serde(rename = "consoleURL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console_url: Option<String>,
    /// The wish to go back to a snapshot, as it was last noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revert: Option<RevertWish>,
    /// The snapshot it was last set back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverted_to: Option<String>,
    /// What the engine recorded before it acted, so that it finds its own work again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<FleetRecord>,
}

/// A wish to go back to a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevertWish {
    /// The VMSnapshot.
    pub to: String,
    /// The generation of the machine's spec that first asked for it.
    pub generation: i64,
    /// The VMSnapshot's UID, as soon as there was one: another one of that name is not meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

// Written by us only, but read back by kubectl wait and scripts: plain words, no booleans.
fn power_word(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "nullable": true })
}
