//! Dry runs do everything but write; field validation says what would be lost.

use conformance::case;
use http::Method;
use serde_json::json;

use crate::fixtures::{cm, define, deployment, widget, widget_crd, widgets};

case!(a_dry_run_changes_nothing, async |s| {
    s.post(
        "create",
        &format!("{}?dryRun=All", s.cms()),
        &cm("a", &json!({"x": "1"})),
    )
    .await;
    s.get("nothing", &s.cm("a")).await;
    s.post("really", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    s.post(
        "already there",
        &format!("{}?dryRun=All", s.cms()),
        &cm("a", &json!({"x": "1"})),
    )
    .await;
    s.put(
        "update",
        &s.cm("a?dryRun=All"),
        &cm("a", &json!({"x": "2"})),
    )
    .await;
    s.merge("patch", &s.cm("a?dryRun=All"), &json!({"data": {"x": "3"}}))
        .await;
    s.apply(
        "apply",
        &s.cm("a?dryRun=All&force=true"),
        "alice",
        &cm("a", &json!({"x": "4"})),
    )
    .await;
    s.apply(
        "apply a new one",
        &s.cm("b?dryRun=All"),
        "alice",
        &cm("b", &json!({"x": "4"})),
    )
    .await;
    s.delete("delete", &s.cm("a?dryRun=All")).await;
    s.delete_with("delete by options", &s.cm("a"), &json!({"dryRun": ["All"]}))
        .await;
    s.delete("delete all", &format!("{}?dryRun=All", s.cms()))
        .await;
    s.get("unchanged", &s.cms()).await;
});

case!(dry_run_knows_one_word, async |s| {
    s.post(
        "unknown",
        &format!("{}?dryRun=Some", s.cms()),
        &cm("a", &json!({})),
    )
    .await;
    s.post(
        "empty",
        &format!("{}?dryRun=", s.cms()),
        &cm("a", &json!({})),
    )
    .await;
    s.delete_with(
        "unknown in options",
        &s.cm("a"),
        &json!({"dryRun": ["Some"]}),
    )
    .await;
});

case!(unknown_fields_of_built_in_kinds, async |s| {
    let mut body = cm("a", &json!({"x": "1"}));
    body["nonsense"] = json!(1);
    body["metadata"]["rubbish"] = json!({"a": 1});
    for mode in ["Strict", "Warn", "Ignore"] {
        s.post(
            mode,
            &format!("{}?fieldValidation={mode}&dryRun=All", s.cms()),
            &body,
        )
        .await;
    }
    s.post("by default", &format!("{}?dryRun=All", s.cms()), &body)
        .await;
    s.post(
        "unknown mode",
        &format!("{}?fieldValidation=Maybe", s.cms()),
        &body,
    )
    .await;
    let mut deep = deployment("a");
    deep["spec"]["template"]["spec"]["containers"][0]["imagePolicy"] = json!("x");
    deep["spec"]["replica"] = json!(1);
    s.post(
        "deep",
        &format!(
            "{}?fieldValidation=Strict",
            s.group("apps/v1", "deployments")
        ),
        &deep,
    )
    .await;
    s.post(
        "deep, warned",
        &format!("{}?dryRun=All", s.group("apps/v1", "deployments")),
        &deep,
    )
    .await;
});

case!(double_fields_are_noticed, async |s| {
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","x":"2"},"data":{"y":"1"}}"#;
    let json = [("content-type", "application/json")];
    for mode in ["Strict", "Warn", "Ignore"] {
        s.send(
            mode,
            Method::POST,
            &format!("{}?fieldValidation={mode}&dryRun=All", s.cms()),
            &json,
            body,
        )
        .await;
    }
});

case!(unknown_fields_in_patches, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    for mode in ["Strict", "Warn", "Ignore"] {
        let path = s.cm(&format!("a?fieldValidation={mode}"));
        s.merge(&format!("merge {mode}"), &path, &json!({"nonsense": 1}))
            .await;
        s.patch(
            &format!("json {mode}"),
            "json",
            &path,
            &json!([{"op": "add", "path": "/nonsense", "value": 1}]),
        )
        .await;
        s.patch(
            &format!("strategic {mode}"),
            "strategic-merge",
            &path,
            &json!({"nonsense": 1}),
        )
        .await;
    }
    s.put(
        "update",
        &s.cm("a?fieldValidation=Strict"),
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "nonsense": 1}),
    )
    .await;
});

case!(unknown_fields_of_custom_kinds, async |s| {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}}});
    define(s, &widget_crd(s, &spec)).await;
    let mut body = widget(
        s,
        "a",
        &json!({"size": 1, "nonsense": true, "list": [{"a": "x", "b": "y"}]}),
    );
    body["rubbish"] = json!(1);
    body["metadata"]["junk"] = json!(1);
    for mode in ["Strict", "Warn", "Ignore"] {
        s.post(
            mode,
            &widgets(s, &format!("?fieldValidation={mode}&dryRun=All")),
            &body,
        )
        .await;
    }
    s.post("create", &widgets(s, ""), &body).await;
    for mode in ["Strict", "Warn"] {
        let path = widgets(s, &format!("/a?fieldValidation={mode}"));
        s.merge(
            &format!("merge {mode}"),
            &path,
            &json!({"spec": {"more": 1}}),
        )
        .await;
        s.apply(
            &format!("apply {mode}"),
            &path,
            "alice",
            &widget(s, "a", &json!({"size": 1, "other": 2})),
        )
        .await;
    }
});
