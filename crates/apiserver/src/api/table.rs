//! Objects as rows for people.

use serde_json::{Value, json};

use super::{Api, context::Context, render};
use crate::{
    object,
    registry::Resource,
    status::{Result, Status},
};

impl Api {
    /// The `Table` of some objects.
    pub(crate) fn table(
        &self,
        context: &Context,
        resource: &Resource,
        objects: &[Value],
        revision: u64,
        metadata: Option<&Value>,
    ) -> Result<Value> {
        let include = match context.query.text("includeObject") {
            "" | "Metadata" => Include::Metadata,
            "None" => Include::None,
            "Object" => Include::Object,
            other => {
                return Err(Status::bad_request(format!(
                    "unrecognized includeObject value: \"{other}\""
                )));
            }
        };
        let mut table = Self::table_of(resource, objects, include);
        table["metadata"] = match metadata {
            Some(metadata) => metadata.clone(),
            None => json!({"resourceVersion": revision.to_string()}),
        };
        Ok(table)
    }

    /// The `Table` of one event of a watch; only the first carries the columns.
    pub(crate) fn watch_table(
        &self,
        resource: &Resource,
        object: Value,
        revision: u64,
        headers: bool,
    ) -> Value {
        let mut table = Self::table_of(resource, &[object], Include::Metadata);
        table["metadata"] = json!({"resourceVersion": revision.to_string()});
        if !headers {
            table["columnDefinitions"] = json!([]);
        }
        table
    }

    fn table_of(resource: &Resource, objects: &[Value], include: Include) -> Value {
        let _ = resource;
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                json!({
                    "cells": [object::name(object), object["metadata"]["creationTimestamp"]],
                    "object": match include {
                        Include::None => Value::Null,
                        Include::Metadata => render::metadata_only(object),
                        Include::Object => object.clone(),
                    },
                })
            })
            .collect();
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "columnDefinitions": [
                {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
                {"name": "Created At", "type": "date", "format": "", "description": "", "priority": 0},
            ],
            "rows": rows,
        })
    }
}

#[derive(Debug, Clone, Copy)]
enum Include {
    None,
    Metadata,
    Object,
}
