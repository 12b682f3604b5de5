//! Removal of fields a built-in type does not have.

use serde_json::Value;

use super::types::{Ty, TypeDef, lookup};
use crate::schema::join;

/// Removes unknown fields from `object` and returns their paths in order.
pub(super) fn prune(definition: &TypeDef, object: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    named(definition, object, "", &mut removed);
    removed.sort();
    removed
}

/// Removes unknown fields from object metadata at `path` and returns their paths.
pub(super) fn prune_metadata(metadata: &mut Value, path: &str) -> Vec<String> {
    let mut removed = Vec::new();
    if let Some(definition) = lookup("meta.v1.ObjectMeta") {
        named(definition, metadata, path, &mut removed);
    }
    removed
}

fn named(definition: &TypeDef, value: &mut Value, path: &str, removed: &mut Vec<String>) {
    let Value::Object(map) = value else { return };
    map.retain(|name, child| {
        let below = join(path, name);
        let Some(field) = definition.fields.get(name.as_str()) else {
            removed.push(below);
            return false;
        };
        walk(&field.ty, child, &below, removed);
        true
    });
}

fn walk(ty: &Ty, value: &mut Value, path: &str, removed: &mut Vec<String>) {
    match (ty, value) {
        (Ty::Named(name), value) => {
            if let Some(definition) = lookup(name) {
                named(definition, value, path, removed);
            }
        }
        (Ty::List(list), Value::Array(items)) => {
            for (i, item) in items.iter_mut().enumerate() {
                walk(&list.item, item, &format!("{path}[{i}]"), removed);
            }
        }
        (Ty::Map(sub, _), Value::Object(map)) => {
            for (name, child) in map {
                walk(sub, child, &join(path, name), removed);
            }
        }
        _ => {}
    }
}
