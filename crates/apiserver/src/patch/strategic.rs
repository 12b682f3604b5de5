//! Strategic merge of objects.

use serde_json::{Map, Value};

use super::Error;
use super::list::{self, merge_list};
use crate::golang;
use crate::shape::Shape;

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

type Object = Map<String, Value>;

/// What `$patch` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Directive {
    Merge,
    Replace,
    Delete,
}

/// Takes the `$patch` directive out of `patch`.
pub(super) fn directive(patch: &mut Object) -> Result<Directive, Error> {
    match patch.remove(DIRECTIVE) {
        None => Ok(Directive::Merge),
        Some(Value::String(text)) => match text.as_str() {
            "merge" => Ok(Directive::Merge),
            "replace" => Ok(Directive::Replace),
            "delete" => Ok(Directive::Delete),
            other => Err(Error::Malformed(format!("unknown patch type: {other}"))),
        },
        Some(other) => Err(Error::Malformed(format!(
            "unknown patch type: {}",
            golang::json(&other)
        ))),
    }
}

/// Merges `patch` into `original`.
pub(super) fn merge_map(
    mut original: Object,
    mut patch: Object,
    shape: Shape<'_>,
) -> Result<Object, Error> {
    match directive(&mut patch)? {
        Directive::Merge => {}
        Directive::Replace => return Ok(patch),
        Directive::Delete => return Ok(Object::new()),
    }
    retain(&mut original, &mut patch)?;
    let ordered: Vec<String> = patch
        .keys()
        .filter_map(|key| key.strip_prefix(ORDER))
        .map(str::to_owned)
        .collect();
    for name in ordered {
        let order = patch.remove(&format!("{ORDER}{name}")).unwrap_or_default();
        let Value::Array(order) = order else {
            return Err(Error::Malformed(format!("{ORDER}{name} must be a list")));
        };
        merge_ordered(&mut original, &mut patch, &name, &order, shape)?;
    }
    for (name, value) in patch {
        if let Some(name) = name.strip_prefix(DELETE_PRIMITIVES) {
            delete_primitives(&mut original, name, value)?;
            continue;
        }
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        let merged = match (original.remove(&name), value) {
            (Some(Value::Object(before)), Value::Object(patch)) => {
                Value::Object(merge_map(before, patch, shape.field(&name))?)
            }
            (Some(Value::Array(before)), Value::Array(patch)) if shape.merge(&name).lists => {
                Value::Array(merge_list(before, patch, shape, &name)?)
            }
            (_, value) => plain(value),
        };
        original.insert(name, merged);
    }
    Ok(original)
}

/// `$retainKeys` names all fields that may stay; the patch may set no others.
fn retain(original: &mut Object, patch: &mut Object) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN) else {
        return Ok(());
    };
    let bad = || {
        Error::Malformed(
            "invalid patch format of retainKeys: the keys in the retainKeys list must be a superset \
             of the fields present in the patch"
                .to_owned(),
        )
    };
    let Value::Array(keys) = keys else {
        return Err(bad());
    };
    let keeps = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    let stray = |(name, value): (&String, &Value)| {
        !value.is_null() && !name.starts_with('$') && !keeps(name)
    };
    if patch.iter().any(stray) {
        return Err(bad());
    }
    original.retain(|name, _| keeps(name));
    Ok(())
}

/// Merges the list called `name` and puts it in the order the patch asks for.
fn merge_ordered(
    original: &mut Object,
    patch: &mut Object,
    name: &str,
    order: &[Value],
    shape: Shape<'_>,
) -> Result<(), Error> {
    let key = shape.merge(name).key;
    let before = match original.remove(name) {
        Some(Value::Array(items)) => Some(items),
        _ => None,
    };
    let server = before.clone().unwrap_or_default();
    let merged = match (before, patch.remove(name)) {
        (Some(before), Some(Value::Array(patch))) => merge_list(before, patch, shape, name)?,
        (None, Some(Value::Array(patch))) => patch.into_iter().filter_map(plain_item).collect(),
        (Some(before), _) => before,
        (None, _) => return Ok(()),
    };
    original.insert(
        name.to_owned(),
        Value::Array(list::in_order(merged, order, &server, key)),
    );
    Ok(())
}

fn delete_primitives(original: &mut Object, name: &str, values: Value) -> Result<(), Error> {
    let Value::Array(values) = values else {
        return Err(Error::Malformed(format!(
            "{DELETE_PRIMITIVES}{name} must be a list"
        )));
    };
    if let Some(Value::Array(items)) = original.get_mut(name) {
        items.retain(|item| !values.contains(item));
    }
    Ok(())
}

/// A value that meets nothing in the original: without directives and without nulls.
pub(super) fn plain(value: Value) -> Value {
    match value {
        // What only says how to merge has nothing to merge with.
        Value::Object(map) if map.contains_key(DIRECTIVE) => Value::Object(Object::new()),
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
                .map(|(name, value)| (name, plain(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().filter_map(plain_item).collect()),
        other => other,
    }
}

/// An entry that meets nothing in the original; none when it only asks for a deletion.
pub(super) fn plain_item(item: Value) -> Option<Value> {
    item.get(DIRECTIVE).is_none().then(|| plain(item))
}
