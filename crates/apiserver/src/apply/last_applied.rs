//! The annotation in which `kubectl`'s client-side apply keeps what it applied.

use serde_json::Value;

use super::set::FieldSet;
use super::walk;
use crate::shape::Shape;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn annotation(object: &Value) -> Option<&str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(ANNOTATION)?
        .as_str()
}

/// The fields of the last client-side apply that still have the applied value.
pub(super) fn unchanged_fields(
    live: &Value,
    shape: Shape<'_>,
    api_version: &str,
) -> Option<FieldSet> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    let comparison = walk::compare(shape, &applied, live);
    let set = walk::fields_of(shape, &applied);
    Some(
        set.difference(&comparison.modified)
            .difference(&comparison.added)
            .difference(&comparison.removed),
    )
}

/// Where the annotation exists, makes it say what was just applied.
pub(super) fn refresh(live: &Value, patch: &Value, object: &mut Value) {
    if annotation(live).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = patch.clone();
    if let Some(Value::Object(annotations)) = applied.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    let text = format!("{}\n", crate::golang::json(&applied));
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(Value::Object(annotations)) = annotations {
        annotations.insert(ANNOTATION.to_owned(), text.into());
    }
}
