//! `VMSnapshot` and `VMSnapshotSchedule`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{
    common::{ConditionList, GuestRef, LocalRef, Phase},
    machine::DeletionPolicy,
    record::FleetRecord,
};

/// The state of a machine at one moment, kept on PVE.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMSnapshot",
    plural = "vmsnapshots",
    namespaced,
    status = "VMSnapshotStatus",
    shortname = "vmsnap",
    shortname = "vms",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    doc = "The state of a machine at one moment, kept on PVE.",
    printcolumn(name = "VM", type_ = "string", json_path = ".spec.vmRef.name"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Memory", type_ = "boolean", json_path = ".spec.includeMemory"),
    printcolumn(
        name = "Parent",
        type_ = "string",
        json_path = ".status.parent",
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
    validation = Rule::new("self.vmRef == oldSelf.vmRef").message("vmRef cannot change: a snapshot belongs to one guest; make another VMSnapshot")
)]
pub struct VMSnapshotSpec {
    /// The machine, or with `kind: Container` a container.
    pub vm_ref: GuestRef,
    /// A note, shown on PVE.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Keep the running memory too, so that going back resumes. Without it the snapshot is
    /// crash-consistent, or quiesced by the guest agent. A snapshot that was taken stays as it is: the condition
    /// `AsDeclared` says when this was changed afterwards.
    #[serde(default)]
    pub include_memory: bool,
    /// Whether the snapshot on PVE goes away with this object.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Where a snapshot stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMSnapshotStatus {
    /// `Ready`, and `AsDeclared` if the spec was changed to what a snapshot that was taken cannot become.
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for the eye.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Its name on PVE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_name: Option<String>,
    /// When PVE took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Time>,
    /// The snapshot it builds on, by its name on PVE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The VMSnapshots that build on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// Whether memory is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
    /// What the engine recorded before it acted, so that it finds its own work again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<FleetRecord>,
}

/// Snapshots at set times, and how long they are kept.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMSnapshotSchedule",
    plural = "vmsnapshotschedules",
    namespaced,
    status = "VMSnapshotScheduleStatus",
    shortname = "vmss",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    doc = "Snapshots at set times, and how long they are kept.",
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Suspended", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Last", type_ = "date", json_path = ".status.lastScheduleTime"),
    printcolumn(name = "Kept", type_ = "integer", json_path = ".status.kept"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.vmRef) != has(self.selector)").message("give vmRef (one machine) or selector (machines by label), exactly one"))]
pub struct VMSnapshotScheduleSpec {
    /// The machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_ref: Option<LocalRef>,
    /// Machines by label: all of these must match.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// When, in cron's five fields and UTC (`0 3 * * *`), or `@hourly`, `@daily`, `@weekly`, `@monthly`.
    #[schemars(length(min = 1, max = 128))]
    pub schedule: String,
    /// A note for every snapshot.
    #[schemars(length(max = 4096))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Keep the running memory too.
    #[serde(default)]
    pub include_memory: bool,
    /// Take none for now.
    #[serde(default)]
    pub suspend: bool,
    /// How long they are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// How long snapshots are kept. Those with the label `infra.virtrigaud.io/pinned: "true"` stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// The newest so many, per machine.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    /// Hours. The newest one of a machine that was taken well stays however old it is.
    #[schemars(range(min = 1, max = 876_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_hours: Option<u32>,
}

/// Where a schedule stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMSnapshotScheduleStatus {
    /// `Ready`.
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When it last took any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// When it will next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,
    /// Snapshots it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<i32>,
}
