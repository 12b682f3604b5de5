//! Objects as rows for people: what `kubectl get` shows.
//!
//! A server that is asked for `as=Table` answers with columns and cells instead of objects. Custom
//! resources name their columns as JSONPaths; built-in kinds have theirs in Go code, here as a line
//! of column names and a function for the cells ([`kinds`]). Kinds without either show their name and
//! when they were made.

mod age;
mod columns;
mod custom;
mod jsonpath;
mod kinds;
mod pods;
mod storage;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use jsonpath::JsonPath;

use columns::Column;
use custom::Custom;

/// How much of each object a row carries along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the `includeObject` parameter; an error in Kubernetes' words.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be \
                 'Metadata', 'Object', 'None', or empty",
                crate::golang::quote(other)
            )),
        }
    }
}

type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// How the objects of one kind become rows.
#[derive(Debug)]
pub struct Printer {
    columns: Vec<Column>,
    cells: Source,
    is_pod: bool,
}

#[derive(Debug)]
enum Source {
    BuiltIn(Cells),
    Custom(Vec<Custom>),
}

impl Printer {
    /// The printer of a built-in kind, or the plain one where it has none of its own.
    pub fn built_in(group: &str, kind: &str) -> Self {
        let (columns, cells) = kinds::find(group, kind);
        Self {
            columns: columns::parse(columns),
            cells: Source::BuiltIn(cells),
            is_pod: (group, kind) == ("", "Pod"),
        }
    }

    /// The printer of a custom resource with these `additionalPrinterColumns`.
    pub fn custom(columns: &Value) -> Self {
        let custom = custom::parse(columns);
        let names = std::iter::once(Column::name()).chain(custom.iter().map(Custom::column));
        Self {
            columns: names.collect(),
            cells: Source::Custom(custom),
            is_pod: false,
        }
    }

    /// The `columnDefinitions` of a table.
    pub fn definitions(&self) -> Value {
        self.columns.iter().map(Column::definition).collect()
    }

    /// The row of an object at the time `now`.
    pub fn row(&self, object: &Value, include: Include, now: Timestamp) -> Value {
        let cells = match &self.cells {
            Source::BuiltIn(cells) => cells(object, now),
            Source::Custom(columns) => {
                let name = object["metadata"]["name"].clone();
                std::iter::once(name)
                    .chain(columns.iter().map(|c| c.cell(object, now)))
                    .collect()
            }
        };
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        let object = match include {
            Include::None => Value::Null,
            Include::Object => object.clone(),
            Include::Metadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            }),
        };
        let mut row = json!({"cells": cells, "object": object});
        if self.is_pod
            && let Some(condition) = pods::completed(phase)
        {
            row["conditions"] = condition;
        }
        row
    }

    /// A whole table; `metadata` is that of the list.
    pub fn table<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Value>,
        include: Include,
        metadata: &Value,
        now: Timestamp,
    ) -> Value {
        let rows: Vec<Value> = objects
            .into_iter()
            .map(|object| self.row(object, include, now))
            .collect();
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": self.definitions(),
            "rows": rows,
        })
    }
}

#[cfg(test)]
mod tests;
