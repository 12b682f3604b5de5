//! Checks of an applied configuration against its schema, in Kubernetes' words.

use serde_json::Value;

use super::element::Element;
use crate::golang;
use crate::schema::ListType;
use crate::shape::{Scalar, Shape};

/// Everything in `value` that its schema does not allow, as one text.
pub(crate) fn check(shape: Shape<'_>, value: &Value) -> Result<(), String> {
    let mut faults = Vec::new();
    walk(shape, value, "", &mut faults);
    match faults.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => {
            let mut text = String::from("errors:");
            for fault in many {
                text.push_str("\n  ");
                text.push_str(fault);
            }
            Err(text)
        }
    }
}

fn walk(shape: Shape<'_>, value: &Value, path: &str, faults: &mut Vec<String>) {
    let fault = |text: String| {
        if path.is_empty() {
            text
        } else {
            format!("{path}: {text}")
        }
    };
    if value.is_null() {
        return;
    }
    if let Some(scalar) = shape.scalar() {
        if let Some(text) = mismatch(scalar, value) {
            faults.push(fault(text));
        }
        return;
    }
    match value {
        Value::Object(map) => {
            if shape.is_list() {
                faults.push(fault(format!("expected list, got {}", shown(value))));
                return;
            }
            for (name, child) in map {
                let below = format!("{path}.{name}");
                if shape.knows(name) {
                    walk(shape.field(name), child, &below, faults);
                } else {
                    faults.push(format!("{below}: field not declared in schema"));
                    // The real server stops at the first undeclared field of an object.
                    break;
                }
            }
        }
        Value::Array(items) => {
            if shape.is_map() {
                faults.push(fault(format!("expected map, got {}", shown(value))));
                return;
            }
            let mut seen = Vec::new();
            for (i, item) in items.iter().enumerate() {
                let element = if *shape.list() == ListType::Atomic {
                    Element::Index(i)
                } else {
                    match Element::of_item(shape, item) {
                        Ok(element) => element,
                        Err(text) => {
                            faults.push(fault(format!("element {i}: {text}")));
                            return;
                        }
                    }
                };
                if seen.contains(&element) {
                    faults.push(fault(format!("duplicate entries for key {element}")));
                }
                walk(shape.item(), item, &format!("{path}{element}"), faults);
                seen.push(element);
            }
        }
        scalar => {
            if shape.is_list() {
                faults.push(fault(format!("expected list, got {}", shown(scalar))));
            } else if shape.is_map() {
                faults.push(fault(format!("expected map, got {}", shown(scalar))));
            }
        }
    }
}

/// Why `value` is not a `scalar`.
fn mismatch(scalar: Scalar, value: &Value) -> Option<String> {
    match scalar {
        Scalar::Numeric if !value.is_number() => {
            let found = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            Some(format!("expected numeric (int or float), got {found}"))
        }
        Scalar::String if !value.is_string() => {
            let found = golang::sharp(value);
            Some(format!(
                "expected string, got &value.valueUnstructured{{Value:{found}}}"
            ))
        }
        Scalar::Boolean if !value.is_boolean() => Some(format!(
            "expected boolean, got &{{{}}}",
            golang::plain(value)
        )),
        Scalar::Untyped if value.is_object() || value.is_array() => Some(format!(
            "expected any scalar, got &{{{}}}",
            golang::plain(value)
        )),
        _ => None,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => golang::quote(text),
        other => golang::json(other),
    }
}
