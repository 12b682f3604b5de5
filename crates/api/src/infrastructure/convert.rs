//! Conversion between the served versions, without loss in any direction.
//!
//! `v1beta1` is the hub. Every other version is a pair of plain functions over JSON, up to the hub and down from it. The hub can
//! say all that the others can, so going up loses nothing. Going down can: what the older version has no word for is kept in an
//! annotation, as the whole hub object. When that object comes back up, only what was *changed* in the older version is carried
//! over to the kept one ([`merge::onto`]), so no field needs a rule of its own to survive the journey.

mod merge;
mod v1alpha1;
mod v1alpha2;

use serde_json::{Map, Value, json};

/// Where the hub object waits while an older version of it is about.
pub const ANNOTATION: &str = "oxmox.dev/conversion-data";
const GROUP: &str = "infrastructure.cluster.x-k8s.io";
const HUB: &str = "v1beta1";

/// Why an object was not converted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The version is not one of ours.
    #[error(
        "cannot convert {kind} to or from {version:?}: known versions are v1alpha1, v1alpha2, v1alpha3 and v1beta1 of {GROUP}"
    )]
    UnknownVersion {
        /// Kind of the object.
        kind: String,
        /// The version asked for.
        version: String,
    },
    /// The kind is not one of ours.
    #[error("cannot convert kind {0:?}: not a kind of {GROUP}")]
    UnknownKind(String),
    /// It is not an object.
    #[error("cannot convert: not a Kubernetes object")]
    NotAnObject,
}

/// What a kind holds, as far as conversion cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cluster,
    ClusterTemplate,
    Machine,
    MachineTemplate,
}

impl Kind {
    fn of(name: &str) -> Result<Self, Error> {
        match name {
            "ProxmoxCluster" => Ok(Self::Cluster),
            "ProxmoxClusterTemplate" => Ok(Self::ClusterTemplate),
            "ProxmoxMachine" => Ok(Self::Machine),
            "ProxmoxMachineTemplate" => Ok(Self::MachineTemplate),
            other => Err(Error::UnknownKind(other.to_owned())),
        }
    }
}

/// One version's way to the hub and back. All four work in place on a `spec` or `status`.
struct Version {
    cluster_up: fn(&mut Map<String, Value>),
    cluster_down: fn(&mut Map<String, Value>),
    machine_up: fn(&mut Map<String, Value>),
    machine_down: fn(&mut Map<String, Value>),
    cluster_status_up: fn(&mut Map<String, Value>),
    cluster_status_down: fn(&mut Map<String, Value>),
    machine_status_up: fn(&mut Map<String, Value>),
    machine_status_down: fn(&mut Map<String, Value>),
}

/// Converts `object` to `to`, a version of the group or `group/version`.
pub fn convert(mut object: Value, to: &str) -> Result<Value, Error> {
    let api_version = object["apiVersion"]
        .as_str()
        .ok_or(Error::NotAnObject)?
        .to_owned();
    let kind_name = object["kind"]
        .as_str()
        .ok_or(Error::NotAnObject)?
        .to_owned();
    let kind = Kind::of(&kind_name)?;
    let from = short(&api_version);
    let to = short(to);
    if from == to {
        return Ok(object);
    }
    let version = |name: &str| {
        by_name(name).ok_or_else(|| Error::UnknownVersion {
            kind: kind_name.clone(),
            version: name.to_owned(),
        })
    };
    if from != HUB {
        object = up(object, kind, &version(from)?);
    }
    if to != HUB {
        object = down(object, kind, &version(to)?);
    }
    object["apiVersion"] = json!(format!("{GROUP}/{to}"));
    Ok(object)
}

fn short(version: &str) -> &str {
    version.rsplit('/').next().unwrap_or(version)
}

fn by_name(name: &str) -> Option<Version> {
    match name {
        "v1alpha1" => Some(v1alpha1::VERSION),
        "v1alpha2" => Some(v1alpha2::VERSION),
        "v1alpha3" => Some(v1alpha2::V1ALPHA3),
        _ => None,
    }
}

/// To the hub: translate, then put what was changed onto what was kept.
fn up(mut object: Value, kind: Kind, version: &Version) -> Value {
    let kept = take_annotation(&mut object);
    translate_up(&mut object, kind, version);
    let Some(kept) = kept else { return object };
    let mut unchanged = kept.clone();
    translate_down(&mut unchanged, kind, version);
    translate_up(&mut unchanged, kind, version);
    for part in ["spec", "status"] {
        let merged = merge::onto(kept.get(part), unchanged.get(part), object.get(part));
        put(&mut object, part, merged);
    }
    object
}

/// From the hub: keep the hub's words where the older version has none, then translate.
fn down(mut object: Value, kind: Kind, version: &Version) -> Value {
    let kept = body(&object);
    translate_down(&mut object, kind, version);
    let mut back = body(&object);
    translate_up(&mut back, kind, version);
    if back != kept {
        let annotations = object["metadata"]
            .as_object_mut()
            .map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
        if let Some(Value::Object(annotations)) = annotations {
            annotations.insert(ANNOTATION.to_owned(), json!(kept.to_string()));
        }
    }
    object
}

/// The parts of an object that versions differ in.
fn body(object: &Value) -> Value {
    let parts = ["spec", "status"];
    Value::Object(
        parts
            .iter()
            .filter_map(|part| Some(((*part).to_owned(), object.get(part)?.clone())))
            .collect(),
    )
}

fn take_annotation(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(ANNOTATION)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    // A text that somebody else has written over is as good as none.
    serde_json::from_str(text.as_str()?).ok()
}

fn put(object: &mut Value, part: &str, value: Option<Value>) {
    if let Some(object) = object.as_object_mut() {
        match value {
            Some(value) => object.insert(part.to_owned(), value),
            None => object.remove(part),
        };
    }
}

fn translate_up(object: &mut Value, kind: Kind, version: &Version) {
    translate(
        object,
        kind,
        (version.cluster_up, version.machine_up),
        (version.cluster_status_up, version.machine_status_up),
    );
}

fn translate_down(object: &mut Value, kind: Kind, version: &Version) {
    translate(
        object,
        kind,
        (version.cluster_down, version.machine_down),
        (version.cluster_status_down, version.machine_status_down),
    );
    // Templates have a status only in the hub, and an API server refuses what a schema does not declare.
    if matches!(kind, Kind::ClusterTemplate | Kind::MachineTemplate) {
        put(object, "status", None);
    }
}

type Translation = fn(&mut Map<String, Value>);

fn translate(
    object: &mut Value,
    kind: Kind,
    (cluster, machine): (Translation, Translation),
    (cluster_status, machine_status): (Translation, Translation),
) {
    let mut at = |pointer: &str, translation: Translation| {
        if let Some(Value::Object(part)) = object.pointer_mut(pointer) {
            translation(part);
        }
    };
    match kind {
        Kind::Cluster => {
            at("/spec", cluster);
            at("/status", cluster_status);
        }
        Kind::Machine => {
            at("/spec", machine);
            at("/status", machine_status);
        }
        Kind::ClusterTemplate => at("/spec/template/spec", cluster),
        Kind::MachineTemplate => at("/spec/template/spec", machine),
    }
}

/// Renames a field.
fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
