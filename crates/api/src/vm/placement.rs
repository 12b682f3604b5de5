//! `VMPlacementPolicy`: where machines may run.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{common::ConditionList, quantity::Bytes};

/// Where machines that refer to it may run.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMPlacementPolicy",
    plural = "vmplacementpolicies",
    namespaced,
    status = "VMPlacementPolicyStatus",
    shortname = "vmpp",
    category = "oxmox",
    derive = "PartialEq",
    doc = "Where machines that refer to it may run.",
    printcolumn(name = "Nodes", type_ = "string", json_path = ".spec.nodeSelector"),
    printcolumn(
        name = "Max/Node",
        type_ = "integer",
        json_path = ".spec.constraints.maxVMsPerNode"
    ),
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
pub struct VMPlacementPolicySpec {
    /// The only nodes to use; all of the Provider's when empty. Like the rest of a policy it is heeded when a machine is placed or
    /// moved: one that is on another node by then stays there until a VMMigration moves it.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_selector: Vec<String>,
    /// Keep apart from machines whose labels match: a node that runs one is not used.
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anti_affinity: Vec<AntiAffinityTerm>,
    /// Hard limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<PlacementConstraints>,
}

/// Machines to keep apart from, by label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) || self.values.size() == 0 : has(self.values) && self.values.size() > 0").message("In and NotIn need values; Exists and DoesNotExist take none"))]
pub struct AntiAffinityTerm {
    /// Label key.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// How to compare.
    pub operator: SelectorOperator,
    /// Values to compare with.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    /// The label has one of the values.
    In,
    /// The label is missing or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

impl AntiAffinityTerm {
    /// Whether labels match this term.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let value = label(&self.key);
        match self.operator {
            SelectorOperator::In => value.is_some_and(|v| self.values.iter().any(|w| w == v)),
            SelectorOperator::NotIn => !value.is_some_and(|v| self.values.iter().any(|w| w == v)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// Hard limits of placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementConstraints {
    /// Guests on one node, templates not counted.
    #[serde(rename = "maxVMsPerNode")]
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_vms_per_node: Option<u32>,
    /// Memory that must stay free on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_memory: Option<Bytes>,
    /// CPUs promised to guests per host thread, at most.
    #[schemars(range(min = 1, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_overcommit: Option<u32>,
    /// CPUs and memory of the guest must fit one socket of the node, so that it need not reach across.
    #[serde(default)]
    pub fit_numa: bool,
}

/// Who uses a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMPlacementPolicyStatus {
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
