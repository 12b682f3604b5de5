//! OpenAPI documents of what the server serves.
//!
//! `kubectl explain` reads them to describe kinds, `kubectl apply` and `diff` to learn how lists merge
//! and whether the server checks fields and knows dry runs. Version 3 has one document per group and
//! version with an index over them; version 2 has one document of all, also as protobuf.
//!
//! Built-in kinds come from the table of types and have no descriptions; custom ones bring their own
//! schema, descriptions included.

mod operations;
pub(crate) mod protobuf;
mod schemas;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// A kind that is served.
#[derive(Debug, Clone, Copy)]
pub struct Kind<'a> {
    /// Its group; empty for core.
    pub group: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Its name.
    pub kind: &'a str,
    /// Its name in paths.
    pub plural: &'a str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it has a `status` subresource.
    pub status: bool,
    /// Whether it has a `scale` subresource.
    pub scale: bool,
    /// Whether it can only be created, as reviews are.
    pub create_only: bool,
    /// The `openAPIV3Schema` of a custom kind; none for built-in ones.
    pub schema: Option<&'a Value>,
}

impl Kind<'_> {
    fn prefix(&self) -> String {
        group_path(self.group, self.version)
    }

    fn gvk(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }
}

/// The path of a group and version without its leading slash: `api/v1` or `apis/apps/v1`.
pub fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// Which version of OpenAPI is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// The version 3 document of one group and version, whose kinds are `kinds`.
pub fn v3(kinds: &[Kind<'_>], server_version: &str) -> Value {
    let mut paths = Map::new();
    for kind in kinds {
        paths.extend(operations::paths(kind, Dialect::V3));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": paths,
        "components": {"schemas": schemas::all(kinds, Dialect::V3)},
    })
}

/// The version 2 document of all kinds.
pub fn v2(kinds: &[Kind<'_>], server_version: &str) -> Value {
    let mut paths = Map::new();
    for kind in kinds {
        paths.extend(operations::paths(kind, Dialect::V2));
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": paths,
        "definitions": schemas::all(kinds, Dialect::V2),
    })
}

/// The index of version 3: paths of groups and versions with a digest of their documents, so that
/// clients may keep them.
pub fn index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Value {
    let paths: Map<String, Value> = documents
        .into_iter()
        .map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", digest(document));
            (path.to_owned(), json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// The digest of a document as it appears in the index.
pub fn digest(document: &Value) -> String {
    let bytes = Sha256::digest(document.to_string().as_bytes());
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02X}");
        out
    })
}

#[cfg(test)]
mod tests;
