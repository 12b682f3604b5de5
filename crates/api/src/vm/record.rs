//! What the engine writes down before it acts.

use std::borrow::Cow;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::Value;

/// The engine's record: identity chosen before the first change, and the task under way.
///
/// It is data for the engine, kept here because this object is what survives a crash. Its shape belongs
/// to the engine, so the schema lets it through whole. It is held as text: of ten thousand objects at rest nobody
/// reads it, and a tree takes several times the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRecord(Box<str>);

impl FleetRecord {
    /// A record as it is kept on an object.
    pub fn of(record: &impl Serialize) -> Option<Self> {
        let tree = serde_json::to_value(record).ok().filter(Value::is_object)?;
        Some(Self(tree.to_string().into()))
    }

    /// The record that is kept, if it is one.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(&self.0).ok()
    }
}

impl Serialize for FleetRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tree: Value = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        tree.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FleetRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tree = Value::deserialize(deserializer)?;
        Ok(Self(tree.to_string().into()))
    }
}

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
