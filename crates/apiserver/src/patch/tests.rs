use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::kinds::BuiltIn;

fn deployment() -> Shape<'static> {
    BuiltIn::find("apps", "v1", "Deployment").unwrap().shape()
}

fn patched(mut document: Value, patch: &Value) -> Value {
    strategic(&mut document, patch, deployment()).unwrap();
    document
}

fn pod(containers: Value) -> Value {
    let mut out = json!({"spec": {"template": {"spec": {}}}});
    out["spec"]["template"]["spec"]["containers"] = containers;
    out
}

#[test]
fn containers_are_merged_by_name() {
    let before =
        pod(json!([{"name": "a", "image": "a:1", "args": ["x"]}, {"name": "b", "image": "b:1"}]));
    let patch = pod(json!([{"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"}]));
    assert_eq!(
        patched(before, &patch),
        pod(json!([
            {"name": "a", "image": "a:1", "args": ["x"]},
            {"name": "b", "image": "b:2"},
            {"name": "c", "image": "c:1"},
        ]))
    );
}

#[test]
fn directives_delete_and_replace() {
    let before = pod(json!([{"name": "a"}, {"name": "b"}]));
    let delete = pod(json!([{"name": "a", "$patch": "delete"}]));
    assert_eq!(
        patched(before.clone(), &delete),
        pod(json!([{"name": "b"}]))
    );
    let replace = pod(json!([{"$patch": "replace"}, {"name": "c"}]));
    assert_eq!(
        patched(before.clone(), &replace),
        pod(json!([{"name": "c"}]))
    );
    let replace = json!({"spec": {"$patch": "replace", "replicas": 1}});
    assert_eq!(
        patched(before.clone(), &replace),
        json!({"spec": {"replicas": 1}})
    );
    let delete = json!({"spec": {"$patch": "delete"}});
    assert_eq!(patched(before.clone(), &delete), json!({"spec": {}}));
    let mut copy = before.clone();
    let error = strategic(&mut copy, &json!({"spec": {"$patch": "odd"}}), deployment());
    assert_eq!(
        error,
        Err(Error::Malformed("unknown patch type: odd".into()))
    );
    assert_eq!(copy, before);
}

#[test]
fn the_order_of_a_list_can_be_set() {
    let before = pod(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]));
    let patch = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
        "containers": [{"name": "a", "image": "a:2"}],
    }}}});
    assert_eq!(
        patched(before, &patch),
        pod(json!([{"name": "b"}, {"name": "c"}, {"name": "a", "image": "a:2"}]))
    );
}

#[test]
fn retained_keys_drop_the_others() {
    let before =
        json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(
        patched(before.clone(), &patch),
        json!({"spec": {"strategy": {"type": "Recreate"}}})
    );
    let stray = json!({"spec": {"strategy": {"$retainKeys": ["x"], "type": "Recreate"}}});
    assert!(strategic(&mut before.clone(), &stray, deployment()).is_err());
}

#[test]
fn lists_of_scalars_merge_or_lose_values() {
    let before = json!({"metadata": {"finalizers": ["a", "b"]}});
    let patch = json!({"metadata": {"finalizers": ["c"]}});
    assert_eq!(
        patched(before.clone(), &patch),
        json!({"metadata": {"finalizers": ["c", "a", "b"]}})
    );
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    assert_eq!(
        patched(before, &patch),
        json!({"metadata": {"finalizers": ["b"]}})
    );
}

#[test]
fn lists_without_a_strategy_are_replaced_and_nulls_remove() {
    let before = pod(json!([{"name": "a", "args": ["x", "y"], "image": "i"}]));
    let patch = pod(json!([{"name": "a", "args": ["z"], "image": null}]));
    assert_eq!(
        patched(before, &patch),
        pod(json!([{"name": "a", "args": ["z"]}]))
    );
}

#[test]
fn an_entry_without_its_key_is_refused() {
    let patch = pod(json!([{"image": "x"}]));
    insta::assert_snapshot!(
        strategic(&mut pod(json!([{"name": "a"}])), &patch, deployment()).unwrap_err(),
        @"map: map[image:x] does not contain declared merge key: name"
    );
}

#[test]
fn a_failed_json_patch_changes_nothing() {
    let mut document = json!({"a": 1});
    let patch =
        json!([{"op": "add", "path": "/b", "value": 1}, {"op": "test", "path": "/a", "value": 2}]);
    assert!(matches!(json(&mut document, &patch), Err(Error::Failed(_))));
    assert_eq!(document, json!({"a": 1}));
    assert!(matches!(
        json(&mut document, &json!([{"op": "fly"}])),
        Err(Error::Failed(_))
    ));
}

fn containers() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[a-e]", "[x-z]", 0..5).prop_map(|map| {
        map.into_iter()
            .map(|(name, image)| json!({"name": name, "image": image}))
            .collect()
    })
}

proptest! {
    #[test]
    fn a_strategic_patch_is_idempotent_and_leaves_no_directive(before in containers(), patch in containers(), drop in "[a-e]") {
        let mut list = patch.as_array().unwrap().clone();
        list.push(json!({"name": drop, "$patch": "delete"}));
        list.retain(|item| item["name"] != json!(drop) || item.get("$patch").is_some());
        let patch = pod(Value::Array(list.clone()));
        let once = patched(pod(before), &patch);
        let twice = patched(once.clone(), &patch);
        prop_assert_eq!(&once, &twice);
        prop_assert!(!once.to_string().contains('$'));
        let merged = once["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        prop_assert!(merged.iter().all(|item| item["name"] != json!(drop)));
        for item in list.iter().filter(|item| item.get("$patch").is_none()) {
            prop_assert!(merged.contains(item));
        }
    }
}
