//! `VMClone`: a new machine from an existing one.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{
    common::{ConditionList, LocalRef, Phase},
    network::Network,
    power::PowerState,
    user_data::UserData,
};

/// A new machine from an existing one. It makes a VirtualMachine, which lives on when the VMClone is
/// deleted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMClone",
    plural = "vmclones",
    namespaced,
    status = "VMCloneStatus",
    shortname = "vmcl",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must not be longer than 63 characters"),
    doc = "A new machine from an existing one. It makes a VirtualMachine, which lives on when the VMClone is deleted.",
    printcolumn(
        name = "Source",
        type_ = "string",
        json_path = ".spec.sourceVMRef.name"
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".status.targetRef.name"
    ),
    printcolumn(name = "Linked", type_ = "boolean", json_path = ".status.linked"),
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
#[x_kube(validation = Rule::new("self == oldSelf").message("a VMClone is done once and cannot change; make another one"))]
pub struct VMCloneSpec {
    /// The machine to copy: a VirtualMachine in this namespace.
    #[serde(rename = "sourceVMRef")]
    pub source_vm_ref: LocalRef,
    /// A snapshot of it to copy, instead of its present state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_ref: Option<LocalRef>,
    /// Share the source's disk and store only differences (default), or copy everything. PVE can link
    /// only to templates; from other machines the copy is full, and the condition `Linked` says why.
    #[serde(default = "yes")]
    pub linked_clone: bool,
    /// The machine to make; named like the VMClone when left out, otherwise like the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<CloneTarget>,
}

fn yes() -> bool {
    true
}

/// The machine to make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneTarget {
    /// Its name; the VMClone's when left out.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its class; the source's when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_ref: Option<LocalRef>,
    /// Its networks; the source's, with new MAC addresses and without static addresses, when left out.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// What it is told when it first boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<UserData>,
    /// Where it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_ref: Option<LocalRef>,
    /// Whether it runs.
    #[serde(default)]
    pub power_state: PowerState,
}

/// Where a clone stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMCloneStatus {
    /// `Ready`, `Linked`.
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word for the eye.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The machine made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<LocalRef>,
    /// Whether the copy is linked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linked: Option<bool>,
}
