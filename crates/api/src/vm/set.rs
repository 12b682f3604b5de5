//! `VMSet`: several machines alike.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, LabelSelector},
    util::intstr::IntOrString,
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{common::ConditionList, machine::VirtualMachineSpec};

/// What only one machine can have.
const ONE_OF_A_KIND: &str = "self.replicas <= 1 || !has(self.template.spec.adopt) && (!has(self.template.spec.networks) || !self.template.spec.networks.exists(n, has(n.staticIP) || has(n.mac)))";

/// Several machines alike, numbered, with a rolling update when the template changes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "VMSet",
    plural = "vmsets",
    namespaced,
    status = "VMSetStatus",
    shortname = "vmset",
    category = "oxmox",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 58").message("metadata.name must not be longer than 58 characters: the set's machines are named after it, with their number"),
    doc = "Several machines alike, numbered, with a rolling update when the template changes.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Current", type_ = "integer", json_path = ".status.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(
        name = "Updated",
        type_ = "integer",
        json_path = ".status.updatedReplicas"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.selector == oldSelf.selector").message("selector cannot change: it is how the set knows its machines; make another VMSet"))]
#[x_kube(validation = Rule::new(ONE_OF_A_KIND).message("template.spec: a staticIP, a mac and adopt are one machine's only; leave them out, or set replicas to 1"))]
pub struct VMSetSpec {
    /// How many.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// How the set knows its machines; the template's labels must match.
    pub selector: LabelSelector,
    /// What they look like.
    pub template: VMTemplateSpec,
    /// How a changed template reaches them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<SetUpdateStrategy>,
    /// Seconds a machine must be Ready before it counts as available and the next one is updated.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    pub min_ready_seconds: u32,
}

fn one() -> i32 {
    1
}

/// What the machines of a set look like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMTemplateSpec {
    /// Labels and annotations for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<VMTemplateMetadata>,
    /// Their spec. Texts written in `userData` may use `{{ index }}` and `{{ name }}`.
    pub spec: VirtualMachineSpec,
}

/// Labels and annotations of the machines of a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMTemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// How a changed template reaches the machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetUpdateStrategy {
    /// When.
    #[serde(rename = "type", default)]
    pub kind: SetUpdateType,
    /// How carefully.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// When a changed template reaches the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SetUpdateType {
    /// One after the other. What PVE can change in place is changed in place; a new image means a new
    /// guest.
    #[default]
    RollingUpdate,
    /// When someone deletes a machine, its successor is made from the new template.
    OnDelete,
}

/// How carefully machines are updated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// How many may be missing at a time: a number or a percentage; 1 when left out.
    #[schemars(schema_with = "count_or_share")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Machines with a lower number keep the old template.
    #[schemars(range(min = 0, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
}

fn count_or_share(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "x-kubernetes-int-or-string": true,
        "nullable": true,
        "minimum": 1,
        "maximum": 1000,
        "pattern": "^([0-9]{1,2}|100)%$",
    })
}

/// Where a set stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VMSetStatus {
    /// `Ready`; `Progressing` while machines are being made, updated or removed.
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Machines there are.
    #[serde(default)]
    pub replicas: i32,
    /// Machines that are Ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Machines that have been Ready for `minReadySeconds`.
    #[serde(default)]
    pub available_replicas: i32,
    /// Machines made from the present template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// The present template, as a short digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// The selector in text, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}
