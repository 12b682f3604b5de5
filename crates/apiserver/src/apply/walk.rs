//! Walks over typed values: which fields one has, how two differ, merging and removing.

use serde_json::{Map, Value};

use super::element::Element;
use super::set::FieldSet;
use crate::schema::ListType;
use crate::shape::Shape;

/// How a value is walked.
enum Kind {
    /// One value, owned whole.
    Leaf,
    Map,
    List,
}

/// Decides how the present ones of two values are walked; nulls take the form of the other.
fn kind(shape: Shape<'_>, lhs: Option<&Value>, rhs: Option<&Value>) -> Kind {
    let fits = |test: fn(&Value) -> bool| {
        let one = |value: Option<&Value>| value.is_none_or(|v| v.is_null() || test(v));
        let some = |value: Option<&Value>| value.is_some_and(test);
        one(lhs) && one(rhs) && (some(lhs) || some(rhs))
    };
    if fits(Value::is_object) && !shape.is_atomic() {
        Kind::Map
    } else if fits(Value::is_array) && *shape.list() != ListType::Atomic {
        Kind::List
    } else {
        Kind::Leaf
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => true,
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn field_names<'a>(lhs: Option<&'a Value>, rhs: Option<&'a Value>) -> Vec<&'a String> {
    let keys = |value: Option<&'a Value>| value.and_then(Value::as_object).into_iter().flatten();
    let mut names: Vec<_> = keys(lhs).chain(keys(rhs)).map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The fields that a configuration sets.
pub(crate) fn fields_of(shape: Shape<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    collect(shape, value, &mut Vec::new(), &mut set);
    set
}

fn collect(shape: Shape<'_>, value: &Value, path: &mut Vec<Element>, set: &mut FieldSet) {
    match (kind(shape, Some(value), None), value) {
        (Kind::Map, Value::Object(map)) => {
            for (name, child) in map {
                path.push(Element::field(name));
                collect(shape.field(name), child, path, set);
                let empty = child.is_null() || child.as_object().is_some_and(Map::is_empty);
                if empty || !shape.declares(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        (Kind::List, Value::Array(items)) => {
            for item in items {
                let Ok(element) = Element::of_item(shape, item) else {
                    continue;
                };
                path.push(element);
                collect(shape.item(), item, path, set);
                set.insert(path);
                path.pop();
            }
        }
        _ => set.insert(path),
    }
}

/// How one value differs from another.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

/// Compares two objects.
pub(crate) fn compare(shape: Shape<'_>, lhs: &Value, rhs: &Value) -> Comparison {
    let mut out = Comparison::default();
    diff(shape, Some(lhs), Some(rhs), &mut Vec::new(), &mut out);
    out
}

fn diff(
    shape: Shape<'_>,
    lhs: Option<&Value>,
    rhs: Option<&Value>,
    path: &mut Vec<Element>,
    out: &mut Comparison,
) {
    let kind = match kind(shape, lhs, rhs) {
        // What is empty on both sides is a leaf, so that empty and missing stay different.
        Kind::Map | Kind::List if is_empty(lhs) && is_empty(rhs) => Kind::Leaf,
        kind => kind,
    };
    match kind {
        Kind::Leaf => match (lhs, rhs) {
            (None, Some(_)) => out.added.insert(path),
            (Some(_), None) => out.removed.insert(path),
            (Some(lhs), Some(rhs)) if lhs != rhs => out.modified.insert(path),
            _ => {}
        },
        Kind::Map => {
            for name in field_names(lhs, rhs) {
                let side = |value: Option<&'_ Value>| value.and_then(|v| v.get(name)).cloned();
                let (left, right) = (side(lhs), side(rhs));
                path.push(Element::field(name));
                diff(shape.field(name), left.as_ref(), right.as_ref(), path, out);
                path.pop();
            }
            diff_container(lhs, rhs, path, out);
        }
        Kind::List => {
            let (left, right) = (index(shape, items(lhs)), index(shape, items(rhs)));
            let mut elements: Vec<_> = left.iter().chain(&right).map(|(e, _)| e).collect();
            elements.sort_unstable();
            elements.dedup();
            for element in elements {
                let side = |list: &[(Element, &Value)]| {
                    list.iter()
                        .find(|(e, _)| e == element)
                        .map(|(_, v)| (*v).clone())
                };
                path.push(element.clone());
                diff(
                    shape.item(),
                    side(&left).as_ref(),
                    side(&right).as_ref(),
                    path,
                    out,
                );
                path.pop();
            }
            diff_container(lhs, rhs, path, out);
        }
    }
}

fn diff_container(
    lhs: Option<&Value>,
    rhs: Option<&Value>,
    path: &[Element],
    out: &mut Comparison,
) {
    match (lhs, rhs) {
        (None, Some(_)) => out.added.insert(path),
        (Some(_), None) => out.removed.insert(path),
        _ => {}
    }
}

fn index<'a>(shape: Shape<'_>, items: &'a [Value]) -> Vec<(Element, &'a Value)> {
    items
        .iter()
        .filter_map(|item| Some((Element::of_item(shape, item).ok()?, item)))
        .collect()
}

/// Merges `rhs` into `lhs`: what `rhs` sets wins, what it does not mention stays.
pub(crate) fn merge(shape: Shape<'_>, lhs: &Value, rhs: &Value) -> Value {
    join(shape, Some(lhs), Some(rhs)).unwrap_or_else(|| Value::Object(Map::new()))
}

fn join(shape: Shape<'_>, lhs: Option<&Value>, rhs: Option<&Value>) -> Option<Value> {
    let kind = match kind(shape, lhs, rhs) {
        Kind::Map | Kind::List if is_empty(lhs) && is_empty(rhs) => Kind::Leaf,
        kind => kind,
    };
    match kind {
        Kind::Leaf => rhs.or(lhs).cloned(),
        Kind::Map => {
            let mut out = Map::new();
            for name in field_names(lhs, rhs) {
                let side = |value: Option<&Value>| value.and_then(|v| v.get(name)).cloned();
                let (left, right) = (side(lhs), side(rhs));
                if let Some(value) = join(shape.field(name), left.as_ref(), right.as_ref()) {
                    out.insert(name.clone(), value);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        Kind::List => {
            let merged = join_lists(shape, items(lhs), items(rhs));
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
    }
}

/// Merges list sets and maps: the order of `rhs` wins, entries only in `lhs` stay where they were.
fn join_lists(shape: Shape<'_>, lhs: &[Value], rhs: &[Value]) -> Vec<Value> {
    let (left, right) = (index(shape, lhs), index(shape, rhs));
    let find = |list: &[(Element, &Value)], element: &Element| {
        list.iter()
            .find(|(e, _)| e == element)
            .map(|(_, v)| (*v).clone())
    };
    let mut shared = right
        .iter()
        .map(|(e, _)| e)
        .filter(|e| left.iter().any(|(l, _)| l == *e))
        .peekable();
    let mut merged: Vec<&Element> = Vec::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some((element, _)), Some((other, _))) = (left.get(l), right.get(r)) {
            if element == other {
                merged.push(other);
                out.extend(join(
                    shape.item(),
                    find(&left, element).as_ref(),
                    find(&right, element).as_ref(),
                ));
                l += 1;
                r += 1;
                shared.next();
                continue;
            }
            // A shared entry that `rhs` has in another place is taken from there.
            let in_right = right.iter().any(|(e, _)| e == element);
            if in_right && shared.peek().is_some_and(|next| *next != element) {
                l += 1;
                continue;
            }
        }
        if let Some((element, value)) = left.get(l) {
            if !right.iter().any(|(e, _)| e == element) {
                out.extend(join(shape.item(), Some(value), None));
                l += 1;
                continue;
            } else if merged.contains(&element) {
                l += 1;
            }
        }
        if let Some((element, _)) = right.get(r) {
            merged.push(element);
            out.extend(join(
                shape.item(),
                find(&left, element).as_ref(),
                find(&right, element).as_ref(),
            ));
            r += 1;
            if shared.peek() == Some(&element) {
                shared.next();
            }
        }
    }
    out
}

/// Removes the fields in `set`, and objects and lists that become empty by that.
pub(crate) fn remove(shape: Shape<'_>, value: &Value, set: &FieldSet) -> Value {
    strip(shape, value, set).unwrap_or_else(|| Value::Object(Map::new()))
}

fn strip(shape: Shape<'_>, value: &Value, set: &FieldSet) -> Option<Value> {
    match (kind(shape, Some(value), None), value) {
        (Kind::Map, Value::Object(map)) => {
            let mut out = Map::new();
            for (name, child) in map {
                let element = Element::field(name);
                if set.has_member(&element) {
                    continue;
                }
                match set.below(&element) {
                    Some(below) => out
                        .extend(strip(shape.field(name), child, below).map(|v| (name.clone(), v))),
                    None => {
                        out.insert(name.clone(), child.clone());
                    }
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        (Kind::List, Value::Array(items)) => {
            let mut out = Vec::new();
            for item in items {
                let Ok(element) = Element::of_item(shape, item) else {
                    continue;
                };
                if set.has_member(&element) {
                    continue;
                }
                match set.below(&element) {
                    Some(below) => out.extend(strip(shape.item(), item, below)),
                    None => out.push(item.clone()),
                }
            }
            (!out.is_empty()).then_some(Value::Array(out))
        }
        // Nothing below an atomic value can be removed alone.
        (Kind::Leaf, Value::Object(_) | Value::Array(_)) => None,
        _ => Some(value.clone()),
    }
}

/// Adds the zero values that a Go struct has where JSON may leave them out.
pub(crate) fn complete(shape: Shape<'_>, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, zero) in shape.always_present() {
                map.entry(name).or_insert(zero);
            }
            for (name, child) in map {
                complete(shape.field(name), child);
            }
        }
        Value::Array(items) => {
            for item in items {
                complete(shape.item(), item);
            }
        }
        _ => {}
    }
}
