//! Turns the JSON of a schema into nodes.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::FieldError;
use super::cel::Rule;
use super::format::Format;
use super::node::{Additional, Bounds, ListType, Node, Type};
use super::pattern::Pattern;

/// Compiles `schema`, adding errors of patterns and rules.
pub(crate) fn compile(schema: &Value, errors: &mut Vec<FieldError>) -> Node {
    node(schema, "", errors)
}

fn node(schema: &Value, path: &str, errors: &mut Vec<FieldError>) -> Node {
    let at = |name: &str| super::join(path, name);
    let flag = |name: &str| {
        schema
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    };
    let properties: BTreeMap<_, _> = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, sub)| {
            (
                name.clone(),
                node(sub, &format!("{}[{name}]", at("properties")), errors),
            )
        })
        .collect();
    let additional = match schema.get("additionalProperties") {
        Some(Value::Bool(true)) => Additional::Any,
        Some(sub @ Value::Object(_)) => {
            Additional::Schema(Box::new(node(sub, &at("additionalProperties"), errors)))
        }
        _ => Additional::None,
    };
    let items = schema
        .get("items")
        .map(|sub| Box::new(node(sub, &at("items"), errors)));
    let kind = schema
        .get("type")
        .and_then(Value::as_str)
        .and_then(Type::parse);
    let int_or_string = flag("x-kubernetes-int-or-string");
    let bounds = bounds(schema, kind, int_or_string, path, errors);
    let rules = rules(schema, path, errors);
    let any_rules = !rules.is_empty()
        || properties.values().any(|n| n.any_rules)
        || additional.schema().is_some_and(|n| n.any_rules)
        || items.as_ref().is_some_and(|n| n.any_rules)
        || bounds.all_of.iter().any(|n| n.any_rules);
    Node {
        kind,
        nullable: flag("nullable"),
        int_or_string,
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        list: list_type(schema),
        atomic_map: schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
        properties,
        additional,
        items,
        default: schema.get("default").filter(|d| !d.is_null()).cloned(),
        bounds,
        rules,
        any_rules,
    }
}

fn list_type(schema: &Value) -> ListType {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(schema.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect()
}

fn bounds(
    schema: &Value,
    kind: Option<Type>,
    int_or_string: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Bounds {
    let at = |name: &str| super::join(path, name);
    let flag = |name: &str| {
        schema
            .get(name)
            .and_then(Value::as_bool)
            .unwrap_or_default()
    };
    let size = |name: &str| schema.get(name).and_then(Value::as_u64);
    let number = |name: &str| -> Option<Number> { schema.get(name)?.as_number().cloned() };
    let many = |name: &str, errors: &mut Vec<FieldError>| -> Vec<Node> {
        schema
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(i, sub)| node(sub, &format!("{}[{i}]", at(name)), errors))
            .collect()
    };
    let pattern = schema
        .get("pattern")
        .and_then(Value::as_str)
        .filter(|p| !p.is_empty());
    let pattern = pattern.and_then(|source| match Pattern::new(source) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            errors.push(FieldError::invalid(
                &at("pattern"),
                source,
                format!(
                    "must be a valid regular expression, but isn't: {}",
                    explain(source, &error)
                ),
            ));
            None
        }
    });
    let format = schema.get("format").and_then(Value::as_str);
    Bounds {
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: size("minLength"),
        max_length: size("maxLength"),
        pattern,
        min_items: size("minItems"),
        max_items: size("maxItems"),
        min_properties: size("minProperties"),
        max_properties: size("maxProperties"),
        required: strings(schema.get("required")),
        allowed: schema
            .get("enum")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default(),
        format: format
            .filter(|_| !int_or_string)
            .and_then(|name| Format::parse(name, kind)),
        all_of: many("allOf", errors),
        any_of: many("anyOf", errors),
        one_of: many("oneOf", errors),
        not: schema
            .get("not")
            .map(|sub| Box::new(node(sub, &at("not"), errors))),
    }
}

/// The fault of a pattern, in Go's words where it is the common one.
fn explain(source: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    if text.contains("unclosed group") {
        format!("error parsing regexp: missing closing ): `{source}`")
    } else {
        let last = text.lines().last().unwrap_or_default();
        format!(
            "error parsing regexp: {}: `{source}`",
            last.trim_start_matches("error: ")
        )
    }
}

fn rules(schema: &Value, path: &str, errors: &mut Vec<FieldError>) -> Vec<Rule> {
    let raw = schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array);
    let mut rules = Vec::new();
    for (i, raw) in raw.into_iter().flatten().enumerate() {
        let at = format!("{}[{i}]", super::join(path, "x-kubernetes-validations"));
        match Rule::compile(raw, &at, schema, path.is_empty()) {
            Ok(rule) => rules.push(rule),
            Err(error) => errors.push(error),
        }
    }
    rules
}
