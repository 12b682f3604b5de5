//! `VMBackup` and `VMRestore`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{ConditionList, GuestRef, LocalRef, Phase},
    machine::DeletionPolicy,
    quantity::Bytes,
    record::FleetRecord,
};

/// Everything but what becomes of it at its end.
const SAME: &str = "self.vmRef == oldSelf.vmRef && self.storage == oldSelf.storage && self.mode == oldSelf.mode && self.compression == oldSelf.compression && has(self.notes) == has(oldSelf.notes) && (!has(self.notes) || self.notes == oldSelf.notes)";

/// A backup of a machine, made by PVE on one of its storages.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMBackup",
    plural = "vmbackups",
    namespaced,
    status = "VMBackupStatus",
    shortname = "vmb",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    doc = "A backup of a machine, made by PVE on one of its storages.",
    printcolumn(name = "VM", type_ = "string", json_path = ".spec.vmRef.name"),
    printcolumn(name = "Storage", type_ = "string", json_path = ".spec.storage"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(SAME).message("a VMBackup is made once and cannot change but for its deletionPolicy; make another one"))]
pub struct VMBackupSpec {
    /// The machine, or with `kind: Container` a container.
    pub vm_ref: GuestRef,
    /// The PVE storage to write to; must allow content `backup`.
    #[schemars(length(min = 1, max = 100))]
    pub storage: String,
    /// How the guest is treated meanwhile.
    #[serde(default)]
    pub mode: BackupMode,
    /// How it is compressed.
    #[serde(default)]
    pub compression: BackupCompression,
    /// A note, shown on PVE, which has room for a little more: who made the backup is written there, too.
    #[schemars(length(max = 800))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Whether the backup goes away with this object. `Retain` unless said otherwise.
    #[serde(default = "retain")]
    pub deletion_policy: DeletionPolicy,
}

fn retain() -> DeletionPolicy {
    DeletionPolicy::Retain
}

/// How a guest is treated while it is backed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackupMode {
    /// It runs on.
    #[default]
    Snapshot,
    /// It is paused.
    Suspend,
    /// It is stopped and started again.
    Stop,
}

/// A compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackupCompression {
    /// Zstandard.
    #[default]
    Zstd,
    /// Gzip.
    Gzip,
    /// LZO.
    Lzo,
    /// None.
    None,
}

/// Where a backup stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMBackupStatus {
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
    /// The volume it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// When it was finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// What the engine recorded before it acted, so that it finds its own work again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<FleetRecord>,
}

/// A machine or a container from a backup.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMRestore",
    plural = "vmrestores",
    namespaced,
    status = "VMRestoreStatus",
    shortname = "vmr",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    doc = "A machine or a container from a backup.",
    printcolumn(name = "Backup", type_ = "string", json_path = ".spec.backupRef.name"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetName"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("a VMRestore is done once and cannot change; make another one"),
    validation = Rule::new("has(self.backupRef) != has(self.volume)").message("give backupRef (a VMBackup) or volume (a PVE backup volume), exactly one")
)]
pub struct VMRestoreSpec {
    /// The VMBackup to restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_ref: Option<LocalRef>,
    /// Instead: a backup volume on PVE.
    #[schemars(length(max = 512))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The Provider, when `volume` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<LocalRef>,
    /// Name of the VirtualMachine to make; of the Container, if a container was backed up.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub target_name: String,
    /// Storage for its disks. Left out, a machine's go where they were, and a container's to the storage its node keeps containers on.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Start it.
    #[serde(default)]
    pub start: bool,
}

/// Where a restore stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMRestoreStatus {
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
    /// What was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<GuestRef>,
}
