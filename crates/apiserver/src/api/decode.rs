//! Request bodies into JSON values.

pub(super) mod duplicates;

use std::fmt::Write as _;

use serde_json::Value;

use super::context::{Context, FieldValidation};
use crate::{
    object,
    registry::text,
    status::{Result, Status},
};

const OFFERED: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// Reads a JSON, YAML or protobuf body that should be of a kind.
pub(crate) fn body(context: &Context, kind: &str) -> Result<Value> {
    match context.content_type() {
        "application/json" | "" => json(context, kind),
        "application/yaml" => yaml(context, kind),
        "application/vnd.kubernetes.protobuf" => {
            crate::kinds::from_protobuf(&context.body).map_err(Status::bad_request)
        }
        _ => Err(Status::unsupported_media_type(OFFERED)),
    }
}

/// Go's word for the type of a JSON value.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn unrecognized(kind: &str, why: &str, body: &[u8]) -> Status {
    // The beginning of the body: as text when it looks like an object, else in hexadecimal.
    let shown = match body {
        [] => "<empty>".to_owned(),
        [b'{', ..] => {
            let text = String::from_utf8_lossy(body);
            let cut: String = text.chars().take(30).collect();
            if cut.len() < text.len() {
                format!("{cut} ...")
            } else {
                cut
            }
        }
        _ => {
            let hex = body.iter().take(30).fold(String::new(), |mut hex, byte| {
                // Writing to a string does not fail.
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            if body.len() > 30 {
                format!("{hex} ...")
            } else {
                hex
            }
        }
    };
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({shown})"
    ))
}

fn must_be_object(kind: &str, value: &Value, body: &[u8]) -> Result<()> {
    if value.is_object() || value.is_null() {
        return Ok(());
    }
    let why = format!(
        "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        go_type(value)
    );
    Err(unrecognized(kind, &why, body))
}

fn json(context: &Context, kind: &str) -> Result<Value> {
    let bytes = &context.body;
    let (mut value, duplicates) = duplicates::parse(bytes).map_err(|error| {
        let why = if error.is_eof() {
            "unexpected end of JSON input".to_owned()
        } else {
            error.to_string()
        };
        unrecognized(kind, &why, bytes)
    })?;
    must_be_object(kind, &value, bytes)?;
    if value.is_null() {
        value = Value::Object(serde_json::Map::new());
    }
    let validation = context.field_validation()?;
    let (_, version) = object::group_version(text(&value, "apiVersion"));
    report(context, validation, duplicates).map_err(|why| cannot_handle(kind, version, &why))?;
    Ok(value)
}

/// A body that does not fit the kind it should be of.
pub(crate) fn cannot_handle(kind: &str, version: &str, why: &str) -> Status {
    Status::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
    ))
}

fn yaml(context: &Context, kind: &str) -> Result<Value> {
    let text = std::str::from_utf8(&context.body)
        .map_err(|_| Status::bad_request("error converting YAML to JSON: yaml: invalid UTF-8"))?;
    let value: Value = serde_saphyr::from_str(text).map_err(|error| {
        Status::bad_request(format!("error converting YAML to JSON: yaml: {error}"))
    })?;
    must_be_object(kind, &value, &context.body)?;
    Ok(value)
}

/// Warns about faults of fields, such as `unknown field "spec.x"`, or says why they are refused.
pub(crate) fn report(
    context: &Context,
    validation: FieldValidation,
    faults: Vec<String>,
) -> Result<(), String> {
    match validation {
        FieldValidation::Warn => faults.into_iter().for_each(|fault| context.warn(fault)),
        FieldValidation::Strict if !faults.is_empty() => {
            return Err(format!("strict decoding error: {}", faults.join(", ")));
        }
        FieldValidation::Ignore | FieldValidation::Strict => {}
    }
    Ok(())
}
