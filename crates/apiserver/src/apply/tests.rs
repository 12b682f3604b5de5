use proptest::prelude::*;
use serde_json::{Value, json};

use super::element::Element;
use super::set::FieldSet;
use super::*;
use crate::kinds::BuiltIn;
use crate::schema::Schema;

fn deployment() -> Shape<'static> {
    BuiltIn::find("apps", "v1", "Deployment").unwrap().shape()
}

fn stamp<'a>(manager: &'a str, time: &'a str) -> Stamp<'a> {
    Stamp {
        manager,
        api_version: "apps/v1",
        subresource: "",
        has_status: true,
        time,
    }
}

const T1: &str = "2026-01-01T00:00:00Z";
const T2: &str = "2026-01-01T00:00:01Z";

fn config(replicas: Option<i64>, containers: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"template": {"spec": {}}},
    });
    object["spec"]["template"]["spec"]["containers"] = containers;
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = json!(replicas);
    }
    object
}

fn owners(object: &Value) -> Vec<(String, String, Value)> {
    object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|e| {
            let text = |name: &str| e[name].as_str().unwrap_or_default().to_owned();
            (text("manager"), text("operation"), e["fieldsV1"].clone())
        })
        .collect()
}

#[test]
fn the_first_apply_creates_and_records() {
    let patch = config(
        Some(2),
        json!([{"name": "a", "image": "a:1", "ports": [{"containerPort": 80}]}]),
    );
    let object = apply(None, &patch, deployment(), &stamp("me", T1), false).unwrap();
    insta::assert_json_snapshot!(object);
}

#[test]
fn a_foreign_field_is_a_conflict_unless_forced_or_equal() {
    let patch = config(Some(2), json!([{"name": "a", "image": "a:1"}]));
    let live = apply(None, &patch, deployment(), &stamp("me", T1), false).unwrap();
    let mine = config(Some(3), json!([{"name": "a", "image": "a:1"}]));
    let error = apply(Some(&live), &mine, deployment(), &stamp("you", T2), false).unwrap_err();
    insta::assert_snapshot!(error, @r#"Apply failed with 1 conflict: conflict with "me": .spec.replicas"#);
    let Error::Conflict { causes, .. } = error else {
        panic!("not a conflict")
    };
    assert_eq!(
        causes,
        [
            json!({"reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".spec.replicas"})
        ]
    );
    let forced = apply(Some(&live), &mine, deployment(), &stamp("you", T2), true).unwrap();
    assert_eq!(forced["spec"]["replicas"], 3);
    insta::assert_json_snapshot!(owners(&forced));
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let mut live = config(Some(2), json!([{"name": "a", "image": "a:1"}]));
    track_update(None, &mut live, deployment(), &stamp("kubectl-create", T1));
    let mine = config(Some(3), json!([{"name": "a", "image": "a:2"}]));
    let error = apply(Some(&live), &mine, deployment(), &stamp("you", T2), false).unwrap_err();
    insta::assert_snapshot!(error);
}

#[test]
fn what_is_no_longer_applied_goes_unless_someone_else_owns_it() {
    let both = config(
        Some(2),
        json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]),
    );
    let live = apply(None, &both, deployment(), &stamp("me", T1), false).unwrap();
    let yours = config(None, json!([{"name": "b", "image": "b:1"}]));
    let live = apply(Some(&live), &yours, deployment(), &stamp("you", T1), false).unwrap();
    let less = config(None, json!([{"name": "a", "image": "a:1"}]));
    let live = apply(Some(&live), &less, deployment(), &stamp("me", T2), false).unwrap();
    assert_eq!(
        live["spec"],
        json!({"template": {"spec": {"containers": [
            {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]}}})
    );
    let nothing = config(None, json!([]));
    let live = apply(
        Some(&live),
        &nothing,
        deployment(),
        &stamp("you", T2),
        false,
    )
    .unwrap();
    let names: Vec<_> = live["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].clone())
        .collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn defaults_inside_an_owned_entry_go_with_it() {
    let patch = config(
        None,
        json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]),
    );
    let mut live = apply(None, &patch, deployment(), &stamp("me", T1), false).unwrap();
    live["spec"]["template"]["spec"]["containers"][1]["imagePullPolicy"] = json!("Always");
    let less = config(None, json!([{"name": "a", "image": "a:1"}]));
    let live = apply(Some(&live), &less, deployment(), &stamp("me", T2), false).unwrap();
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "image": "a:1"}])
    );
}

#[test]
fn a_repeated_apply_changes_nothing_not_even_the_time() {
    let patch = config(Some(2), json!([{"name": "a", "image": "a:1"}]));
    let live = apply(None, &patch, deployment(), &stamp("me", T1), false).unwrap();
    assert_eq!(
        apply(Some(&live), &patch, deployment(), &stamp("me", T2), false).unwrap(),
        live
    );
}

#[test]
fn an_update_owns_what_it_changes_and_takes_it_from_appliers() {
    let patch = config(Some(2), json!([{"name": "a", "image": "a:1"}]));
    let live = apply(None, &patch, deployment(), &stamp("me", T1), false).unwrap();
    let mut new = live.clone();
    new["spec"]["replicas"] = json!(5);
    new["metadata"]["labels"] = json!({"x": "y"});
    track_update(Some(&live), &mut new, deployment(), &stamp("editor", T2));
    insta::assert_json_snapshot!(owners(&new));
    let mut same = new.clone();
    track_update(
        Some(&new),
        &mut same,
        deployment(),
        &stamp("other", "2026-01-01T00:00:09Z"),
    );
    assert_eq!(same, new);
}

#[test]
fn what_go_always_has_is_not_owned() {
    let mut live = config(Some(1), json!([{"name": "a", "image": "a:1"}]));
    track_update(None, &mut live, deployment(), &stamp("me", T1));
    let containers = &live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]
        ["f:containers"];
    assert_eq!(containers.get("."), None);
    assert_eq!(containers["k:{\"name\":\"a\"}"].get("."), Some(&json!({})));
}

#[test]
fn status_is_owned_through_its_own_door() {
    let mut live = config(Some(1), json!([]));
    live["status"] = json!({"replicas": 1});
    track_update(None, &mut live, deployment(), &stamp("me", T1));
    assert!(
        live["metadata"]["managedFields"][0]["fieldsV1"]
            .get("f:status")
            .is_none()
    );
    let mut new = live.clone();
    new["status"]["replicas"] = json!(2);
    let door = Stamp {
        subresource: "status",
        ..stamp("controller", T2)
    };
    track_update(Some(&live), &mut new, deployment(), &door);
    let entry = &new["metadata"]["managedFields"][1];
    assert_eq!(entry["subresource"], "status");
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
    let patch = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                       "status": {"replicas": 3}});
    let error = apply(Some(&new), &patch, deployment(), &door, false).unwrap_err();
    insta::assert_snapshot!(error, @r#"Apply failed with 1 conflict: conflict with "controller" with subresource "status" using apps/v1: .status.replicas"#);
}

#[test]
fn objects_from_before_tracking_belong_to_before_first_apply() {
    let live = config(Some(2), json!([{"name": "a", "image": "a:1"}]));
    let patch = config(Some(3), json!([]));
    let error = apply(Some(&live), &patch, deployment(), &stamp("me", T2), false).unwrap_err();
    insta::assert_snapshot!(error, @r#"Apply failed with 1 conflict: conflict with "before-first-apply" using apps/v1: .spec.replicas"#);
}

#[test]
fn kubectl_may_take_over_what_it_applied_on_the_client() {
    let applied = config(Some(2), json!([{"name": "a", "image": "a:1"}]));
    let mut live = applied.clone();
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": applied.to_string()});
    track_update(
        None,
        &mut live,
        deployment(),
        &stamp("kubectl-client-side-apply", T1),
    );
    let patch = config(Some(3), json!([{"name": "a", "image": "a:1"}]));
    let object = apply(
        Some(&live),
        &patch,
        deployment(),
        &stamp("kubectl", T2),
        false,
    )
    .unwrap();
    assert_eq!(object["spec"]["replicas"], 3);
    let annotation =
        &object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert!(annotation.as_str().unwrap().contains("\"replicas\":3"));
    assert!(
        apply(
            Some(&live),
            &patch,
            deployment(),
            &stamp("other", T2),
            false
        )
        .is_err()
    );
}

#[test]
fn owners_can_be_rewritten_and_forgotten() {
    let mut live = config(Some(2), json!([]));
    track_update(None, &mut live, deployment(), &stamp("a", T1));
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["manager"] = json!("b");
    track_update(Some(&live), &mut new, deployment(), &stamp("a", T2));
    assert_eq!(owners(&new)[0].0, "b");
    let mut kept = live.clone();
    kept["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    track_update(Some(&live), &mut kept, deployment(), &stamp("a", T2));
    assert_eq!(kept, live);
    let mut reset = live.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    track_update(Some(&live), &mut reset, deployment(), &stamp("a", T2));
    assert_eq!(reset["metadata"].get("managedFields"), None);
}

#[test]
fn configurations_that_do_not_fit_are_refused_in_kubernetes_words() {
    let try_apply =
        |patch: Value| apply(None, &patch, deployment(), &stamp("me", T1), false).unwrap_err();
    let mut unknown = config(Some(1), json!([]));
    unknown["spec"]["odd"] = json!(1);
    insta::assert_snapshot!(try_apply(unknown), @"failed to create typed patch object (default/web; apps/v1, Kind=Deployment): .spec.odd: field not declared in schema");
    let twice = config(None, json!([{"name": "a"}, {"name": "a"}]));
    insta::assert_snapshot!(try_apply(twice), @r#"failed to create typed patch object (default/web; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name="a"]"#);
    let mut typed = config(None, json!([]));
    typed["spec"]["replicas"] = json!("x");
    insta::assert_snapshot!(try_apply(typed), @"failed to create typed patch object (default/web; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string");
    let mut owned = config(None, json!([]));
    owned["metadata"]["managedFields"] = json!([]);
    insta::assert_snapshot!(try_apply(owned), @"metadata.managedFields must be nil");
}

#[test]
fn many_updaters_are_merged_into_ancient_changes() {
    let mut live = config(Some(0), json!([]));
    track_update(None, &mut live, deployment(), &stamp("creator", T1));
    for i in 0..12 {
        let mut new = live.clone();
        new["metadata"]["labels"][format!("l{i}")] = json!("x");
        let (name, time) = (format!("m{i:02}"), format!("2026-01-01T00:01:{i:02}Z"));
        track_update(Some(&live), &mut new, deployment(), &stamp(&name, &time));
        live = new;
    }
    let names: Vec<_> = owners(&live).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), 10);
    assert_eq!(names[0], "ancient-changes");
}

fn custom() -> Schema {
    Schema::from_crd(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "number": {"type": "integer"},
        "atomic": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
                "items": {"type": "object", "required": ["key"], "properties": {
                    "key": {"type": "string"}, "a": {"type": "integer"}, "b": {"type": "integer"}}}},
        "free": {"type": "object", "additionalProperties": {"type": "string"}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic",
                  "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
        "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}}))
    .unwrap()
}

#[test]
fn custom_resources_record_containers_too() {
    let schema = custom();
    let mut object = json!({"apiVersion": "apps/v1", "kind": "X", "metadata": {"name": "x", "labels": {"a": "b"}},
        "spec": {"number": 1, "atomic": ["a"], "set": ["s"], "map": [{"key": "k", "a": 1}], "free": {"f": "g"},
                 "whole": {"x": 1}, "raw": {"deep": {"er": [1]}}}});
    track_update(None, &mut object, Shape::custom(&schema), &stamp("me", T1));
    insta::assert_json_snapshot!(owners(&object));
    let applied = apply(
        None,
        &json!({"apiVersion": "apps/v1", "kind": "X", "metadata": {"name": "x"},
        "spec": object["spec"].clone()}),
        Shape::custom(&schema),
        &stamp("me", T1),
        false,
    )
    .unwrap();
    insta::assert_json_snapshot!(owners(&applied));
}

// Empty lists of keyed entries are left out: they are fields that nobody can own.
prop_compose! {
    fn arbitrary_spec()(
        number in proptest::option::of(0..3i64),
        atomic in proptest::option::of(proptest::collection::vec("[a-c]", 0..3)),
        set in proptest::option::of(proptest::collection::btree_set("[a-d]", 1..4)),
        map in proptest::option::of(proptest::collection::btree_map(
            "[a-d]", (proptest::option::of(0..3i64), proptest::option::of(0..3i64)), 1..4)),
        free in proptest::option::of(proptest::collection::btree_map("[a-d]", "[x-z]", 1..3)),
        whole in proptest::option::of(0..3i64),
    ) -> Value {
        let mut spec = serde_json::Map::new();
        let mut put = |name: &str, value: Option<Value>| { spec.extend(value.map(|v| (name.to_owned(), v))); };
        put("number", number.map(Value::from));
        put("atomic", atomic.map(|v| json!(v)));
        put("set", set.map(|v| json!(v)));
        put("map", map.map(|entries| entries.into_iter().map(|(key, (a, b))| {
            let mut item = json!({"key": key});
            if let Some(a) = a { item["a"] = json!(a); }
            if let Some(b) = b { item["b"] = json!(b); }
            item
        }).collect()));
        put("free", free.map(|v| json!(v)));
        put("whole", whole.map(|x| json!({"x": x})));
        json!({"apiVersion": "apps/v1", "kind": "X", "metadata": {"name": "x"}, "spec": spec})
    }
}

fn element() -> impl Strategy<Value = Element> {
    prop_oneof![
        "[a-c]".prop_map(|name| Element::field(&name)),
        "[a-c]".prop_map(|name| Element::decode(&format!("k:{{\"name\":\"{name}\"}}")).unwrap()),
        (0..3u8).prop_map(|n| Element::decode(&format!("v:{n}")).unwrap()),
    ]
}

fn field_set() -> impl Strategy<Value = FieldSet> {
    proptest::collection::vec(proptest::collection::vec(element(), 1..4), 0..8).prop_map(|paths| {
        let paths: Vec<&[Element]> = paths.iter().map(Vec::as_slice).collect();
        FieldSet::of(&paths)
    })
}

proptest! {
    #[test]
    fn sets_obey_their_algebra(a in field_set(), b in field_set(), c in field_set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(a.union(&b).difference(&b), a.difference(&b));
    }

    #[test]
    fn sets_survive_their_notation(a in field_set()) {
        prop_assert_eq!(FieldSet::decode(&a.encode()), Some(a));
    }

    #[test]
    fn applying_twice_is_applying_once(base in arbitrary_spec(), patch in arbitrary_spec()) {
        let schema = custom();
        let shape = Shape::custom(&schema);
        let mut live = base;
        track_update(None, &mut live, shape, &stamp("base", T1));
        let once = apply(Some(&live), &patch, shape, &stamp("me", T1), true).unwrap();
        let twice = apply(Some(&once), &patch, shape, &stamp("me", T2), true).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn what_is_applied_is_there_and_belongs_to_the_applier(base in arbitrary_spec(), patch in arbitrary_spec()) {
        let schema = custom();
        let shape = Shape::custom(&schema);
        let mut live = base;
        track_update(None, &mut live, shape, &stamp("base", T1));
        let object = apply(Some(&live), &patch, shape, &stamp("me", T1), true).unwrap();
        let set = walk::fields_of(shape, &patch);
        let there = walk::fields_of(shape, &without_record(&object)).with_named_fields(shape);
        let mut missing = Vec::new();
        set.each(&mut |path| if !there.has(path) { missing.push(render(path)); });
        prop_assert!(missing.is_empty(), "{:?}", missing);
    }

    #[test]
    fn an_applier_that_applies_nothing_leaves_nothing_behind(first in arbitrary_spec(), second in arbitrary_spec()) {
        let schema = custom();
        let shape = Shape::custom(&schema);
        let nothing = json!({"apiVersion": "apps/v1", "kind": "X", "metadata": {"name": "x"}});
        let alone = apply(None, &first, shape, &stamp("a", T1), false).unwrap();
        let both = apply(Some(&alone), &second, shape, &stamp("b", T1), true).unwrap();
        let left = apply(Some(&both), &nothing, shape, &stamp("b", T2), false).unwrap();
        let mut unowned = Vec::new();
        let managed = Managed::decode(left.pointer("/metadata/managedFields")).unwrap();
        prop_assert!(managed.0.keys().all(|m| m.name == "a"));
        let owned = managed.0.values().fold(FieldSet::default(), |all, o| all.union(&o.set));
        let owned = owned.union(&identity()).with_named_fields(shape);
        walk::fields_of(shape, &without_record(&left)).each(&mut |path| {
            let within = (1..=path.len()).any(|n| owned.has(&path[..n]));
            if !within { unowned.push(render(path)); }
        });
        prop_assert!(unowned.is_empty(), "{:?} in {}", unowned, left);
    }

    #[test]
    fn no_conflict_without_a_changed_value(first in arbitrary_spec()) {
        let schema = custom();
        let shape = Shape::custom(&schema);
        let live = apply(None, &first, shape, &stamp("a", T1), false).unwrap();
        prop_assert!(apply(Some(&live), &first, shape, &stamp("b", T2), false).is_ok());
    }
}
