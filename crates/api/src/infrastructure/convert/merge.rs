//! Carries a change made in one view of an object over to the whole of it.

use serde_json::{Map, Value};

/// What identifies an item of a list, in the lists of our kinds.
const KEYS: [&str; 5] = ["name", "zone", "net", "type", "disk"];

/// `kept` with the difference between `before` and `after` put on top.
///
/// `before` is the view that `kept` gives, `after` the view as somebody left it. Where the two are equal, `kept` stands.
pub(super) fn onto(
    kept: Option<&Value>,
    before: Option<&Value>,
    after: Option<&Value>,
) -> Option<Value> {
    if before == after {
        return kept.cloned();
    }
    let after = after?;
    match (kept, before, after) {
        (Some(Value::Object(kept)), Some(Value::Object(before)), Value::Object(after)) => {
            Some(Value::Object(objects(kept, before, after)))
        }
        (Some(Value::Array(kept)), Some(Value::Array(before)), Value::Array(after)) => {
            Some(Value::Array(lists(kept, before, after)))
        }
        _ => Some(after.clone()),
    }
}

fn objects(
    kept: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut keys: Vec<_> = kept.keys().chain(after.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .filter_map(|key| {
            Some((
                key.clone(),
                onto(kept.get(key), before.get(key), after.get(key))?,
            ))
        })
        .collect()
}

/// Items are matched by their key; a list without one is taken as it was left.
fn lists(kept: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let Some(key) = KEYS
        .iter()
        .find(|key| [kept, before, after].iter().all(|l| keyed(l, key)))
    else {
        return after.to_vec();
    };
    let find =
        |list: &[Value], item: &Value| list.iter().find(|other| other[key] == item[key]).cloned();
    after
        .iter()
        .filter_map(|item| {
            onto(
                find(kept, item).as_ref(),
                find(before, item).as_ref(),
                Some(item),
            )
        })
        .collect()
}

fn keyed(list: &[Value], key: &str) -> bool {
    let mut seen: Vec<_> = list
        .iter()
        .filter_map(|item| item.get(key)?.as_str())
        .collect();
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    count == list.len() && seen.len() == count
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(kept: &Value, before: &Value, after: &Value) -> Option<Value> {
        onto(Some(kept), Some(before), Some(after))
    }

    #[test]
    fn an_unchanged_view_keeps_everything() {
        let kept = json!({"a": 1, "hidden": true});
        assert_eq!(
            merged(&kept, &json!({"a": 1}), &json!({"a": 1})),
            Some(kept.clone())
        );
    }

    #[test]
    fn a_change_in_the_view_leaves_the_hidden_part() {
        assert_eq!(
            merged(
                &json!({"a": 1, "hidden": true}),
                &json!({"a": 1}),
                &json!({"a": 2, "b": 3})
            ),
            Some(json!({"a": 2, "b": 3, "hidden": true}))
        );
    }

    #[test]
    fn what_was_removed_from_the_view_is_removed() {
        assert_eq!(
            merged(
                &json!({"a": 1, "hidden": true}),
                &json!({"a": 1}),
                &json!({})
            ),
            Some(json!({"hidden": true}))
        );
    }

    #[test]
    fn list_items_are_matched_by_name() {
        assert_eq!(
            merged(
                &json!([{"name": "x", "hidden": 1}, {"name": "y", "hidden": 2}]),
                &json!([{"name": "x"}, {"name": "y"}]),
                &json!([{"name": "y", "a": 1}, {"name": "z"}]),
            ),
            Some(json!([{"name": "y", "a": 1, "hidden": 2}, {"name": "z"}]))
        );
    }
}
