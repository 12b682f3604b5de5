//! Field errors with Kubernetes' texts, reasons and causes.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};

use crate::golang;

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The value refers to something that does not exist.
    NotFound,
    /// The value is missing.
    Required,
    /// The value must be unique and is not.
    Duplicate,
    /// The value is malformed.
    Invalid,
    /// The value is not one of those allowed.
    NotSupported,
    /// The value is well formed but not permitted here.
    Forbidden,
    /// The text is too long.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The value has the wrong type.
    TypeInvalid,
    /// The server failed.
    Internal,
}

impl Fault {
    /// The machine-readable reason, as it appears in a `Status` cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::Internal
        )
    }
}

/// One thing wrong with one field of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// What is wrong.
    pub fault: Fault,
    /// The path of the field, such as `spec.containers[0].name`.
    pub field: String,
    /// The offending value, where Kubernetes shows it.
    pub value: Option<Value>,
    /// The explanation; may be empty.
    pub detail: String,
}

/// Marks a value that is shown as it is rather than as JSON.
const RAW: &str = "\u{0}raw:";

impl FieldError {
    fn new(fault: Fault, field: &str, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self {
            fault,
            field: field.to_owned(),
            value,
            detail: detail.into(),
        }
    }

    /// A field that must be set is not.
    pub fn required(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Fault::Required, field, None, detail)
    }

    /// A field has a malformed value.
    pub fn invalid(field: &str, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(Fault::Invalid, field, Some(value.into()), detail)
    }

    /// A field has a malformed value whose rendering is `shown`.
    pub fn invalid_shown(field: &str, shown: &str, detail: impl Into<String>) -> Self {
        Self::new(
            Fault::Invalid,
            field,
            Some(format!("{RAW}{shown}").into()),
            detail,
        )
    }

    /// A field has a malformed value that is too large to show.
    pub fn invalid_unshown(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Fault::Invalid, field, None, detail)
    }

    /// A field has a value of the wrong type.
    pub fn type_invalid(field: &str, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(Fault::TypeInvalid, field, Some(value.into()), detail)
    }

    /// A field has a value outside of those supported.
    pub fn not_supported(
        field: &str,
        value: impl Into<Value>,
        supported: &[impl AsRef<str>],
    ) -> Self {
        let names: Vec<_> = supported
            .iter()
            .map(|name| golang::quote(name.as_ref()))
            .collect();
        let detail = if names.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", names.join(", "))
        };
        Self::new(Fault::NotSupported, field, Some(value.into()), detail)
    }

    /// A field may not be set or changed like this.
    pub fn forbidden(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Fault::Forbidden, field, None, detail)
    }

    /// A value appears twice where it must be unique.
    pub fn duplicate(field: &str, value: impl Into<Value>) -> Self {
        Self::new(Fault::Duplicate, field, Some(value.into()), "")
    }

    /// A value, whose rendering is `shown`, appears twice where it must be unique.
    pub fn duplicate_shown(field: &str, shown: &str) -> Self {
        Self::duplicate(field, format!("{RAW}{shown}"))
    }

    /// A value refers to something that is not there.
    pub fn not_found(field: &str, value: impl Into<Value>) -> Self {
        Self::new(Fault::NotFound, field, Some(value.into()), "")
    }

    /// A text is longer than `limit` bytes.
    pub fn too_long(field: &str, limit: u64) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        Self::new(
            Fault::TooLong,
            field,
            None,
            format!("may not be more than {limit} {unit}"),
        )
    }

    /// A list or map has more than `limit` entries.
    pub fn too_many(field: &str, actual: usize, limit: u64) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        Self::new(
            Fault::TooMany,
            field,
            Some(json!(actual)),
            format!("must have at most {limit} {unit}"),
        )
    }

    /// The server could not judge the field.
    pub fn internal(field: &str, detail: impl Into<String>) -> Self {
        Self::new(Fault::Internal, field, None, detail)
    }

    /// The same error with its field below `parent`.
    #[must_use]
    pub fn under(mut self, parent: &str) -> Self {
        self.field = match self.field.as_str() {
            "" | "<nil>" => parent.to_owned(),
            field if field.starts_with('[') => format!("{parent}{field}"),
            field => format!("{parent}.{field}"),
        };
        self
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &'static str {
        self.fault.reason()
    }

    /// The message without the field's path.
    pub fn body(&self) -> String {
        let mut out = self.fault.text().to_owned();
        if self.fault.shows_value()
            && let Some(value) = &self.value
        {
            out.push_str(": ");
            match value {
                Value::String(s) if s.starts_with(RAW) => out.push_str(&s[RAW.len()..]),
                Value::String(s) => out.push_str(&golang::quote(s)),
                other => out.push_str(&golang::json(other)),
            }
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }

    /// The entry of `details.causes` for this error.
    pub fn cause(&self) -> Value {
        json!({"reason": self.reason(), "message": self.body(), "field": self.field})
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// The message of a `Status` with reason `Invalid`: `Kind.group "name" is invalid: …`.
pub fn invalid_message(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> String {
    let qualified = if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    };
    format!(
        "{qualified} {} is invalid: {}",
        golang::quote(name),
        aggregate(errors)
    )
}

/// Several errors as one text: alone as it is, otherwise `[a, b]` without repetitions.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut seen = BTreeSet::new();
    let texts: Vec<_> = errors
        .iter()
        .map(ToString::to_string)
        .filter(|text| seen.insert(text.clone()))
        .collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_kubernetes_writes_them() {
        let errors = [
            FieldError::invalid("spec.replicas", -1, "must be greater than or equal to 0"),
            FieldError::required("spec.selector", ""),
            FieldError::not_supported("spec.type", "x", &["a", "b"]),
            FieldError::duplicate("spec.ports[1].name", "http"),
            FieldError::too_many("spec.list", 3, 1),
            FieldError::too_long("spec.name", 5),
        ];
        insta::assert_snapshot!(invalid_message("Widget", "example.com", "w", &errors), @r#"Widget.example.com "w" is invalid: [spec.replicas: Invalid value: -1: must be greater than or equal to 0, spec.selector: Required value, spec.type: Unsupported value: "x": supported values: "a", "b", spec.ports[1].name: Duplicate value: "http", spec.list: Too many: 3: must have at most 1 item, spec.name: Too long: may not be more than 5 bytes]"#);
        assert_eq!(
            invalid_message("Pod", "", "p", &errors[1..2]),
            r#"Pod "p" is invalid: spec.selector: Required value"#
        );
    }
}
