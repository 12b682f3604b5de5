//! Built-in kinds as Go would write them.
//!
//! A field without a pointer always has a value in Go, and unless its tag says otherwise it is written
//! even when nobody set it: as an empty text, a zero, an empty object, or null for lists and times.

use serde_json::Value;

use super::types::{Ty, TypeDef, lookup};

/// Adds the zeros that are always written, to `object` and all below it.
pub(super) fn encode(definition: &TypeDef, object: &mut Value) {
    let Value::Object(map) = object else { return };
    for (name, field) in &definition.fields {
        match map.get_mut(*name) {
            Some(child) => walk(&field.ty, child),
            None => {
                if let Some(mut zero) = field.unset() {
                    walk(&field.ty, &mut zero);
                    map.insert((*name).to_owned(), zero);
                }
            }
        }
    }
}

fn walk(ty: &Ty, value: &mut Value) {
    match (ty, value) {
        (Ty::Named(name), value) => {
            if let Some(definition) = lookup(name) {
                encode(definition, value);
            }
        }
        (Ty::List(list), Value::Array(items)) => {
            for item in items {
                walk(&list.item, item);
            }
        }
        (Ty::Map(sub, _), Value::Object(map)) => map.values_mut().for_each(|v| walk(sub, v)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::kinds::BuiltIn;

    #[test]
    fn what_has_no_pointer_is_written() {
        let mut role = json!({});
        BuiltIn::find("rbac.authorization.k8s.io", "v1", "Role")
            .unwrap()
            .encode(&mut role);
        assert_eq!(role, json!({"metadata": {}, "rules": null}));
        let mut pod = json!({"status": {"conditions": [{"type": "Ready"}]}});
        BuiltIn::find("", "v1", "Pod").unwrap().encode(&mut pod);
        assert_eq!(
            pod["status"]["conditions"][0],
            json!({"type": "Ready", "status": "", "lastProbeTime": null, "lastTransitionTime": null})
        );
        assert_eq!(pod["spec"], json!({"containers": null}));
    }
}
