//! The patches of Kubernetes that are not server-side apply.
//!
//! - [`json`]: RFC 6902, a list of operations;
//! - [`merge`]: RFC 7386, an object whose values replace and whose nulls remove;
//! - [`strategic`]: Kubernetes' own, a merge patch that knows how to merge lists of built-in kinds.

mod list;
mod strategic;

use json_patch::{AddOperation, PatchOperation};
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
    let mut patched = document.clone();
    for operation in patch.0 {
        if is_vacuous(&operation, &patched) {
            continue;
        }
        let operation = json_patch::Patch(vec![lenient(operation, &patched)]);
        json_patch::patch(&mut patched, &operation)
            .map_err(|error| Error::Failed(error.to_string()))?;
    }
    *document = patched;
    Ok(())
}

/// A member that is not there passes for null.
fn is_vacuous(operation: &PatchOperation, document: &Value) -> bool {
    match operation {
        PatchOperation::Test(test) => {
            test.value.is_null() && document.pointer(test.path.as_str()).is_none()
        }
        _ => false,
    }
}

/// Kubernetes lets a patch replace a member that an object does not have.
fn lenient(operation: PatchOperation, document: &Value) -> PatchOperation {
    let PatchOperation::Replace(replace) = operation else {
        return operation;
    };
    let path = replace.path.as_str();
    let parent = path
        .rsplit_once('/')
        .and_then(|(parent, _)| document.pointer(parent));
    if parent.is_some_and(Value::is_object) && document.pointer(path).is_none() {
        return PatchOperation::Add(AddOperation {
            path: replace.path,
            value: replace.value,
        });
    }
    PatchOperation::Replace(replace)
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
    let why = misfit(patch, wanted);
    Error::Malformed(format!("error decoding patch: {why}"))
}

fn misfit(patch: &Value, wanted: &str) -> String {
    let found = match patch {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// Applies a strategic merge patch to an object of a built-in kind. On error `document` is as it was.
pub fn strategic(document: &mut Value, patch: &Value, shape: Shape<'_>) -> Result<(), Error> {
    let (Value::Object(original), Value::Object(patch)) = (&*document, patch) else {
        return Err(Error::Malformed(misfit(patch, "map[string]interface {}")));
    };
    let merged = strategic::merge_map(original.clone(), patch.clone(), shape)?;
    *document = Value::Object(merged);
    Ok(())
}

#[cfg(test)]
mod tests;
