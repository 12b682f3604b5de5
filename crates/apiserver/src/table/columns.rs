//! Column definitions, written as one line: `Name|Ready|Desired#|Default?|Node+|Created At@`.
//!
//! `#` is an integer, `?` a boolean, `@` a date, `+` a column only for wide output.

use serde_json::{Value, json};

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) format: String,
    pub(super) description: String,
    pub(super) priority: i64,
}

impl Column {
    /// The column that every table begins with.
    pub(super) fn name() -> Self {
        Self {
            name: "Name".into(),
            kind: "string".into(),
            format: "name".into(),
            description: "The object's name.".into(),
            priority: 0,
        }
    }

    pub(super) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

/// Reads a line of columns.
pub(super) fn parse(line: &str) -> Vec<Column> {
    line.split('|').map(column).collect()
}

fn column(text: &str) -> Column {
    if text == "Name" {
        return Column::name();
    }
    let (text, priority) = text.strip_suffix('+').map_or((text, 0), |text| (text, 1));
    let kinds = [('#', "integer"), ('?', "boolean"), ('@', "date")];
    let found = kinds
        .iter()
        .find_map(|(mark, kind)| Some((text.strip_suffix(*mark)?, *kind)));
    let (name, kind) = found.unwrap_or((text, "string"));
    let format = if matches!(name, "Name" | "Attacher") {
        "name"
    } else {
        ""
    };
    Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        description: String::new(),
        priority,
    }
}
