//! Validation of values: types, bounds, required fields and their combinations.
//!
//! Messages and the choice among failed alternatives follow the validator that kube-apiserver uses:
//! of several failed alternatives it reports the one with the most passed checks, so [`Outcome`]
//! counts them.

use serde_json::{Number, Value, json};

use super::FieldError;
use super::format::Format;
use super::node::{Additional, Bounds, ListType, Node, Type, find_by_keys};
use crate::golang;

/// Checks `object` against `root`; what equals `old` at the same place is forgiven.
pub(crate) fn check(root: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if old == Some(object) {
        return Vec::new();
    }
    value(root, object, old, "").errors
}

/// What a check found.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    passed: usize,
}

impl Outcome {
    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Self) {
        for error in other.errors {
            self.add(error);
        }
        self.passed += other.passed;
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

fn value(node: &Node, value: &Value, old: Option<&Value>, path: &str) -> Outcome {
    let mut out = Outcome::default();
    check_type(node, value, path, &mut out);
    if value.is_null() {
        check_enum(&node.bounds, value, path, &mut out);
        return out;
    }
    combinations(&node.bounds, value, path, &mut out);
    match value {
        Value::String(text) => check_string(&node.bounds, text, path, &mut out),
        Value::Number(number) => check_number(node, number, path, &mut out),
        Value::Array(items) => check_array(node, items, old, path, &mut out),
        _ => {}
    }
    check_enum(&node.bounds, value, path, &mut out);
    if let Value::Object(map) = value {
        check_object(node, map, old, path, &mut out);
    }
    out.passed += 1;
    out
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_type(node: &Node, value: &Value, path: &str, out: &mut Outcome) {
    let expected = node.type_name();
    if expected.is_empty() {
        return;
    }
    let fits = match value {
        Value::Null => node.nullable,
        Value::Bool(_) => node.kind == Some(Type::Boolean),
        Value::Number(n) if n.is_f64() => {
            node.kind == Some(Type::Number)
                || n.as_f64().is_some_and(|f| f.fract() == 0.0)
                    && (node.kind == Some(Type::Integer) || node.int_or_string)
        }
        Value::Number(_) => {
            matches!(node.kind, Some(Type::Integer | Type::Number)) || node.int_or_string
        }
        Value::String(_) => node.kind == Some(Type::String) || node.int_or_string,
        Value::Array(_) => node.kind == Some(Type::Array),
        Value::Object(_) => node.kind == Some(Type::Object),
    };
    if fits {
        out.passed += 1;
    } else {
        let found = json_type(value);
        let detail = format!(
            "{path} in body must be of type {expected}: {}",
            golang::quote(found)
        );
        out.add(FieldError::type_invalid(path, found, detail));
    }
}

fn check_enum(bounds: &Bounds, value: &Value, path: &str, out: &mut Outcome) {
    if bounds.allowed.is_empty() || bounds.allowed.iter().any(|a| same(a, value)) {
        return;
    }
    let names: Vec<String> = bounds
        .allowed
        .iter()
        .map(|allowed| match allowed {
            Value::String(text) => text.clone(),
            other => golang::json(other),
        })
        .collect();
    out.add(FieldError::not_supported(path, value.clone(), &names));
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn check_string(bounds: &Bounds, text: &str, path: &str, out: &mut Outcome) {
    let length = text.chars().count() as u64;
    if let Some(limit) = bounds.max_length.filter(|limit| length > *limit) {
        out.add(FieldError::too_long(path, limit));
    } else if let Some(limit) = bounds.min_length.filter(|limit| length < *limit) {
        let detail = format!("{path} in body should be at least {limit} chars long");
        out.add(FieldError::invalid(path, text, detail));
    } else if let Some(pattern) = bounds.pattern.as_ref().filter(|p| !p.is_match(text)) {
        let detail = format!("{path} in body should match '{}'", pattern.as_str());
        out.add(FieldError::invalid(path, text, detail));
    }
    if let Some(format) = bounds.format
        && !format.accepts(text)
    {
        let quoted = golang::quote(text);
        let detail = format!("{path} in body must be of type {}: {quoted}", format.name());
        out.add(FieldError::type_invalid(path, text, detail));
    }
    out.passed += 1;
}

fn check_number(node: &Node, number: &Number, path: &str, out: &mut Outcome) {
    let bounds = &node.bounds;
    let as_float = |n: &Number| n.as_f64().unwrap_or_default();
    let shown = |bound: &Number| {
        if number.is_f64() {
            golang::float(as_float(bound))
        } else {
            whole(bound)
        }
    };
    let mut faults = Vec::new();
    let mut fault = |what: &str, bound: &Number| {
        let detail = format!("{path} in body should be {what} {}", shown(bound));
        faults.push(FieldError::invalid(
            path,
            Value::Number(number.clone()),
            detail,
        ));
    };
    if let Some(factor) = &bounds.multiple_of {
        match multiple(number, factor) {
            Multiple::Yes => {}
            Multiple::No => fault("a multiple of", factor),
            Multiple::Senseless(factor) => {
                let text = golang::float(factor);
                let detail =
                    format!("factor MultipleOf declared for {path} must be positive: {text}");
                out.add(FieldError::invalid(
                    path,
                    json!(whole_float(factor)),
                    detail,
                ));
            }
        }
    }
    if let Some(minimum) = &bounds.minimum {
        let (n, limit) = (as_float(number), as_float(minimum));
        match bounds.exclusive_minimum {
            true if n <= limit => fault("greater than", minimum),
            false if n < limit => fault("greater than or equal to", minimum),
            _ => {}
        }
    }
    if let Some(maximum) = &bounds.maximum {
        let (n, limit) = (as_float(number), as_float(maximum));
        match bounds.exclusive_maximum {
            true if n >= limit => fault("less than", maximum),
            false if n > limit => fault("less than or equal to", maximum),
            _ => {}
        }
    }
    for fault in faults {
        out.add(fault);
    }
    let fits = match bounds.format {
        Some(Format::Int32) => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        _ => number.as_i64().is_some(),
    };
    let integral = number
        .as_f64()
        .is_some_and(|f| f.fract() == 0.0 && f.abs() <= 9e18);
    let declared_integer = node.kind == Some(Type::Integer);
    if declared_integer && !fits && !(integral && bounds.format.is_none()) {
        let format = match bounds.format {
            Some(Format::Int32) => "with format int32",
            _ => "(default format)",
        };
        let detail = format!("Checked value must be of type integer {format} in {path}");
        out.add(FieldError::invalid("<nil>", "", detail));
    }
    out.passed += 1;
}

/// Bounds of integers are shown without a fraction.
fn whole(bound: &Number) -> String {
    bound.as_i64().map_or_else(
        || whole_float(bound.as_f64().unwrap_or_default()).to_string(),
        |n| n.to_string(),
    )
}

enum Multiple {
    Yes,
    No,
    /// The factor, as it is used on a value of this type, is not positive.
    Senseless(f64),
}

fn multiple(number: &Number, factor: &Number) -> Multiple {
    let factor = factor.as_f64().unwrap_or_default();
    if let Some(n) = number.as_i64() {
        // Integers are divided by integers, so a fraction is cut off the factor first.
        let factor = whole_float(factor);
        return match factor {
            f if f <= 0 => Multiple::Senseless(f64::from(i32::try_from(f).unwrap_or_default())),
            f if n % f == 0 => Multiple::Yes,
            _ => Multiple::No,
        };
    }
    if factor <= 0.0 {
        return Multiple::Senseless(factor);
    }
    let n = number.as_f64().unwrap_or_default();
    let ratio = if factor < 1.0 {
        1.0 / factor * n
    } else {
        n / factor
    };
    if (ratio - ratio.round()).abs() < 1e-9 {
        Multiple::Yes
    } else {
        Multiple::No
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "Go cuts the fraction off in the same way"
)]
fn whole_float(value: f64) -> i64 {
    value as i64
}

fn check_array(node: &Node, items: &[Value], old: Option<&Value>, path: &str, out: &mut Outcome) {
    let old = old.and_then(Value::as_array);
    if let Some(sub) = &node.items {
        for (i, item) in items.iter().enumerate() {
            let before = correlate(node, item, old.map(Vec::as_slice));
            if before == Some(item) {
                continue;
            }
            out.merge(value(sub, item, before, &format!("{path}[{i}]")));
        }
    }
    let size = items.len() as u64;
    if let Some(limit) = node.bounds.min_items.filter(|limit| size < *limit) {
        let detail = format!("{path} in body should have at least {limit} items");
        out.add(FieldError::invalid(path, size, detail));
    }
    if let Some(limit) = node.bounds.max_items.filter(|limit| size > *limit) {
        out.add(FieldError::too_many(path, items.len(), limit));
    }
    out.passed += 1;
}

/// The entry of the old list that is the same thing as `item`: only list maps can tell.
pub(super) fn correlate<'a>(
    node: &Node,
    item: &Value,
    old: Option<&'a [Value]>,
) -> Option<&'a Value> {
    match &node.list {
        ListType::Map(keys) => find_by_keys(old?, item, keys, node.items.as_deref()),
        _ => None,
    }
}

fn check_object(
    node: &Node,
    map: &serde_json::Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    out: &mut Outcome,
) {
    let size = map.len() as u64;
    if let Some(limit) = node.bounds.min_properties.filter(|limit| size < *limit) {
        let detail = format!("{path} in body should have at least {limit} properties");
        out.add(FieldError::invalid(path, size, detail));
    }
    if let Some(limit) = node.bounds.max_properties.filter(|limit| size > *limit) {
        out.add(FieldError::too_many(path, map.len(), limit));
    }
    for (name, child) in map {
        let sub = match (node.properties.get(name), &node.additional) {
            (Some(property), _) => property,
            (None, Additional::Schema(sub)) => sub,
            _ => continue,
        };
        // Both sides always carry the type of the request, so a change of it cannot be seen.
        let root_type = path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind");
        let before = old.filter(|_| !root_type).and_then(|old| old.get(name));
        if before == Some(child) {
            continue;
        }
        out.merge(value(sub, child, before, &super::join(path, name)));
    }
    for name in &node.bounds.required {
        if !map.contains_key(name) {
            out.add(FieldError::required(&super::join(path, name), ""));
        }
    }
}

fn combinations(bounds: &Bounds, data: &Value, path: &str, out: &mut Outcome) {
    let plain = |text: String| FieldError::invalid("<nil>", "", text);
    let quoted = golang::quote(path);
    if !bounds.any_of.is_empty() {
        let tried: Vec<_> = bounds
            .any_of
            .iter()
            .map(|n| value(n, data, None, path))
            .collect();
        if tried.iter().any(Outcome::is_valid) {
            out.merge(
                tried
                    .into_iter()
                    .find(Outcome::is_valid)
                    .unwrap_or_default(),
            );
        } else {
            out.add(plain(format!(
                "{quoted} must validate at least one schema (anyOf)"
            )));
            if let Some(best) = most_passed(tried) {
                out.merge(best);
            }
        }
    }
    if !bounds.one_of.is_empty() {
        let tried: Vec<_> = bounds
            .one_of
            .iter()
            .map(|n| value(n, data, None, path))
            .collect();
        let valid = tried.iter().filter(|o| o.is_valid()).count();
        match valid {
            1 => out.merge(
                tried
                    .into_iter()
                    .find(Outcome::is_valid)
                    .unwrap_or_default(),
            ),
            0 => {
                out.add(plain(format!(
                    "{quoted} must validate one and only one schema (oneOf). Found none valid"
                )));
                if let Some(best) = most_passed(tried) {
                    out.merge(best);
                }
            }
            many => out.add(plain(format!(
                "{quoted} must validate one and only one schema (oneOf). Found {many} valid \
                 alternatives"
            ))),
        }
    }
    if !bounds.all_of.is_empty() {
        let mut valid = 0;
        for node in &bounds.all_of {
            let outcome = value(node, data, None, path);
            valid += usize::from(outcome.is_valid());
            out.merge(outcome);
        }
        if valid != bounds.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            out.add(plain(format!(
                "{quoted} must validate all the schemas (allOf){none}"
            )));
        }
    }
    if let Some(not) = &bounds.not
        && value(not, data, None, path).is_valid()
    {
        out.add(plain(format!(
            "{quoted} must not validate the schema (not)"
        )));
    }
    out.passed += 1;
}

/// The first of the outcomes with the most passed checks.
fn most_passed(tried: Vec<Outcome>) -> Option<Outcome> {
    tried.into_iter().reduce(|best, next| {
        if next.passed > best.passed {
            next
        } else {
            best
        }
    })
}
