//! Type and object metadata of resources embedded in other resources.

use serde_json::Value;

use super::FieldError;
use super::node::Node;
use crate::names;

/// Checks resources embedded anywhere below the root. The root's own metadata is its server's duty.
pub(crate) fn check(root: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(root, object, "", &mut errors);
    errors
}

fn walk(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if node.embedded && !path.is_empty() {
                embedded(value, path, errors);
            }
            for (name, value) in map {
                if let Some(property) = node.properties.get(name) {
                    walk(property, value, &super::join(path, name), errors);
                } else if let Some(sub) = node.additional.schema() {
                    walk(sub, value, &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(sub) = &node.items else { return };
            for (i, item) in items.iter().enumerate() {
                walk(sub, item, &format!("{path}[{i}]"), errors);
            }
        }
        _ => {}
    }
}

fn embedded(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let at = super::join(path, name);
        match value.get(name) {
            None => errors.push(FieldError::required(&at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(&at, "", "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                let detail = format!("unexpected GroupVersion string: {text}");
                errors.push(FieldError::invalid(&at, text.as_str(), detail));
            }
            Some(Value::String(text)) if name == "kind" => {
                let faults = names::dns1035_label(&text.to_lowercase());
                if !faults.is_empty() {
                    let why = faults.join(",");
                    let detail = format!("may have mixed case, but should otherwise match: {why}");
                    errors.push(FieldError::invalid(&at, text.as_str(), detail));
                }
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(&at, other.clone(), "must be a string")),
        }
    }
    if let Some(metadata) = value.get("metadata") {
        errors.extend(crate::meta::check_embedded(
            metadata,
            &super::join(path, "metadata"),
        ));
    }
}
