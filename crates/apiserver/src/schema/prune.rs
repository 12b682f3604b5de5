//! Removal of fields that a schema does not know.

use serde_json::Value;

use super::node::{Additional, Node};
use crate::kinds;

/// Prunes `object`, whose own type and metadata always stay, and returns the removed paths, sorted.
pub(crate) fn prune(root: &Node, object: &mut Value) -> Vec<String> {
    let mut removed = Removed::default();
    walk(Some(root), object, "", true, &mut removed);
    let Removed {
        mut fields,
        mut embedded,
    } = removed;
    fields.sort();
    embedded.sort();
    fields.append(&mut embedded);
    fields
}

/// What was removed.
#[derive(Default)]
struct Removed {
    fields: Vec<String>,
    /// From the metadata of embedded resources, which is told last.
    embedded: Vec<String>,
}

impl Removed {
    fn push(&mut self, path: String) {
        self.fields.push(path);
    }
}

/// Metadata has a schema of its own, whatever the resource's says.
fn prune_meta(name: &str, value: &mut Value, path: &str, removed: &mut Removed) {
    if name == "metadata" {
        let found = kinds::prune_metadata(value, path);
        if path == "metadata" {
            removed.fields.extend(found);
        } else {
            removed.embedded.extend(found);
        }
    }
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

fn walk(node: Option<&Node>, value: &mut Value, path: &str, resource: bool, removed: &mut Removed) {
    if let Some(node) = node
        && node.preserve_unknown
    {
        walk_preserved(node, value, path, resource, removed);
        return;
    }
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let below = super::join(path, name);
            let Some(node) = node else {
                removed.push(below);
                return false;
            };
            if (resource || node.embedded) && is_meta(name) {
                prune_meta(name, value, &below, removed);
                return true;
            }
            match (node.properties.get(name), &node.additional) {
                (Some(property), _) => walk(Some(property), value, &below, false, removed),
                (None, Additional::Schema(sub)) => walk(Some(sub), value, &below, false, removed),
                (None, Additional::Any) => walk(None, value, &below, false, removed),
                (None, Additional::None) => {
                    removed.push(below);
                    return false;
                }
            }
            true
        }),
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                let sub = node.and_then(|node| node.items.as_deref());
                walk(sub, item, &format!("{path}[{i}]"), false, removed);
            }
        }
        _ => {}
    }
}

/// Unknown fields stay, known ones are pruned by their own schema.
fn walk_preserved(
    node: &Node,
    value: &mut Value,
    path: &str,
    resource: bool,
    removed: &mut Removed,
) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let below = super::join(path, name);
                if (resource || node.embedded) && is_meta(name) {
                    prune_meta(name, value, &below, removed);
                    continue;
                }
                match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => walk(Some(property), value, &below, false, removed),
                    (None, Additional::Schema(sub)) => {
                        walk(Some(sub), value, &below, false, removed);
                    }
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            let Some(sub) = node.items.as_deref() else {
                return;
            };
            for (i, item) in items.iter_mut().enumerate() {
                walk_preserved(sub, item, &format!("{path}[{i}]"), false, removed);
            }
        }
        _ => {}
    }
}
