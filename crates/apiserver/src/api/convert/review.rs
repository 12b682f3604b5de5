//! The question and the answer: `ConversionReview`.

use serde_json::{Value, json};

use crate::{golang, object, registry::text};

/// The question whether `objects` can be had in the version `to`.
pub(super) fn question(uid: &str, objects: &[&Value], to: &str, speaks: &str) -> Value {
    json!({
        "kind": "ConversionReview",
        "apiVersion": speaks,
        "request": {"uid": uid, "desiredAPIVersion": to, "objects": objects},
    })
}

/// The converted objects in the answer to the question `uid`, or why there are none.
pub(super) fn read(review: &Value, uid: &str, speaks: &str) -> Result<Vec<Value>, String> {
    let (version, kind) = (text(review, "apiVersion"), text(review, "kind"));
    if version != speaks || kind != "ConversionReview" {
        return Err(format!(
            "expected webhook response of {speaks}, Kind=ConversionReview, got {version}, Kind={kind}"
        ));
    }
    let response = &review["response"];
    if !response.is_object() {
        return Err("no response provided".to_owned());
    }
    let given = text(response, "uid");
    if given != uid && speaks.ends_with("/v1") {
        return Err(format!(
            "expected response.uid={}, got {}",
            golang::quote(uid),
            golang::quote(given)
        ));
    }
    let result = &response["result"];
    if text(result, "status") != "Success" {
        return Err(match text(result, "message") {
            "" => format!(
                "response.result.status was '{}', not 'Success'",
                text(result, "status")
            ),
            message => message.to_owned(),
        });
    }
    Ok(response["convertedObjects"]
        .as_array()
        .cloned()
        .unwrap_or_default())
}

/// Checks that a converted object is still the same one, and gives it back the metadata it had.
///
/// Labels and annotations are content; the rest of the metadata is not the webhook's to change.
pub(super) fn settle(original: &Value, mut converted: Value, to: &str) -> Result<Value, String> {
    let version = text(&converted, "apiVersion");
    if version != to {
        return Err(format!("invalid groupVersion {version}, expected {to}"));
    }
    for (what, before, after) in [
        ("kind", text(original, "kind"), text(&converted, "kind")),
        ("name", object::name(original), object::name(&converted)),
        (
            "namespace",
            object::namespace(original),
            object::namespace(&converted),
        ),
        ("UID", object::uid(original), object::uid(&converted)),
    ] {
        if before != after {
            return Err(format!("must have the same {what}: {after} != {before}"));
        }
    }
    let mut metadata = original["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        for field in ["labels", "annotations"] {
            match converted["metadata"].get(field) {
                Some(value) if value.as_object().is_some_and(|map| !map.is_empty()) => {
                    metadata.insert(field.to_owned(), value.clone());
                }
                _ => {
                    metadata.remove(field);
                }
            }
        }
    }
    converted["metadata"] = metadata;
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widget(version: &str, metadata: &Value) -> Value {
        json!({"apiVersion": version, "kind": "Widget", "metadata": metadata})
    }

    #[test]
    fn a_webhook_may_change_labels_but_not_who_an_object_is() {
        let before = widget(
            "g/v1",
            &json!({"name": "a", "uid": "u", "finalizers": ["x/y"]}),
        );
        let after = widget(
            "g/v2",
            &json!({"name": "a", "uid": "u", "labels": {"l": "1"}, "finalizers": []}),
        );
        let settled = settle(&before, after, "g/v2").unwrap();
        assert_eq!(
            settled["metadata"],
            json!({"name": "a", "uid": "u", "finalizers": ["x/y"], "labels": {"l": "1"}})
        );
        let other = widget("g/v2", &json!({"name": "b", "uid": "u"}));
        assert_eq!(
            settle(&before, other, "g/v2").unwrap_err(),
            "must have the same name: b != a"
        );
    }

    #[test]
    fn a_failed_conversion_says_what_the_webhook_said() {
        let review = |result: Value| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "response": {"uid": "u", "result": result}})
        };
        let read = |result| read(&review(result), "u", "apiextensions.k8s.io/v1");
        assert_eq!(
            read(json!({"status": "Failure", "message": "no such field"})).unwrap_err(),
            "no such field"
        );
        assert_eq!(
            read(json!({})).unwrap_err(),
            "response.result.status was '', not 'Success'"
        );
        assert_eq!(read(json!({"status": "Success"})), Ok(Vec::new()));
    }
}
