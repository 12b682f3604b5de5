//! Uniqueness in lists that are sets or maps.

use serde_json::{Map, Value};

use super::FieldError;
use super::node::{ListType, Node};

/// Reports entries of list sets and list maps that appear more than once.
pub(crate) fn check(root: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(root, object, "", &mut errors);
    errors
}

fn walk(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(property) = node.properties.get(name) {
                    walk(property, value, &super::join(path, name), errors);
                } else if let Some(sub) = node.additional.schema() {
                    walk(sub, value, &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => {
                    for i in repeated(items) {
                        errors.push(FieldError::duplicate(
                            &format!("{path}[{i}]"),
                            items[i].clone(),
                        ));
                    }
                }
                ListType::Map(keys) => {
                    let keyed: Vec<Value> = items.iter().map(|item| keys_of(item, keys)).collect();
                    for i in repeated(&keyed) {
                        errors.push(FieldError::duplicate(
                            &format!("{path}[{i}]"),
                            keyed[i].clone(),
                        ));
                    }
                }
            }
            if let Some(sub) = &node.items {
                for (i, item) in items.iter().enumerate() {
                    walk(sub, item, &format!("{path}[{i}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn keys_of(item: &Value, keys: &[String]) -> Value {
    let pairs = keys
        .iter()
        .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// The position of the second appearance of every repeated value.
fn repeated(values: &[Value]) -> Vec<usize> {
    (0..values.len())
        .filter(|&i| {
            values[..i]
                .iter()
                .filter(|other| **other == values[i])
                .count()
                == 1
        })
        .collect()
}
