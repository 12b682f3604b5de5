//! Schemas of kinds and of the types they are made of.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Dialect, Kind};
use crate::kinds::{self, Ty, TypeDef};
use crate::schema::ListType;

/// All schemas that `kinds` need.
pub(super) fn all(kinds: &[Kind<'_>], dialect: Dialect) -> Map<String, Value> {
    let mut writer = Writer {
        dialect,
        out: Map::new(),
        pending: BTreeSet::new(),
    };
    for kind in kinds {
        writer.kind(kind);
    }
    while let Some(name) = writer.pending.pop_first() {
        if let Some(definition) = kinds::lookup(name) {
            let schema = writer.definition(definition);
            writer.out.insert(long(name), schema);
        }
    }
    writer.out
}

/// The full name of a built-in type.
fn long(name: &str) -> String {
    for (short, prefix) in [
        ("meta.", "io.k8s.apimachinery.pkg.apis.meta."),
        ("apimachinery.", "io.k8s.apimachinery.pkg."),
        (
            "apiextensions.",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.",
        ),
    ] {
        if let Some(rest) = name.strip_prefix(short) {
            return format!("{prefix}{rest}");
        }
    }
    format!("io.k8s.api.{name}")
}

/// The name of a kind's schema.
pub(super) fn name_of(kind: &Kind<'_>) -> String {
    let built_in = kinds::kind_of(kind.group, kind.version, kind.kind);
    if let (None, Some(definition)) = (kind.schema, built_in) {
        return long(definition.name);
    }
    let mut parts: Vec<&str> = kind.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), kind.version, kind.kind)
}

/// Types that are plain values in JSON but have a name: short name, full name, schema.
fn scalar(ty: &Ty, dialect: Dialect) -> Option<(&'static str, Value)> {
    let either = |kind: &str| match dialect {
        Dialect::V3 => json!({"oneOf": [{"type": kind}, {"type": "string"}]}),
        Dialect::V2 => json!({"type": "string"}),
    };
    Some(match ty {
        Ty::Quantity => {
            let schema = match dialect {
                Dialect::V3 => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
                Dialect::V2 => json!({"type": "string"}),
            };
            ("io.k8s.apimachinery.pkg.api.resource.Quantity", schema)
        }
        Ty::IntOrString => {
            let mut schema = either("integer");
            schema["format"] = json!("int-or-string");
            ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", schema)
        }
        Ty::Time => (
            "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
            json!({"type": "string", "format": "date-time"}),
        ),
        Ty::MicroTime => (
            "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            json!({"type": "string", "format": "date-time"}),
        ),
        _ => return None,
    })
}

struct Writer {
    dialect: Dialect,
    out: Map<String, Value>,
    /// Named types that are referred to and not yet written.
    pending: BTreeSet<&'static str>,
}

impl Writer {
    fn kind(&mut self, kind: &Kind<'_>) {
        let name = name_of(kind);
        match (
            kind.schema,
            kinds::kind_of(kind.group, kind.version, kind.kind),
        ) {
            (None, Some(definition)) => {
                self.pending.insert(definition.name);
            }
            (schema, _) => {
                let schema = self.custom(kind, schema.unwrap_or(&Value::Null));
                self.out.insert(name.clone(), schema);
            }
        }
        if !kind.create_only {
            let list = self.list(kind, &name);
            self.out.insert(format!("{name}List"), list);
        }
    }

    fn custom(&mut self, kind: &Kind<'_>, schema: &Value) -> Value {
        let mut out = if schema.is_object() {
            schema.clone()
        } else {
            json!({"type": "object"})
        };
        self.pending.insert("meta.v1.ObjectMeta");
        let metadata = self.dialect.reference(&long("meta.v1.ObjectMeta"));
        let metadata = match self.dialect {
            Dialect::V2 => metadata,
            Dialect::V3 => {
                json!({"allOf": [metadata], "description": "Standard object's metadata."})
            }
        };
        for (name, words) in [
            (
                "apiVersion",
                "The group and version of this representation of the object.",
            ),
            ("kind", "The kind of the object."),
        ] {
            if out["properties"].get(name).is_none() {
                out["properties"][name] = json!({"type": "string", "description": words});
            }
        }
        out["properties"]["metadata"] = metadata;
        out["x-kubernetes-group-version-kind"] = json!([kind.gvk()]);
        if self.dialect == Dialect::V2 {
            lower(&mut out);
        }
        out
    }

    fn list(&mut self, kind: &Kind<'_>, name: &str) -> Value {
        self.pending.insert("meta.v1.ListMeta");
        let item = self.wrapped(self.dialect.reference(name), true);
        let metadata = self.wrapped(self.dialect.reference(&long("meta.v1.ListMeta")), true);
        json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "items": {"type": "array", "items": item},
                "kind": {"type": "string"},
                "metadata": metadata,
            },
            "x-kubernetes-group-version-kind": [{
                "group": kind.group,
                "version": kind.version,
                "kind": format!("{}List", kind.kind),
            }],
        })
    }

    fn definition(&mut self, definition: &'static TypeDef) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (name, field) in &definition.fields {
            let mut schema = self.ty(&field.ty, field.present);
            if self.dialect == Dialect::V3
                && let Some(default) = &field.default
            {
                schema["default"] = default.clone();
            }
            if let Ty::List(list) = &field.ty {
                match &list.kind {
                    ListType::Atomic => schema["x-kubernetes-list-type"] = json!("atomic"),
                    ListType::Set => schema["x-kubernetes-list-type"] = json!("set"),
                    ListType::Map(keys) => {
                        schema["x-kubernetes-list-type"] = json!("map");
                        schema["x-kubernetes-list-map-keys"] = json!(keys);
                    }
                }
            }
            if let Ty::Map(_, true) = &field.ty {
                schema["x-kubernetes-map-type"] = json!("atomic");
            }
            if let Some(key) = field.merge.key {
                schema["x-kubernetes-patch-merge-key"] = json!(key);
            }
            let strategies: Vec<&str> = [
                (field.merge.lists, "merge"),
                (field.merge.retain, "retainKeys"),
            ]
            .into_iter()
            .filter_map(|(on, name)| on.then_some(name))
            .collect();
            if !strategies.is_empty() {
                schema["x-kubernetes-patch-strategy"] = json!(strategies.join(","));
            }
            if field.required {
                required.push(*name);
            }
            properties.insert((*name).to_owned(), schema);
        }
        let mut out = json!({"type": "object"});
        if !properties.is_empty() {
            out["properties"] = properties.into();
        }
        if !required.is_empty() {
            out["required"] = json!(required);
        }
        if definition.atomic {
            out["x-kubernetes-map-type"] = json!("atomic");
        }
        if let Some(gvk) = &definition.gvk {
            out["x-kubernetes-group-version-kind"] =
                json!([{"group": gvk.group, "version": gvk.version, "kind": gvk.kind}]);
        }
        out
    }

    /// A reference in the form that may carry more beside it.
    fn wrapped(&self, reference: Value, present: bool) -> Value {
        match (self.dialect, present) {
            (Dialect::V2, _) => reference,
            (Dialect::V3, true) => json!({"allOf": [reference], "default": {}}),
            (Dialect::V3, false) => json!({"allOf": [reference]}),
        }
    }

    fn ty(&mut self, ty: &'static Ty, present: bool) -> Value {
        if let Some((name, schema)) = scalar(ty, self.dialect) {
            self.out.insert(name.to_owned(), schema);
            return self.wrapped(self.dialect.reference(name), false);
        }
        match ty {
            Ty::String => json!({"type": "string"}),
            Ty::Int32 => json!({"type": "integer", "format": "int32"}),
            Ty::Int64 => json!({"type": "integer", "format": "int64"}),
            Ty::Double => json!({"type": "number", "format": "double"}),
            Ty::Bool => json!({"type": "boolean"}),
            Ty::Bytes => json!({"type": "string", "format": "byte"}),
            Ty::Object => json!({"type": "object"}),
            Ty::Named(name) => {
                if !self.out.contains_key(&long(name)) {
                    self.pending.insert(name);
                }
                self.wrapped(self.dialect.reference(&long(name)), present)
            }
            Ty::List(list) => {
                let item = self.ty(&list.item, matches!(list.item, Ty::Named(_)));
                json!({"type": "array", "items": item})
            }
            Ty::Map(value, _) => {
                let value = self.ty(value, false);
                json!({"type": "object", "additionalProperties": value})
            }
            Ty::Any | Ty::Quantity | Ty::IntOrString | Ty::Time | Ty::MicroTime => json!({}),
        }
    }
}

/// Version 2 knows neither alternatives nor nulls; what it cannot say is left open.
fn lower(schema: &mut Value) {
    let Value::Object(map) = schema else {
        if let Value::Array(items) = schema {
            items.iter_mut().for_each(lower);
        }
        return;
    };
    for name in ["oneOf", "anyOf", "not", "nullable"] {
        map.remove(name);
    }
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
        for name in ["items", "properties", "type"] {
            map.remove(name);
        }
    }
    if map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        map.remove("type");
    }
    map.values_mut().for_each(lower);
}
