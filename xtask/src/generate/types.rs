//! Renders OpenAPI schemas as lines of facts.
//!
//! ```text
//! core.v1.ServicePort
//!  appProtocol string ptr omit
//!  port! int32 =0
//!  protocol string omit =TCP
//!  targetPort intstr
//! ```
//!
//! A heading is a type's name, then `@group/version/Kind` for kinds and `atomic` for types that are
//! owned whole. A field is its name (`!` when required), its type (`[]T` a list, `{}T` a map), the
//! list's type (`set`, `map=key,key`) or `atomic`, `merge`/`merge=key`/`retain` for strategic merge
//! patches, `ptr` for what Go has a pointer to and so can be missing, `omit` for what is not written
//! when it is missing or zero, and `=default`; `={}` marks an object that is never missing in Go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::golang::{Fact, Facts};

/// The group-versions whose kinds the embedded API server may serve.
const DOCUMENTS: [&str; 20] = [
    "api__v1",
    "apis__admissionregistration.k8s.io__v1",
    "apis__apiextensions.k8s.io__v1",
    "apis__apiregistration.k8s.io__v1",
    "apis__apps__v1",
    "apis__authentication.k8s.io__v1",
    "apis__authorization.k8s.io__v1",
    "apis__autoscaling__v1",
    "apis__autoscaling__v2",
    "apis__batch__v1",
    "apis__certificates.k8s.io__v1",
    "apis__coordination.k8s.io__v1",
    "apis__discovery.k8s.io__v1",
    "apis__events.k8s.io__v1",
    "apis__networking.k8s.io__v1",
    "apis__node.k8s.io__v1",
    "apis__policy__v1",
    "apis__rbac.authorization.k8s.io__v1",
    "apis__scheduling.k8s.io__v1",
    "apis__storage.k8s.io__v1",
];

const PREFIX: &str = "#/components/schemas/";

/// Renders all types of the documents in `directory`.
pub(super) fn render(directory: &Path, facts: &Facts) -> Result<String> {
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    for document in DOCUMENTS {
        let path = directory.join(format!("{document}_openapi.json"));
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut value: Value = serde_json::from_str(&text)?;
        if let Value::Object(found) = value["components"]["schemas"].take() {
            schemas.extend(found);
        }
    }
    let mut out = String::new();
    for (name, schema) in &schemas {
        if is_scalar(name) || name.ends_with("List") && has_items(schema) {
            continue;
        }
        heading(&mut out, name, schema);
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let facts = facts.get(&short(name));
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            let mark = if required.contains(&field.as_str()) {
                "!"
            } else {
                ""
            };
            let ty = type_name(schema);
            let _ = write!(out, " {field}{mark} {ty}");
            presence(&mut out, &ty, facts.and_then(|facts| facts.get(field)));
            flags(&mut out, schema);
            out.push('\n');
        }
    }
    Ok(out)
}

/// Whether a field can be missing, and whether it is then left out.
fn presence(out: &mut String, ty: &str, fact: Option<&Fact>) {
    // What Go's sources do not tell is taken as it comes.
    let unknown = Fact {
        pointer: true,
        omit_empty: true,
        omit_zero: false,
    };
    let fact = fact.copied().unwrap_or(unknown);
    let plain = matches!(
        ty,
        "string" | "int32" | "int64" | "double" | "bool" | "bytes"
    ) || ty.starts_with("[]")
        || ty.starts_with("{}");
    if fact.pointer {
        out.push_str(" ptr");
    }
    // Go never takes a struct for empty.
    if fact.omit_zero || fact.omit_empty && (fact.pointer || plain) {
        out.push_str(" omit");
    }
}

/// Lists of kinds have nothing of their own.
fn has_items(schema: &Value) -> bool {
    schema["properties"].get("items").is_some() && schema["properties"].get("metadata").is_some()
}

fn heading(out: &mut String, name: &str, schema: &Value) {
    out.push_str(&short(name));
    let kinds = schema["x-kubernetes-group-version-kind"].as_array();
    if let Some([kind]) = kinds.map(Vec::as_slice) {
        let text = |name: &str| kind[name].as_str().unwrap_or_default();
        let _ = write!(
            out,
            " @{}/{}/{}",
            text("group"),
            text("version"),
            text("kind")
        );
    }
    if schema["x-kubernetes-map-type"] == "atomic" {
        out.push_str(" atomic");
    }
    out.push('\n');
}

/// Drops the parts of a type's name that can be put back by its first word.
fn short(name: &str) -> String {
    for (long, short) in [
        ("io.k8s.api.", ""),
        ("io.k8s.apimachinery.pkg.apis.meta.", "meta."),
        ("io.k8s.apimachinery.pkg.", "apimachinery."),
        (
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.",
            "apiextensions.",
        ),
        (
            "io.k8s.kube-aggregator.pkg.apis.apiregistration.",
            "apiregistration.",
        ),
    ] {
        if let Some(rest) = name.strip_prefix(long) {
            return format!("{short}{rest}");
        }
    }
    name.to_owned()
}

/// Types that are plain values in JSON have codes of their own.
fn scalar(name: &str) -> Option<&'static str> {
    Some(match name.rsplit('.').next()? {
        "Quantity" => "quantity",
        "IntOrString" => "intstr",
        "Time" => "time",
        "MicroTime" => "microtime",
        "FieldsV1" | "RawExtension" => "object",
        "JSON"
        | "JSONSchemaPropsOrArray"
        | "JSONSchemaPropsOrBool"
        | "JSONSchemaPropsOrStringArray"
        | "Patch" => "any",
        _ => return None,
    })
}

fn is_scalar(name: &str) -> bool {
    scalar(name).is_some()
}

fn type_name(schema: &Value) -> String {
    let reference = schema["$ref"]
        .as_str()
        .or_else(|| schema["allOf"][0]["$ref"].as_str());
    if let Some(reference) = reference {
        let name = reference.strip_prefix(PREFIX).unwrap_or(reference);
        return scalar(name).map_or_else(|| short(name), str::to_owned);
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("array"), _) => format!("[]{}", type_name(&schema["items"])),
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            format!("{{}}{}", type_name(&schema["additionalProperties"]))
        }
        (Some("object"), _) => "object".into(),
        (Some("string"), Some("byte")) => "bytes".into(),
        (Some("string"), Some("date-time")) => "time".into(),
        (Some("string"), _) => "string".into(),
        (Some("boolean"), _) => "bool".into(),
        (Some("integer"), format) => format.unwrap_or("int64").into(),
        (Some("number"), _) => "double".into(),
        _ => "any".into(),
    }
}

fn flags(out: &mut String, schema: &Value) {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => out.push_str(" set"),
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            let keys: Vec<&str> = keys
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let _ = write!(out, " map={}", keys.join(","));
        }
        _ => {}
    }
    if schema["x-kubernetes-map-type"] == "atomic" {
        out.push_str(" atomic");
    }
    for strategy in schema["x-kubernetes-patch-strategy"]
        .as_str()
        .unwrap_or_default()
        .split(',')
    {
        match (strategy, schema["x-kubernetes-patch-merge-key"].as_str()) {
            ("merge", Some(key)) => {
                let _ = write!(out, " merge={key}");
            }
            ("merge", None) => out.push_str(" merge"),
            ("retainKeys", _) => out.push_str(" retain"),
            _ => {}
        }
    }
    match &schema["default"] {
        Value::String(text) => {
            let _ = write!(out, " ={text}");
        }
        value @ (Value::Number(_) | Value::Bool(_)) => {
            let _ = write!(out, " ={value}");
        }
        Value::Object(map) if map.is_empty() => out.push_str(" ={}"),
        _ => {}
    }
}
