//! `VMMigration`: a machine to another node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{
    common::{ConditionList, GuestRef, Phase},
    record::FleetRecord,
};

/// The reason of a machine's `Ready` condition when it cannot be moved to the node its spec names.
pub const MIGRATION_FAILED: &str = "MigrationFailed";

/// Moves a machine to another node of its cluster, running or not.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMMigration",
    plural = "vmmigrations",
    namespaced,
    status = "VMMigrationStatus",
    shortname = "vmmig",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    doc = "Moves a machine to another node of its cluster, running or not.",
    printcolumn(name = "VM", type_ = "string", json_path = ".spec.vmRef.name"),
    printcolumn(name = "From", type_ = "string", json_path = ".status.sourceNode"),
    printcolumn(name = "To", type_ = "string", json_path = ".status.targetNode"),
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
    validation = Rule::new("self == oldSelf").message("a VMMigration is done once and cannot change; make another one"),
    validation = Rule::new("!has(self.targetStorage) || (has(self.withLocalDisks) && self.withLocalDisks)").message("targetStorage is for disks that are copied along; set withLocalDisks, or remove it")
)]
pub struct VMMigrationSpec {
    /// The machine, or with `kind: Container` a container, which is restarted on the way.
    pub vm_ref: GuestRef,
    /// The node to move to; the best one by the guest's placement policy when left out.
    #[schemars(length(max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<String>,
    /// Copy disks on local storages along. Without it such a machine is refused.
    #[serde(default)]
    pub with_local_disks: bool,
    /// Storage for copied disks; the same name on the target when left out. A disk that is declared on another storage, by the machine
    /// or its class, would be moved back: such a migration is refused.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_storage: Option<String>,
}

/// Where a migration stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMMigrationStatus {
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
    /// Where the machine was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    /// Where it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<String>,
    /// What the engine recorded before it acted, so that it finds its own work again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<FleetRecord>,
}
