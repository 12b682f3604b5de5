//! The patches of Kubernetes that are not server-side apply.
//!
//! - [`json`]: RFC 6902, a list of operations;
//! - [`merge`]: RFC 7386, an object whose values replace and whose nulls remove;
//! - [`strategic`]: Kubernetes' own, a merge patch that knows how to merge lists of built-in kinds.

mod list;
mod strategic;

use serde_json::Value;

use crate::shape::Shape;

/// Why a patch was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch itself cannot be understood (400).
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object (422).
    #[error("{0}")]
    Failed(String),
    /// The patch cannot be merged (500, as the real server answers).
    #[error("{0}")]
    Unmergeable(String),
}

/// Applies a JSON patch. On error `document` is as it was.
pub fn json(document: &mut Value, patch: &Value) -> Result<(), Error> {
    if !patch.is_array() {
        return Err(wrong_type(patch, "[]handlers.jsonPatchOp"));
    }
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Error::Failed(format!("cannot understand the patch: {error}")))?;
    json_patch::patch(document, &patch).map_err(|error| Error::Failed(error.to_string()))
}

/// Applies a merge patch.
pub fn merge(document: &mut Value, patch: &Value) -> Result<(), Error> {
    if !patch.is_object() {
        return Err(wrong_type(patch, "map[string]interface {}"));
    }
    json_patch::merge(document, patch);
    Ok(())
}

fn wrong_type(patch: &Value, wanted: &str) -> Error {
    let found = match patch {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Error::Malformed(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

/// Applies a strategic merge patch to an object of a built-in kind. On error `document` is as it was.
pub fn strategic(document: &mut Value, patch: &Value, shape: Shape<'_>) -> Result<(), Error> {
    let (Value::Object(original), Value::Object(patch)) = (&*document, patch) else {
        return Err(wrong_type(patch, "map[string]interface {}"));
    };
    let merged = strategic::merge_map(original.clone(), patch.clone(), shape)?;
    *document = Value::Object(merged);
    Ok(())
}

#[cfg(test)]
mod tests;
