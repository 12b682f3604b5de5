//! Create, read, update, delete, and what is refused.

use conformance::case;
use http::Method;
use serde_json::json;

use crate::fixtures::{cm, pod};

case!(an_object_lives_and_dies, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    s.get("get", &s.cm("a")).await;
    let seen = s.get("get again", &s.cm("a")).await;
    let mut changed = seen.body.clone();
    changed["data"]["x"] = json!("2");
    s.put("update", &s.cm("a"), &changed).await;
    s.get("list", &s.cms()).await;
    s.delete("delete", &s.cm("a")).await;
    s.get("get what is gone", &s.cm("a")).await;
    s.delete("delete what is gone", &s.cm("a")).await;
});

case!(a_name_is_taken_once, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.post("create again", &s.cms(), &cm("a", &json!({}))).await;
});

case!(missing_things_are_not_found, async |s| {
    s.get("object", &s.cm("none")).await;
    s.get("collection", &s.core("nonsenses")).await;
    s.get("group", "/apis/nonsense.test/v1/things").await;
    s.get("version", "/apis/apps/v9/deployments").await;
    s.get("path", "/nonsense").await;
    s.get("subresource", &s.cm("none/status")).await;
    s.get("namespace", "/api/v1/namespaces/no-such-namespace")
        .await;
    s.get(
        "list in a missing namespace",
        "/api/v1/namespaces/no-such-namespace/configmaps",
    )
    .await;
    s.put("update", &s.cm("none"), &cm("none", &json!({})))
        .await;
    s.merge("patch", &s.cm("none"), &json!({"data": {}})).await;
});

case!(a_namespace_must_exist, async |s| {
    s.post(
        "create",
        "/api/v1/namespaces/no-such-namespace/configmaps",
        &cm("a", &json!({})),
    )
    .await;
});

case!(a_body_must_fit_its_path, async |s| {
    s.post(
        "another kind",
        &s.cms(),
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
    )
    .await;
    s.post(
        "another version",
        &s.cms(),
        &json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
    )
    .await;
    s.post("no kind", &s.cms(), &json!({"metadata": {"name": "a"}}))
        .await;
    let mut body = cm("a", &json!({}));
    body["metadata"]["namespace"] = json!("elsewhere");
    s.post("another namespace", &s.cms(), &body).await;
    s.post("create", &s.cms(), &cm("b", &json!({}))).await;
    s.put("another name", &s.cm("b"), &cm("c", &json!({})))
        .await;
    s.put(
        "no name",
        &s.cm("b"),
        &json!({"apiVersion": "v1", "kind": "ConfigMap"}),
    )
    .await;
});

case!(a_body_must_be_readable, async |s| {
    let json = ("content-type", "application/json");
    s.send(
        "broken",
        Method::POST,
        &s.cms(),
        &[json],
        "{\"apiVersion\": ",
    )
    .await;
    s.send("empty", Method::POST, &s.cms(), &[json], "").await;
    s.send("a list", Method::POST, &s.cms(), &[json], "[]")
        .await;
    s.send("a text", Method::POST, &s.cms(), &[json], "\"x\"")
        .await;
    s.post(
        "a wrong type",
        &s.cms(),
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": 1}}),
    )
    .await;
    s.post(
        "a wrong type in metadata",
        &s.cms(),
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": []}}),
    )
    .await;
});

case!(media_types_are_negotiated, async |s| {
    let body = cm("a", &json!({})).to_string();
    s.send(
        "csv in",
        Method::POST,
        &s.cms(),
        &[("content-type", "text/csv")],
        &body,
    )
    .await;
    s.send("none in", Method::POST, &s.cms(), &[], &body).await;
    s.send(
        "csv out",
        Method::GET,
        &s.cms(),
        &[("accept", "text/csv")],
        "",
    )
    .await;
    s.send(
        "anything out",
        Method::GET,
        &s.cm("a"),
        &[("accept", "*/*")],
        "",
    )
    .await;
    s.send(
        "any application out",
        Method::GET,
        &s.cm("a"),
        &[("accept", "application/*")],
        "",
    )
    .await;
    s.send("patch of no type", Method::PATCH, &s.cm("a"), &[], "{}")
        .await;
    s.send(
        "patch of plain json",
        Method::PATCH,
        &s.cm("a"),
        &[("content-type", "application/json")],
        "{}",
    )
    .await;
});

case!(yaml_is_read_and_written, async |s| {
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'yes'\n";
    s.send(
        "in",
        Method::POST,
        &s.cms(),
        &[("content-type", "application/yaml")],
        yaml,
    )
    .await;
    let answer = s
        .raw(
            Method::GET,
            &s.cm("a"),
            &[("accept", "application/yaml")],
            "",
        )
        .await;
    let text = String::from_utf8_lossy(&answer.body);
    s.note(
        "out",
        json!([
            answer.status.as_u16(),
            text.contains("kind: ConfigMap"),
            text.contains("x: \"yes\"")
        ]),
    )
    .await;
});

case!(methods_are_limited, async |s| {
    s.send("post to an object", Method::POST, &s.cm("a"), &[], "{}")
        .await;
    s.send("put to a collection", Method::PUT, &s.cms(), &[], "{}")
        .await;
    s.send("patch to a collection", Method::PATCH, &s.cms(), &[], "{}")
        .await;
    s.send("delete the version", Method::DELETE, "/version", &[], "")
        .await;
});

case!(a_version_guards_an_update, async |s| {
    let first = s
        .post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    let mut body = first.body.clone();
    body["data"]["x"] = json!("2");
    s.put("with the newest version", &s.cm("a"), &body).await;
    body["data"]["x"] = json!("3");
    s.put("with an old version", &s.cm("a"), &body).await;
    s.put(
        "without a version",
        &s.cm("a"),
        &cm("a", &json!({"x": "4"})),
    )
    .await;
    body["metadata"]["resourceVersion"] = json!("nonsense");
    s.put("with nonsense", &s.cm("a"), &body).await;
});

case!(
    an_update_that_changes_nothing_keeps_the_version,
    async |s| {
        let first = s
            .post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
            .await;
        let second = s.put("update", &s.cm("a"), &first.body).await;
        s.note("same version", json!(first.version() == second.version()))
            .await;
        let third = s
            .merge("patch", &s.cm("a"), &json!({"data": {"x": "1"}}))
            .await;
        s.note("still the same", json!(first.version() == third.version()))
            .await;
        let fourth = s
            .merge("real patch", &s.cm("a"), &json!({"data": {"x": "2"}}))
            .await;
        s.note("another", json!(first.version() == fourth.version()))
            .await;
    }
);

case!(a_uid_guards_an_update, async |s| {
    let first = s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    let mut body = first.body.clone();
    body["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    s.put("put with another uid", &s.cm("a"), &body).await;
    s.merge(
        "patch with another uid",
        &s.cm("a"),
        &json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}}),
    )
    .await;
});

case!(versions_and_uids_are_the_servers_to_give, async |s| {
    let mut body = cm("a", &json!({}));
    body["metadata"]["resourceVersion"] = json!("7");
    s.post("create with a version", &s.cms(), &body).await;
    let mut body = cm("b", &json!({}));
    body["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    body["metadata"]["generation"] = json!(77);
    body["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    body["metadata"]["selfLink"] = json!("/x");
    let made = s.post("create with the rest", &s.cms(), &body).await;
    s.note(
        "own uid",
        json!(made.uid() == "11111111-2222-3333-4444-555555555555"),
    )
    .await;
});

case!(a_name_can_be_generated, async |s| {
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}});
    let made = s
        .raw(
            Method::POST,
            &s.cms(),
            &[("content-type", "application/json")],
            &body.to_string(),
        )
        .await;
    let made: serde_json::Value = serde_json::from_slice(&made.body).unwrap();
    let name = made["metadata"]["name"].as_str().unwrap();
    s.note(
        "shape",
        json!([
            name.starts_with("gen-"),
            name.len(),
            made["metadata"]["generateName"]
        ]),
    )
    .await;
    let alphabet = name[4..]
        .chars()
        .all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c));
    s.note("alphabet", json!(alphabet)).await;
    s.post(
        "neither name",
        &s.cms(),
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
    )
    .await;
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "Not_"}});
    let refused = s
        .raw(
            Method::POST,
            &s.cms(),
            &[("content-type", "application/json")],
            &body.to_string(),
        )
        .await;
    s.note("an impossible prefix", json!(refused.status.as_u16()))
        .await;
});

case!(a_deletion_can_be_guarded, async |s| {
    let made = s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.delete_with(
        "another uid",
        &s.cm("a"),
        &json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}),
    )
    .await;
    s.delete_with(
        "another version",
        &s.cm("a"),
        &json!({"preconditions": {"resourceVersion": "1"}}),
    )
    .await;
    s.delete_with(
        "both right",
        &s.cm("a"),
        &json!({"preconditions": {"uid": made.uid(), "resourceVersion": made.version()}}),
    )
    .await;
});

case!(delete_options_are_checked, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({}))).await;
    s.delete_with(
        "unknown propagation",
        &s.cm("a"),
        &json!({"propagationPolicy": "Sideways"}),
    )
    .await;
    s.delete_with(
        "both ways",
        &s.cm("a"),
        &json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
    )
    .await;
    s.delete(
        "unknown propagation in the query",
        &s.cm("a?propagationPolicy=Sideways"),
    )
    .await;
    s.delete_with(
        "another kind",
        &s.cm("a"),
        &json!({"apiVersion": "v1", "kind": "ConfigMap"}),
    )
    .await;
    s.delete_with(
        "named kind",
        &s.cm("a"),
        &json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}),
    )
    .await;
});

case!(a_collection_can_be_deleted, async |s| {
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut body = cm(name, &json!({}));
        body["metadata"]["labels"] = json!({"tier": tier});
        s.post("create", &s.cms(), &body).await;
    }
    s.delete("some", &format!("{}?labelSelector=tier%3Dx", s.cms()))
        .await;
    s.get("what is left", &s.cms()).await;
    s.delete("none", &format!("{}?labelSelector=tier%3Dz", s.cms()))
        .await;
    s.delete("all", &s.cms()).await;
    // The certificate that each namespace has comes back sooner or later.
    let others = format!("{}?fieldSelector=metadata.name!=kube-root-ca.crt", s.cms());
    s.eventually("nothing left", &others, |r| {
        r.body["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
});

case!(config_maps_can_be_immutable, async |s| {
    let mut body = cm("a", &json!({"x": "1"}));
    body["immutable"] = json!(true);
    s.post("create", &s.cms(), &body).await;
    s.merge("change data", &s.cm("a"), &json!({"data": {"x": "2"}}))
        .await;
    s.merge("make it mutable", &s.cm("a"), &json!({"immutable": false}))
        .await;
    s.merge(
        "label it",
        &s.cm("a"),
        &json!({"metadata": {"labels": {"a": "b"}}}),
    )
    .await;
});

case!(config_map_keys_are_checked, async |s| {
    s.post("a bad key", &s.cms(), &cm("a", &json!({"not a key": "1"})))
        .await;
    s.post("dots", &s.cms(), &cm("a", &json!({"..": "1"})))
        .await;
    let mut body = cm("a", &json!({"x": "1"}));
    body["binaryData"] = json!({"x": "AAAA"});
    s.post("twice", &s.cms(), &body).await;
    body["binaryData"] = json!({"y": "not base64!"});
    s.post("bad base64", &s.cms(), &body).await;
});

case!(a_pod_is_deleted_with_grace, async |s| {
    let mut body = pod("a");
    body["spec"]["nodeName"] = json!("node-1");
    s.post("create", &s.core("pods"), &body).await;
    s.delete("delete", &s.core("pods/a")).await;
    s.get("still there", &s.core("pods/a")).await;
    s.delete_with(
        "at once",
        &s.core("pods/a"),
        &json!({"gracePeriodSeconds": 0}),
    )
    .await;
    s.get("gone", &s.core("pods/a")).await;
    s.post("create unbound", &s.core("pods"), &pod("b")).await;
    s.delete("delete unbound", &s.core("pods/b")).await;
    s.get("gone at once", &s.core("pods/b")).await;
    s.delete_with(
        "negative grace",
        &s.core("pods/b"),
        &json!({"gracePeriodSeconds": -1}),
    )
    .await;
});
