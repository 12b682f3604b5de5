//! What the engine writes down before it acts.

use std::borrow::Cow;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The engine's record: identity chosen before the first change, and the task under way.
///
/// It is data for the engine, kept here because this object is what survives a crash. Its shape belongs
/// to the engine, so the schema lets it through whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FleetRecord(pub serde_json::Value);

impl JsonSchema for FleetRecord {
    fn schema_name() -> Cow<'static, str> {
        "FleetRecord".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// What is being done right now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// The step, in words.
    pub step: String,
    /// The PVE task, while one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}
