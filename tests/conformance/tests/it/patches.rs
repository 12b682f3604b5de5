//! JSON patch, merge patch and strategic merge patch.

use conformance::case;
use serde_json::json;

use crate::fixtures::{cm, deployment, pod};

case!(a_merge_patch_merges, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1", "y": "2"})))
        .await;
    s.merge("change one", &s.cm("a"), &json!({"data": {"x": "9"}}))
        .await;
    s.merge("null removes", &s.cm("a"), &json!({"data": {"y": null}}))
        .await;
    s.merge(
        "null for what is not there",
        &s.cm("a"),
        &json!({"data": {"nothing": null}}),
    )
    .await;
    s.merge("remove a whole member", &s.cm("a"), &json!({"data": null}))
        .await;
    s.merge("empty", &s.cm("a"), &json!({})).await;
    s.merge("not an object", &s.cm("a"), &json!([])).await;
    s.merge("a wrong type", &s.cm("a"), &json!({"data": {"x": 1}}))
        .await;
    s.merge("another kind", &s.cm("a"), &json!({"kind": "Secret"}))
        .await;
    s.merge("another version", &s.cm("a"), &json!({"apiVersion": "v2"}))
        .await;
});

case!(a_patch_can_carry_a_version, async |s| {
    let made = s
        .post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    s.merge(
        "stale",
        &s.cm("a"),
        &json!({"metadata": {"resourceVersion": "1"}, "data": {"x": "2"}}),
    )
    .await;
    s.merge(
        "right",
        &s.cm("a"),
        &json!({"metadata": {"resourceVersion": made.version()}, "data": {"x": "2"}}),
    )
    .await;
    s.merge(
        "now stale",
        &s.cm("a"),
        &json!({"metadata": {"resourceVersion": made.version()}, "data": {"x": "3"}}),
    )
    .await;
});

case!(a_json_patch_does_each_operation, async |s| {
    s.post(
        "create",
        &s.cms(),
        &cm("a", &json!({"x": "1", "y": "2", "a/b": "3", "t~": "4"})),
    )
    .await;
    s.patch(
        "add",
        "json",
        &s.cm("a"),
        &json!([{"op": "add", "path": "/data/z", "value": "3"}]),
    )
    .await;
    s.patch(
        "replace",
        "json",
        &s.cm("a"),
        &json!([{"op": "replace", "path": "/data/x", "value": "9"}]),
    )
    .await;
    s.patch(
        "remove",
        "json",
        &s.cm("a"),
        &json!([{"op": "remove", "path": "/data/y"}]),
    )
    .await;
    s.patch(
        "move",
        "json",
        &s.cm("a"),
        &json!([{"op": "move", "from": "/data/x", "path": "/data/w"}]),
    )
    .await;
    s.patch(
        "copy",
        "json",
        &s.cm("a"),
        &json!([{"op": "copy", "from": "/data/w", "path": "/data/v"}]),
    )
    .await;
    s.patch(
        "test",
        "json",
        &s.cm("a"),
        &json!([{"op": "test", "path": "/data/v", "value": "9"}]),
    )
    .await;
    s.patch(
        "several",
        "json",
        &s.cm("a"),
        &json!([
        {"op": "test", "path": "/data/v", "value": "9"},
        {"op": "add", "path": "/metadata/labels", "value": {}},
        {"op": "add", "path": "/metadata/labels/l", "value": "1"}]),
    )
    .await;
});

case!(a_json_patch_that_does_not_fit_is_refused, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    for (what, patch) in [
        (
            "failed test",
            json!([{"op": "test", "path": "/data/x", "value": "2"}]),
        ),
        (
            "remove nothing",
            json!([{"op": "remove", "path": "/data/none"}]),
        ),
        (
            "replace nothing",
            json!([{"op": "replace", "path": "/data/none", "value": "1"}]),
        ),
        (
            "add below nothing",
            json!([{"op": "add", "path": "/metadata/labels/x", "value": "1"}]),
        ),
        (
            "unknown operation",
            json!([{"op": "frobnicate", "path": "/data/x"}]),
        ),
        ("no path", json!([{"op": "add", "value": "1"}])),
        (
            "a wrong result",
            json!([{"op": "add", "path": "/data/x", "value": 1}]),
        ),
        ("an object", json!({"data": {}})),
        ("nothing", json!([])),
    ] {
        s.patch(what, "json", &s.cm("a"), &patch).await;
    }
});

case!(a_strategic_patch_merges_lists_by_key, async |s| {
    let path = s.group("apps/v1", "deployments/a");
    s.post(
        "create",
        &s.group("apps/v1", "deployments"),
        &deployment("a"),
    )
    .await;
    let containers = |list| json!({"spec": {"template": {"spec": {"containers": list}}}});
    s.patch(
        "change one",
        "strategic-merge",
        &path,
        &containers(json!([{"name": "main", "image": "registry.test/app:2"}])),
    )
    .await;
    s.patch(
        "add one",
        "strategic-merge",
        &path,
        &containers(json!([{"name": "side", "image": "registry.test/side:1"}])),
    )
    .await;
    s.patch(
        "env of one",
        "strategic-merge",
        &path,
        &containers(json!([{"name": "main", "env": [{"name": "B", "value": "2"}]}])),
    )
    .await;
    s.patch(
        "remove one env",
        "strategic-merge",
        &path,
        &containers(json!([{"name": "main", "env": [{"name": "A", "$patch": "delete"}]}])),
    )
    .await;
    s.patch(
        "remove one",
        "strategic-merge",
        &path,
        &containers(json!([{"name": "side", "$patch": "delete"}])),
    )
    .await;
    s.patch(
        "replace all",
        "strategic-merge",
        &path,
        &containers(
            json!([{"name": "other", "image": "registry.test/other:1"}, {"$patch": "replace"}]),
        ),
    )
    .await;
    s.patch(
        "no key",
        "strategic-merge",
        &path,
        &containers(json!([{"image": "registry.test/app:3"}])),
    )
    .await;
    s.patch(
        "order",
        "strategic-merge",
        &path,
        &json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "first"}, {"name": "other"}],
        "containers": [{"name": "first", "image": "registry.test/first:1"}]}}}}),
    )
    .await;
});

case!(a_strategic_patch_replaces_and_retains, async |s| {
    let path = s.group("apps/v1", "deployments/a");
    s.post(
        "create",
        &s.group("apps/v1", "deployments"),
        &deployment("a"),
    )
    .await;
    s.patch(
        "retain keys",
        "strategic-merge",
        &path,
        &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
    )
    .await;
    s.patch(
        "replace a map",
        "strategic-merge",
        &path,
        &json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}}),
    )
    .await;
    s.patch(
        "delete a map",
        "strategic-merge",
        &path,
        &json!({"metadata": {"labels": {"$patch": "delete"}}}),
    )
    .await;
    s.patch(
        "null removes",
        "strategic-merge",
        &path,
        &json!({"spec": {"revisionHistoryLimit": null}}),
    )
    .await;
    s.patch(
        "a bad directive",
        "strategic-merge",
        &path,
        &json!({"metadata": {"labels": {"$patch": "nonsense"}}}),
    )
    .await;
});

case!(a_strategic_patch_merges_plain_lists, async |s| {
    let mut body = cm("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    s.post("create", &s.cms(), &body).await;
    s.patch(
        "add",
        "strategic-merge",
        &s.cm("a"),
        &json!({"metadata": {"finalizers": ["example.com/c"]}}),
    )
    .await;
    s.patch(
        "remove",
        "strategic-merge",
        &s.cm("a"),
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}),
    )
    .await;
    s.merge(
        "let go",
        &s.cm("a"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await;
});

case!(a_strategic_patch_knows_the_keys_of_each_list, async |s| {
    s.post(
        "a service",
        &s.core("services"),
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}}),
    )
    .await;
    s.patch(
        "ports by number",
        "strategic-merge",
        &s.core("services/a"),
        &json!({"spec": {"ports": [{"name": "https", "port": 443}, {"name": "web", "port": 80}]}}),
    )
    .await;
    s.post("a pod", &s.core("pods"), &pod("a")).await;
    s.patch("conditions by type", "strategic-merge", &s.core("pods/a/status"),
        &json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]}}))
        .await;
    s.patch(
        "one condition",
        "strategic-merge",
        &s.core("pods/a/status"),
        &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .await;
    s.patch(
        "atomic list",
        "strategic-merge",
        &s.core("pods/a"),
        &json!({"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}),
    )
    .await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"},
        "imagePullSecrets": [{"name": "one"}]});
    s.post("an account", &s.core("serviceaccounts"), &account)
        .await;
    s.patch(
        "pull secrets by name",
        "strategic-merge",
        &s.core("serviceaccounts/a"),
        &json!({"imagePullSecrets": [{"name": "two"}]}),
    )
    .await;
});

case!(what_may_not_change_may_not_be_patched, async |s| {
    s.post("a pod", &s.core("pods"), &pod("a")).await;
    s.patch(
        "image",
        "strategic-merge",
        &s.core("pods/a"),
        &json!({"spec": {"containers": [{"name": "main", "image": "registry.test/app:2"}]}}),
    )
    .await;
    s.patch(
        "node",
        "strategic-merge",
        &s.core("pods/a"),
        &json!({"spec": {"nodeName": "elsewhere"}}),
    )
    .await;
    s.post(
        "a deployment",
        &s.group("apps/v1", "deployments"),
        &deployment("a"),
    )
    .await;
    s.merge(
        "selector",
        &s.group("apps/v1", "deployments/a"),
        &json!({"spec": {"selector": {"matchLabels": {"app": "b"}}}}),
    )
    .await;
    s.post(
        "a secret",
        &s.core("secrets"),
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
    )
    .await;
    s.merge(
        "type",
        &s.core("secrets/a"),
        &json!({"type": "example.com/other"}),
    )
    .await;
});
