//! Strategic merge of lists.

use serde_json::Value;

use super::Error;
use super::strategic::{Directive, directive, merge_map, plain, plain_item};
use crate::golang;
use crate::shape::Shape;

/// Merges the list in field `name` of an object of shape `shape`.
pub(super) fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    shape: Shape<'_>,
    name: &str,
) -> Result<Vec<Value>, Error> {
    let scalar = |list: &[Value]| list.first().is_some_and(|item| !item.is_object());
    if scalar(&original) || scalar(&patch) {
        return Ok(merge_scalars(original, &patch));
    }
    let Some(key) = shape.merge(name).key else {
        return Err(Error::Malformed(format!(
            "cannot merge lists without merge key for {name}"
        )));
    };
    let entry = shape.field(name).item();
    let server = original.clone();
    let mut merged = original;
    let mut sent = Vec::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(mut item) = item else {
            return Err(Error::Malformed(format!(
                "entries of {name} must be objects"
            )));
        };
        match directive(&mut item)? {
            Directive::Merge => sent.push(item),
            Directive::Replace => replace = true,
            Directive::Delete => {
                let value = item
                    .get(key)
                    .cloned()
                    .ok_or_else(|| no_key(&item.into(), key))?;
                merged.retain(|candidate| candidate.get(key) != Some(&value));
            }
        }
    }
    if replace {
        return Ok(sent.into_iter().map(|item| plain(item.into())).collect());
    }
    let order: Vec<Value> = sent.iter().cloned().map(Value::Object).collect();
    for item in sent {
        let Some(value) = item.get(key).cloned() else {
            return Err(no_key(&item.into(), key));
        };
        let found = merged
            .iter_mut()
            .find(|candidate| candidate.get(key) == Some(&value));
        match found {
            Some(Value::Object(before)) => {
                *before = merge_map(std::mem::take(before), item, entry)?;
            }
            _ => merged.extend(plain_item(item.into())),
        }
    }
    Ok(in_order(merged, &order, &server, Some(key)))
}

fn no_key(item: &Value, key: &str) -> Error {
    let item = golang::plain(item);
    Error::Unmergeable(format!(
        "map: {item} does not contain declared merge key: {key}"
    ))
}

fn merge_scalars(original: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    let server = original.clone();
    let mut merged: Vec<Value> = Vec::new();
    for item in original.into_iter().chain(patch.iter().cloned()) {
        if !merged.contains(&item) {
            merged.push(item);
        }
    }
    in_order(merged, patch, &server, None)
}

/// Puts `merged` in the order of `order`; entries it does not name keep their place in `server`.
pub(super) fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    server: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, mut others): (Vec<_>, Vec<_>) = merged
        .into_iter()
        .partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    others.sort_by_key(|item| place(server, item));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut out = Vec::new();
    loop {
        let other_first = match (others.peek(), named.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(named)) => {
                matches!((place(server, other), place(server, named)), (Some(o), Some(n)) if o < n)
            }
        };
        out.extend(if other_first {
            others.next()
        } else {
            named.next()
        });
    }
}
