//! Request bodies into JSON values.

use std::fmt::Write as _;

use serde_json::Value;

use super::context::{Context, FieldValidation};
use crate::status::{Result, Status};

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
    let mut value: Value = serde_json::from_slice(bytes).map_err(|error| {
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
    if validation != FieldValidation::Ignore {
        let duplicates = duplicates::find(bytes);
        report(context, validation, duplicates)?;
    }
    Ok(value)
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

/// Refuses or warns about faults of fields, such as `unknown field "spec.x"`.
pub(crate) fn report(
    context: &Context,
    validation: FieldValidation,
    faults: Vec<String>,
) -> Result<()> {
    match validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            for fault in faults {
                context.warn(fault);
            }
            Ok(())
        }
        FieldValidation::Strict if faults.is_empty() => Ok(()),
        FieldValidation::Strict => Err(Status::bad_request(format!(
            "strict decoding error: {}",
            faults.join(", ")
        ))),
    }
}

/// Finding keys that appear twice in one JSON object; a parsed value no longer shows them.
mod duplicates {
    use std::{cell::RefCell, collections::BTreeSet, fmt};

    use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

    /// `duplicate field "a.b"` for each duplicate.
    pub(super) fn find(bytes: &[u8]) -> Vec<String> {
        let found = RefCell::new(Vec::new());
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let walk = Walk {
            path: String::new(),
            found: &found,
        };
        // The body has been parsed once already; a failure here adds nothing.
        let _ = walk.deserialize(&mut deserializer);
        found.into_inner()
    }

    struct Walk<'a> {
        path: String,
        found: &'a RefCell<Vec<String>>,
    }

    impl<'de> DeserializeSeed<'de> for Walk<'_> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_any(self)
        }
    }

    impl<'de> Visitor<'de> for Walk<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON value")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            let mut seen = BTreeSet::new();
            while let Some(key) = map.next_key::<String>()? {
                let path = if self.path.is_empty() {
                    key.clone()
                } else {
                    format!("{}.{key}", self.path)
                };
                if !seen.insert(key) {
                    self.found
                        .borrow_mut()
                        .push(format!("duplicate field \"{path}\""));
                }
                map.next_value_seed(Walk {
                    path,
                    found: self.found,
                })?;
            }
            Ok(())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
            let mut index = 0;
            while seq
                .next_element_seed(Walk {
                    path: format!("{}[{index}]", self.path),
                    found: self.found,
                })?
                .is_some()
            {
                index += 1;
            }
            Ok(())
        }

        fn visit_bool<E>(self, _: bool) -> Result<(), E> {
            Ok(())
        }

        fn visit_i64<E>(self, _: i64) -> Result<(), E> {
            Ok(())
        }

        fn visit_u64<E>(self, _: u64) -> Result<(), E> {
            Ok(())
        }

        fn visit_f64<E>(self, _: f64) -> Result<(), E> {
            Ok(())
        }

        fn visit_str<E>(self, _: &str) -> Result<(), E> {
            Ok(())
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn duplicates_are_named_with_their_path() {
            assert_eq!(
                super::find(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":null}]}"#),
                [r#"duplicate field "a.b""#, r#"duplicate field "c[0].d""#]
            );
        }
    }
}
