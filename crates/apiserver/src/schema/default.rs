//! Defaulting of missing fields.

use serde_json::Value;

use super::node::Node;
use super::{FieldError, join};

/// Defaults `object` and drops nulls that neither the schema allows nor a default replaces.
pub(crate) fn apply(root: &Node, object: &mut Value) {
    whole_numbers(object);
    drop_nulls(root, object);
    fill(root, object);
}

/// Writes whole numbers as such: Go reads `3.0` and writes `3`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < 1e15 {
                #[expect(clippy::cast_possible_truncation, reason = "whole and within range")]
                let whole = float as i64;
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Nulls where none is allowed and no default stands in mean the field is not there.
fn drop_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|name, child| {
            let sub = node
                .properties
                .get(name)
                .or_else(|| node.additional.schema());
            let Some(sub) = sub else { return true };
            if is_refused_null(child, sub) && sub.default.is_none() {
                return false;
            }
            drop_nulls(sub, child);
            true
        }),
        Value::Array(items) => {
            let Some(sub) = node.items.as_deref() else {
                return;
            };
            for item in items {
                drop_nulls(sub, item);
            }
        }
        _ => {}
    }
}

/// The nulls that [`apply`] would drop, told as what validation would say of them.
pub(crate) fn refused_nulls(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, child) in map {
                let known = node.properties.get(name);
                let Some(sub) = known.or_else(|| node.additional.schema()) else {
                    continue;
                };
                let below = join(path, name);
                if is_refused_null(child, sub)
                    && sub.default.is_none()
                    && !sub.type_name().is_empty()
                {
                    let expected = sub.type_name();
                    let why = format!("{below} in body must be of type {expected}: \"null\"");
                    errors.push(FieldError::type_invalid(&below, "null", why));
                } else {
                    refused_nulls(sub, child, &below, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(sub) = node.items.as_deref() {
                for (i, item) in items.iter().enumerate() {
                    refused_nulls(sub, item, &format!("{path}[{i}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn is_refused_null(value: &Value, node: &Node) -> bool {
    value.is_null() && !node.nullable
}

fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else {
                    continue;
                };
                let missing = match map.get(name) {
                    None => true,
                    Some(present) => is_refused_null(present, property),
                };
                if missing {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map {
                let sub = node
                    .properties
                    .get(name)
                    .or_else(|| node.additional.schema());
                let Some(sub) = sub else { continue };
                fill_null(sub, value);
                fill(sub, value);
            }
        }
        Value::Array(items) => {
            let Some(sub) = node.items.as_deref() else {
                return;
            };
            for item in items {
                fill_null(sub, item);
                fill(sub, item);
            }
        }
        _ => {}
    }
}

fn fill_null(node: &Node, value: &mut Value) {
    if is_refused_null(value, node)
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
}

/// Checks that every default is a value the schema itself accepts and does not prune.
pub(crate) fn check_defaults(root: &Node, errors: &mut Vec<FieldError>) {
    walk(root, "", errors);
}

fn walk(node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = &node.default {
        let at = super::join(path, "default");
        let mut pruned = default.clone();
        if !super::prune::prune(node, &mut pruned).is_empty() {
            errors.push(FieldError::invalid(
                &at,
                default.clone(),
                "must not have unknown fields",
            ));
        }
        let mut complete = default.clone();
        fill(node, &mut complete);
        let found = super::check::check(node, &complete, None);
        let rules = if found.is_empty() {
            super::cel::check(node, &complete, None)
        } else {
            vec![]
        };
        for error in found.into_iter().chain(rules) {
            errors.push(error.under(&at));
        }
    }
    for (name, property) in &node.properties {
        walk(
            property,
            &format!("{}[{name}]", super::join(path, "properties")),
            errors,
        );
    }
    if let Some(sub) = node.additional.schema() {
        walk(sub, &super::join(path, "additionalProperties"), errors);
    }
    if let Some(sub) = &node.items {
        walk(sub, &super::join(path, "items"), errors);
    }
}
