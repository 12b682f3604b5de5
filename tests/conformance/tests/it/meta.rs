//! Metadata: names, labels, finalizers, owners, managers, generation.

use conformance::case;
use serde_json::json;

use crate::fixtures::{cm, deployment};

case!(names_are_checked, async |s| {
    for name in [
        "Upper",
        "under_score",
        "-dash",
        "a..b",
        "with space",
        "ü",
        "",
    ] {
        s.post(
            &format!("config map {name:?}"),
            &s.cms(),
            &cm(name, &json!({})),
        )
        .await;
    }
    s.post("too long", &s.cms(), &cm(&"a".repeat(254), &json!({})))
        .await;
    for name in ["a.b", "1a", "A"] {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        s.post(
            &format!("namespace {name}"),
            "/api/v1/namespaces?dryRun=All",
            &body,
        )
        .await;
        let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}]}});
        s.post(
            &format!("service {name}"),
            &format!("{}?dryRun=All", s.core("services")),
            &body,
        )
        .await;
    }
});

case!(labels_and_annotations_are_checked, async |s| {
    for (what, labels) in [
        ("bad key", json!({"not a key": "x"})),
        ("bad prefix", json!({"Not_DNS/key": "x"})),
        ("bad value", json!({"a": "not a value"})),
        ("long value", json!({"a": "x".repeat(64)})),
        ("two faults", json!({"a": "not a value", "not a key": "x"})),
    ] {
        let mut body = cm("a", &json!({}));
        body["metadata"]["labels"] = labels;
        s.post(what, &s.cms(), &body).await;
    }
    let mut body = cm("a", &json!({}));
    body["metadata"]["annotations"] = json!({"not a key": "x"});
    s.post("bad annotation key", &s.cms(), &body).await;
    body["metadata"]["annotations"] = json!({"a": "x".repeat(262_145)});
    s.post("too much annotation", &s.cms(), &body).await;
});

case!(finalizers_are_checked, async |s| {
    let mut body = cm("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["plain"]);
    s.post("not qualified", &s.cms(), &body).await;
    body["metadata"]["finalizers"] = json!(["Not_DNS/x"]);
    s.post("bad prefix", &s.cms(), &body).await;
    body["metadata"]["finalizers"] = json!(["example.com/x", "example.com/x"]);
    s.post("twice", &s.cms(), &body).await;
});

case!(a_finalizer_holds_an_object, async |s| {
    let mut body = cm("a", &json!({"x": "1"}));
    body["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    s.post("create", &s.cms(), &body).await;
    s.delete("delete", &s.cm("a")).await;
    s.get("still there", &s.cm("a")).await;
    s.delete("delete again", &s.cm("a")).await;
    s.merge(
        "change it meanwhile",
        &s.cm("a"),
        &json!({"data": {"x": "2"}}),
    )
    .await;
    s.merge("add a finalizer", &s.cm("a"), &json!({"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}}))
        .await;
    s.merge(
        "remove one",
        &s.cm("a"),
        &json!({"metadata": {"finalizers": ["example.com/two"]}}),
    )
    .await;
    s.merge(
        "come back to life",
        &s.cm("a"),
        &json!({"metadata": {"deletionTimestamp": null}}),
    )
    .await;
    s.merge(
        "remove the last",
        &s.cm("a"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
    s.get("gone", &s.cm("a")).await;
});

case!(owners_are_checked, async |s| {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "11111111-2222-3333-4444-555555555555"});
    for (what, owners) in [
        (
            "no uid",
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": ""}]),
        ),
        (
            "no name",
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "", "uid": "x"}]),
        ),
        (
            "no kind",
            json!([{"apiVersion": "v1", "kind": "", "name": "o", "uid": "x"}]),
        ),
        (
            "no version",
            json!([{"apiVersion": "", "kind": "ConfigMap", "name": "o", "uid": "x"}]),
        ),
        (
            "an event",
            json!([{"apiVersion": "v1", "kind": "Event", "name": "o", "uid": "x"}]),
        ),
    ] {
        let mut body = cm("a", &json!({}));
        body["metadata"]["ownerReferences"] = owners;
        s.post(what, &format!("{}?dryRun=All", s.cms()), &body)
            .await;
    }
    let mut controller = owner.clone();
    controller["controller"] = json!(true);
    let mut second = controller.clone();
    second["name"] = json!("p");
    let mut body = cm("a", &json!({}));
    body["metadata"]["ownerReferences"] = json!([controller, second]);
    s.post("two controllers", &format!("{}?dryRun=All", s.cms()), &body)
        .await;
    body["metadata"]["ownerReferences"] = json!([owner, owner]);
    s.post("twice the same", &format!("{}?dryRun=All", s.cms()), &body)
        .await;
});

case!(the_servers_fields_cannot_be_changed, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    for (what, patch) in [
        (
            "created",
            json!({"creationTimestamp": "2001-01-01T00:00:00Z"}),
        ),
        (
            "deleted",
            json!({"deletionTimestamp": "2001-01-01T00:00:00Z"}),
        ),
        ("grace", json!({"deletionGracePeriodSeconds": 7})),
        ("generation", json!({"generation": 9})),
        ("self", json!({"selfLink": "/x"})),
        ("namespace", json!({"namespace": "elsewhere"})),
        ("name", json!({"name": "b"})),
        ("generateName", json!({"generateName": "x-"})),
    ] {
        s.merge(what, &s.cm("a"), &json!({"metadata": patch})).await;
    }
});

case!(generation_counts_changes_of_intent, async |s| {
    let path = s.group("apps/v1", "deployments/a");
    s.post(
        "create",
        &s.group("apps/v1", "deployments"),
        &deployment("a"),
    )
    .await;
    s.merge("label", &path, &json!({"metadata": {"labels": {"x": "1"}}}))
        .await;
    s.merge("spec", &path, &json!({"spec": {"replicas": 5}}))
        .await;
    s.merge("same spec", &path, &json!({"spec": {"replicas": 5}}))
        .await;
    s.merge(
        "status",
        &format!("{path}/status"),
        &json!({"status": {"replicas": 1, "observedGeneration": 2}}),
    )
    .await;
    s.merge(
        "annotation",
        &path,
        &json!({"metadata": {"annotations": {"x": "1"}}}),
    )
    .await;
    s.merge(
        "status through the front door",
        &path,
        &json!({"status": {"replicas": 7}}),
    )
    .await;
});

case!(managers_are_recorded, async |s| {
    s.post(
        "create",
        &format!("{}?fieldManager=alice", s.cms()),
        &cm("a", &json!({"x": "1", "y": "1"})),
    )
    .await;
    s.merge(
        "change by another",
        &s.cm("a?fieldManager=bob"),
        &json!({"data": {"x": "2"}}),
    )
    .await;
    s.merge(
        "add by a third",
        &s.cm("a?fieldManager=carol"),
        &json!({"data": {"z": "1"}}),
    )
    .await;
    s.merge(
        "by the user agent",
        &s.cm("a"),
        &json!({"data": {"w": "1"}}),
    )
    .await;
    s.merge(
        "removed by another",
        &s.cm("a?fieldManager=bob"),
        &json!({"data": {"y": null}}),
    )
    .await;
    s.merge(
        "cleared",
        &s.cm("a"),
        &json!({"metadata": {"managedFields": [{}]}}),
    )
    .await;
    s.merge(
        "after clearing",
        &s.cm("a?fieldManager=dave"),
        &json!({"data": {"v": "1"}}),
    )
    .await;
});

case!(manager_names_are_checked, async |s| {
    s.post(
        "too long",
        &format!("{}?fieldManager={}", s.cms(), "x".repeat(129)),
        &cm("a", &json!({})),
    )
    .await;
    s.post(
        "unprintable",
        &format!("{}?fieldManager=a%07b", s.cms()),
        &cm("a", &json!({})),
    )
    .await;
});

case!(managed_fields_of_lists_name_their_keys, async |s| {
    s.post(
        "create",
        &s.group("apps/v1", "deployments"),
        &deployment("a"),
    )
    .await;
    let path = s.group("apps/v1", "deployments/a");
    let patch = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "image": "registry.test/app:2"}, {"name": "side", "image": "registry.test/side:1"}]}}}});
    s.patch(
        "strategic",
        "strategic-merge",
        &format!("{path}?fieldManager=bob"),
        &patch,
    )
    .await;
    s.merge(
        "status",
        &format!("{path}/status?fieldManager=kubelet"),
        &json!({"status": {"replicas": 1,
        "conditions": [{"type": "Available", "status": "True", "reason": "x", "message": "y"}]}}),
    )
    .await;
});
