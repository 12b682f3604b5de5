//! Columns of custom resources.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use super::columns::Column;
use super::jsonpath::JsonPath;
use crate::golang;

/// A column that a CRD declares.
#[derive(Debug)]
pub(super) struct Custom {
    column: Column,
    path: Option<JsonPath>,
}

/// Reads `additionalPrinterColumns`; without any, there is the age.
pub(super) fn parse(columns: &Value) -> Vec<Custom> {
    let columns = columns.as_array().map_or(&[][..], Vec::as_slice);
    if columns.is_empty() {
        let age = Column {
            name: "Age".into(),
            kind: "date".into(),
            format: String::new(),
            description: "The time since the object was created.".into(),
            priority: 0,
        };
        let path = JsonPath::parse(".metadata.creationTimestamp");
        return vec![Custom { column: age, path }];
    }
    columns.iter().map(custom).collect()
}

fn custom(column: &Value) -> Custom {
    let text = |name: &str| column[name].as_str().unwrap_or_default().to_owned();
    let path = text("jsonPath");
    let description = match text("description") {
        empty if empty.is_empty() => {
            format!("Custom resource definition column (in JSONPath format): {path}")
        }
        description => description,
    };
    Custom {
        column: Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: column["priority"].as_i64().unwrap_or_default(),
        },
        path: JsonPath::parse(&path),
    }
}

impl Custom {
    pub(super) fn column(&self) -> Column {
        self.column.clone()
    }

    /// The first value at the column's path, if it has the column's type.
    pub(super) fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let path = self.path.as_ref();
        let found = path.and_then(|path| path.find(object).into_iter().next());
        let Some(value) = found.filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match self.column.kind.as_str() {
            "string" => match value {
                Value::String(text) => text.as_str().into(),
                other => golang::json(other).into(),
            },
            "integer" => match (value.as_i64(), value.as_f64()) {
                (Some(n), _) => n.into(),
                #[expect(clippy::cast_possible_truncation, reason = "as Go converts")]
                (None, Some(f)) => (f as i64).into(),
                _ => Value::Null,
            },
            "number" if value.is_number() => value.clone(),
            "boolean" if value.is_boolean() => value.clone(),
            "date" if value.is_string() => age::since(value, now).into(),
            _ => Value::Null,
        }
    }
}
