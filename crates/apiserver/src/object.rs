//! Small readers and writers of the parts every Kubernetes object has.
//!
//! The server handles objects as JSON values; these functions keep the indexing in one place.

use serde_json::{Map, Value, json};

/// A string field of `metadata`, or the empty string.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    meta(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    meta(object, "resourceVersion")
}

/// The metadata map, created when missing; `None` when the object is no object.
pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let map = object.as_object_mut()?;
    map.entry("metadata")
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

/// Sets a field of `metadata`.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert(field.to_owned(), value.into());
    }
}

/// Removes a field of `metadata`, giving it back.
pub(crate) fn take_meta(object: &mut Value, field: &str) -> Option<Value> {
    metadata_mut(object)?.remove(field)
}

/// Sets or removes a field.
pub(crate) fn put(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(map) = object.as_object_mut() {
        match value {
            Some(value) => map.insert(field.to_owned(), value),
            None => map.remove(field),
        };
    }
}

/// The finalizers, in order.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    strings(&object["metadata"]["finalizers"])
}

pub(crate) fn has_finalizer(object: &Value, name: &str) -> bool {
    finalizers(object).contains(&name)
}

/// Adds a finalizer unless present.
pub(crate) fn add_finalizer(object: &mut Value, finalizer: &str) {
    if !has_finalizer(object, finalizer)
        && let Some(metadata) = metadata_mut(object)
    {
        match metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            Some(list) => list.push(json!(finalizer)),
            None => {
                metadata.insert("finalizers".into(), json!([finalizer]));
            }
        }
    }
}

/// Removes a finalizer, and the list when it becomes empty.
pub(crate) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    if let Some(metadata) = metadata_mut(object)
        && let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut)
    {
        list.retain(|f| f != finalizer);
        if list.is_empty() {
            metadata.remove("finalizers");
        }
    }
}

/// The strings of a JSON array.
pub(crate) fn strings(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Whether deletion has begun.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Splits `group/version`; the core group is empty.
pub(crate) fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Joins group and version as `apiVersion` spells them.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// The value at a dotted path such as `.spec.replicas`.
pub(crate) fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.')
        .split('.')
        .try_fold(object, |value, key| value.get(key))
}

/// Sets the value at a dotted path, creating maps on the way.
pub(crate) fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for key in path.trim_start_matches('.').split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key];
    }
    *at = value;
}

/// A controller-style condition list: sets one condition, keeping its transition time when the status stays.
pub(crate) fn set_condition(
    conditions: &mut Vec<Value>,
    (kind, status): (&str, &str),
    (reason, message): (&str, &str),
    now: &str,
) {
    let found = conditions.iter_mut().find(|c| c["type"] == kind);
    let transition = match &found {
        Some(c) if c["status"] == status => {
            c["lastTransitionTime"].as_str().unwrap_or(now).to_owned()
        }
        _ => now.to_owned(),
    };
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": transition,
    });
    match found {
        Some(slot) => *slot = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_create_what_is_missing() {
        let mut object = json!({});
        set_path(&mut object, ".spec.a.b", json!(1));
        assert_eq!(at_path(&object, ".spec.a.b"), Some(&json!(1)));
        assert_eq!(at_path(&object, ".spec.c"), None);
    }

    #[test]
    fn the_last_finalizer_takes_the_list_with_it() {
        let mut object = json!({"metadata": {}});
        add_finalizer(&mut object, "a/b");
        add_finalizer(&mut object, "a/b");
        assert_eq!(finalizers(&object), ["a/b"]);
        remove_finalizer(&mut object, "a/b");
        assert_eq!(object, json!({"metadata": {}}));
    }
}
