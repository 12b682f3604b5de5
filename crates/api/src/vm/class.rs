//! `VMClass`: how big a machine is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{common::ConditionList, hardware::Hardware, quantity::Bytes};

/// A size and kind of machine. Changing a class reconfigures every machine that uses it, as each
/// machine's `updatePolicy` allows.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMClass",
    plural = "vmclasses",
    namespaced,
    status = "VMClassStatus",
    shortname = "vmc",
    category = "oxmox",
    derive = "PartialEq",
    doc = "A size and kind of machine. Changing a class reconfigures every machine that uses it, as each machine's updatePolicy allows.",
    printcolumn(name = "CPUs", type_ = "integer", json_path = ".spec.cpus"),
    printcolumn(name = "Memory", type_ = "string", json_path = ".spec.memory"),
    printcolumn(name = "Storage", type_ = "string", json_path = ".spec.storage.class"),
    printcolumn(name = "VMs", type_ = "integer", json_path = ".status.usedBy"),
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
pub struct VMClassSpec {
    /// CPUs.
    #[schemars(range(min = 1, max = 1024))]
    pub cpus: u32,
    /// Memory.
    pub memory: Bytes,
    /// Where disks go unless a disk says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageDefaults>,
    /// Virtual hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<Hardware>,
}

/// Where disks go unless a disk says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageDefaults {
    /// PVE storage.
    #[schemars(length(min = 1, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Take space as it is used, or all at once. Thick disks go only where their whole size is free, and are raw images on
    /// file storages; thin ones are refused, with the storage named, where its kind has thick volumes only.
    #[serde(rename = "type")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<Provisioning>,
}

/// How disks take their space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provisioning {
    /// As it is used.
    Thin,
    /// All at once.
    Thick,
}

/// Who uses a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMClassStatus {
    /// `Ready`.
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of machines using it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<i32>,
}
