//! What makes a schema structural, and what Kubernetes forbids in one.

use serde_json::Value;

use super::FieldError;

/// Where a node lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// All reasons why `schema` cannot be the schema of a custom resource.
pub(crate) fn check(schema: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // What cannot even be read as a structural schema is not judged as one.
    unsupported(schema, "", &mut errors);
    if errors.is_empty() {
        node(schema, Level::Root, "", &mut errors);
    }
    errors.sort_by_key(ToString::to_string);
    errors
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Value, name: &str) -> bool {
    schema
        .get(name)
        .and_then(Value::as_bool)
        .unwrap_or_default()
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn node(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let at = |name: &str| super::join(path, name);
    let kind = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let int_or_string = flag(schema, "x-kubernetes-int-or-string");
    let preserve = flag(schema, "x-kubernetes-preserve-unknown-fields");

    if kind == "array" && schema.get("items").is_none() {
        errors.push(FieldError::required(&at("items"), "must be specified"));
    }
    if embedded && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(wrong_type(kind, &at("type"), why));
    } else if kind.is_empty() && !int_or_string && !preserve {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&at("type"), why));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(
            &at("type"),
            kind,
            "must be object at the root",
        ));
    }
    if !kind.is_empty() && super::Type::parse(kind).is_none() {
        let kinds = ["array", "boolean", "integer", "number", "object", "string"];
        errors.push(FieldError::not_supported(&at("type"), kind, &kinds));
    }
    if int_or_string && preserve {
        let at = at("x-kubernetes-preserve-unknown-fields");
        let why = "must be false if x-kubernetes-int-or-string is true";
        errors.push(FieldError::invalid(&at, true, why));
    }
    if int_or_string && embedded {
        let at = at("x-kubernetes-embedded-resource");
        let why = "must be false if x-kubernetes-int-or-string is true";
        errors.push(FieldError::invalid(&at, true, why));
    }
    if embedded && !preserve && properties(schema).next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&at("properties"), why));
    }
    if level == Level::Root || embedded {
        type_meta(schema, level, path, errors);
    }
    additional(schema, level, embedded, path, errors);
    unique(schema, path, errors);
    lists(schema, path, errors);
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let at = at("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(&at, false, "must be true or undefined"));
    }
    for (name, sub) in properties(schema) {
        node(
            sub,
            Level::Field,
            &format!("{}[{name}]", at("properties")),
            errors,
        );
    }
    if let Some(sub) = schema.get("items") {
        if sub.is_object() {
            node(sub, Level::Item, &at("items"), errors);
        } else {
            let why = "items must be a schema object and not an array";
            errors.push(FieldError::forbidden(&at("items"), why));
        }
    }
    nested(schema, int_or_string, path, errors);
}

fn wrong_type(kind: &str, at: &str, why: &str) -> FieldError {
    if kind.is_empty() {
        FieldError::required(at, why)
    } else {
        FieldError::invalid(at, kind, why)
    }
}

/// The fields every resource has may be narrowed only a little.
fn type_meta(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let below = |name: &str| format!("{}[{name}]", super::join(path, "properties"));
    for (name, sub) in properties(schema) {
        match name.as_str() {
            "kind" | "apiVersion" if text(sub, "type") != "string" => {
                let at = format!("{}.type", below(name));
                errors.push(FieldError::invalid(
                    &at,
                    text(sub, "type"),
                    "must be string",
                ));
            }
            "metadata" => {
                if text(sub, "type") != "object" {
                    let at = format!("{}.type", below(name));
                    errors.push(FieldError::invalid(
                        &at,
                        text(sub, "type"),
                        "must be object",
                    ));
                }
                let narrow = |key: &str| matches!(key, "name" | "generateName");
                let only_names = properties(sub).all(|(key, _)| narrow(key));
                let plain = sub.as_object().is_none_or(|map| {
                    map.keys()
                        .all(|k| matches!(k.as_str(), "type" | "properties" | "description"))
                });
                if level == Level::Root && !(only_names && plain) {
                    let why = "must not specify anything other than name and generateName, but \
                               metadata is implicitly specified";
                    errors.push(FieldError::forbidden(&below(name), why));
                }
            }
            _ => {}
        }
    }
}

fn additional(
    schema: &Value,
    level: Level,
    embedded: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let at = super::join(path, "additionalProperties");
    let Some(additional) = schema.get("additionalProperties") else {
        return;
    };
    if level == Level::Root {
        errors.push(FieldError::forbidden(&at, "must not be used at the root"));
    }
    if embedded {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(&at, why));
    }
    if properties(schema).next().is_some() && additional != &Value::Bool(true) {
        let why = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&at, why));
    }
    if additional.is_object() {
        node(additional, Level::Field, &at, errors);
    }
}

fn unsupported(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (name, why) in [
        ("definitions", "definitions is not supported"),
        ("dependencies", "dependencies is not supported"),
        ("deprecated", "deprecated is not supported"),
        ("discriminator", "discriminator is not supported"),
        ("id", "id is not supported"),
        ("patternProperties", "patternProperties is not supported"),
        ("readOnly", "readOnly is not supported"),
        ("writeOnly", "writeOnly is not supported"),
        ("xml", "xml is not supported"),
        ("$ref", "$ref is not supported"),
    ] {
        if schema.get(name).is_some() {
            errors.push(FieldError::forbidden(&super::join(path, name), why));
        }
    }
    for (name, sub) in properties(schema) {
        unsupported(
            sub,
            &format!("{}[{name}]", super::join(path, "properties")),
            errors,
        );
    }
    for name in ["items", "additionalProperties", "not"] {
        if let Some(sub) = schema.get(name) {
            unsupported(sub, &super::join(path, name), errors);
        }
    }
}

fn unique(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if flag(schema, "uniqueItems") {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(
            &super::join(path, "uniqueItems"),
            why,
        ));
    }
}

fn lists(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let at = |name: &str| super::join(path, name);
    let kind = text(schema, "type");
    let map_type = text(schema, "x-kubernetes-map-type");
    if !map_type.is_empty() {
        if kind != "object" {
            let why = "must be object if x-kubernetes-map-type is specified";
            errors.push(wrong_type(kind, &at("type"), why));
        }
        if !matches!(map_type, "atomic" | "granular") {
            let at = at("x-kubernetes-map-type");
            errors.push(FieldError::not_supported(
                &at,
                map_type,
                &["atomic", "granular"],
            ));
        }
    }
    let list_type = text(schema, "x-kubernetes-list-type");
    if !list_type.is_empty() {
        if kind != "array" {
            let why = "must be array if x-kubernetes-list-type is specified";
            errors.push(wrong_type(kind, &at("type"), why));
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            let at = at("x-kubernetes-list-type");
            errors.push(FieldError::not_supported(
                &at,
                list_type,
                &["atomic", "set", "map"],
            ));
        }
    }
    let items = schema.get("items").unwrap_or(&Value::Null);
    if list_type == "set" {
        set_items(items, path, errors);
    }
    let keys_at = at("x-kubernetes-list-map-keys");
    let keys = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array);
    let keys: Vec<&str> = keys
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !keys.is_empty() && list_type != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(wrong_type(list_type, &at("x-kubernetes-list-type"), why));
    }
    if list_type != "map" {
        return;
    }
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&keys_at, why));
    }
    if items.is_null() {
        let why = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&at("items"), why));
        return;
    }
    if text(items, "type") != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(
            &at("items.type"),
            text(items, "type"),
            why,
        ));
        return;
    }
    map_keys(schema, items, &keys, path, errors);
}

fn set_items(items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = text(items, "x-kubernetes-list-type");
    match text(items, "type") {
        "array" if !matches!(list_type, "" | "atomic") => {
            let at = super::join(path, "items.x-kubernetes-list-type");
            errors.push(FieldError::invalid(&at, list_type, why));
        }
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => {
            let at = super::join(path, "items.x-kubernetes-map-type");
            errors.push(FieldError::invalid(&at, Value::Null, why));
        }
        _ => {}
    }
}

fn map_keys(
    schema: &Value,
    items: &Value,
    keys: &[&str],
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let keys_at = super::join(path, "x-kubernetes-list-map-keys");
    let shown = schema["x-kubernetes-list-map-keys"].clone();
    let required = items.get("required").and_then(Value::as_array);
    let required: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (i, key) in keys.iter().enumerate() {
        let below = format!("{}[{key}]", super::join(path, "items.properties"));
        match items.get("properties").and_then(|p| p.get(key)) {
            None => {
                let why = "entries must all be names of item properties";
                errors.push(FieldError::invalid(&keys_at, shown.clone(), why));
            }
            Some(sub) => {
                if matches!(text(sub, "type"), "array" | "object") {
                    let why =
                        "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let at = format!("{below}.type");
                    errors.push(FieldError::invalid(&at, text(items, "type"), why));
                }
                if sub.get("default").is_none() && !required.contains(key) {
                    let why = "this property is in x-kubernetes-list-map-keys, so it must have a \
                               default or be a required property";
                    errors.push(FieldError::required(&format!("{below}.default"), why));
                }
                if flag(sub, "nullable") {
                    let why = "this property is in x-kubernetes-list-map-keys, so it cannot be \
                               nullable";
                    errors.push(FieldError::forbidden(&format!("{below}.nullable"), why));
                }
            }
        }
        if keys[..i].contains(key) {
            let why = "must not contain duplicate entries";
            errors.push(FieldError::invalid(&keys_at, shown.clone(), why));
        }
    }
}

/// Below the logical combinations, only values may be narrowed.
fn nested(schema: &Value, int_or_string: bool, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = schema.get(name).and_then(Value::as_array);
        for (i, sub) in list.into_iter().flatten().enumerate() {
            let at = format!("{}[{i}]", super::join(path, name));
            narrowed(sub, int_or_string, &at, errors);
        }
    }
    if let Some(sub) = schema.get("not") {
        narrowed(sub, int_or_string, &super::join(path, "not"), errors);
    }
}

fn narrowed(schema: &Value, int_or_string: bool, path: &str, errors: &mut Vec<FieldError>) {
    let at = |name: &str| super::join(path, name);
    let kind = text(schema, "type");
    // The one idiom that may repeat types: `anyOf` of integer and string.
    let idiom = int_or_string && matches!(kind, "integer" | "string");
    let present = |name: &str| {
        schema
            .get(name)
            .is_some_and(|v| !matches!(v, Value::Null | Value::Bool(false)))
    };
    if !kind.is_empty() && !idiom {
        errors.push(FieldError::forbidden(
            &at("type"),
            "must be empty to be structural",
        ));
    }
    for (name, why) in [
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-embedded-resource",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-int-or-string",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-list-map-keys",
            "must be empty to be structural",
        ),
        (
            "x-kubernetes-list-type",
            "must be undefined to be structural",
        ),
        (
            "x-kubernetes-map-type",
            "must be undefined to be structural",
        ),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        if present(name) {
            errors.push(FieldError::forbidden(&at(name), why));
        }
    }
    for (name, sub) in properties(schema) {
        let below = format!("{}[{name}]", at("properties"));
        if name == "metadata" {
            let why = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(&below, why));
        }
        narrowed(sub, false, &below, errors);
    }
    if let Some(sub) = schema.get("items") {
        narrowed(sub, false, &at("items"), errors);
    }
    nested(schema, int_or_string, path, errors);
}
