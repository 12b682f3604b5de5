//! What several kinds share: references and conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// An object in the same namespace.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct LocalRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A guest in the same namespace.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct GuestRef {
    /// `VirtualMachine` or `Container`.
    #[serde(default)]
    pub kind: GuestKind,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl GuestRef {
    /// A machine.
    pub fn machine(name: impl Into<String>) -> Self {
        Self {
            kind: GuestKind::VirtualMachine,
            name: name.into(),
        }
    }

    /// A container.
    pub fn container(name: impl Into<String>) -> Self {
        Self {
            kind: GuestKind::Container,
            name: name.into(),
        }
    }
}

/// What keeps a guest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum GuestKind {
    /// A virtual machine.
    #[default]
    VirtualMachine,
    /// An LXC container.
    Container,
}

/// An object in this or another namespace.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, KubeSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedRef {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the object; the referring object's own when left out.
    #[schemars(length(max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// One key of a Secret or ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeySelector {
    /// Name of the Secret or ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key inside it; each user of the reference names its own default.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Where an object stands, in one word for the eye; tools should wait for conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Something it needs is not there yet.
    #[default]
    Pending,
    /// Being made.
    Provisioning,
    /// A guest that runs.
    Running,
    /// A guest that is stopped, as wanted.
    Stopped,
    /// Paused in memory, as wanted.
    Paused,
    /// Being changed.
    Updating,
    /// An action that is done.
    Succeeded,
    /// Being taken away.
    Deleting,
    /// Can never work as written.
    Failed,
}

/// Conditions as every Kubernetes tool expects them, merged by type.
pub struct ConditionList;

impl ConditionList {
    /// Schema of a condition list with the merge key `kubectl` and server-side apply rely on.
    pub fn schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = generator.subschema_for::<Vec<Condition>>();
        schema.insert("x-kubernetes-list-type".into(), "map".into());
        schema.insert(
            "x-kubernetes-list-map-keys".into(),
            serde_json::json!(["type"]),
        );
        schema
    }
}

/// The condition of that type, if it has been reported.
pub fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == kind)
}
