//! Server-side apply: who owns what, and who must give way.

use conformance::case;
use http::Method;
use serde_json::json;

use crate::fixtures::{cm, define, deployment, widget, widget_crd, widgets};

case!(apply_creates_and_updates, async |s| {
    s.apply(
        "create",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": "1", "y": "1"})),
    )
    .await;
    s.apply(
        "same again",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": "1", "y": "1"})),
    )
    .await;
    s.apply(
        "change",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": "2", "y": "1"})),
    )
    .await;
    s.apply(
        "leave one out",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": "2"})),
    )
    .await;
    s.apply(
        "leave all out",
        &s.cm("a"),
        "alice",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
    )
    .await;
});

case!(an_unchanged_apply_keeps_the_version, async |s| {
    let first = s
        .apply("create", &s.cm("a"), "alice", &cm("a", &json!({"x": "1"})))
        .await;
    let second = s
        .apply("again", &s.cm("a"), "alice", &cm("a", &json!({"x": "1"})))
        .await;
    s.note("same version", json!(first.version() == second.version()))
        .await;
});

case!(owners_conflict, async |s| {
    s.apply("alice", &s.cm("a"), "alice", &cm("a", &json!({"x": "1"})))
        .await;
    s.apply(
        "bob disagrees",
        &s.cm("a"),
        "bob",
        &cm("a", &json!({"x": "2"})),
    )
    .await;
    s.apply(
        "bob agrees",
        &s.cm("a"),
        "bob",
        &cm("a", &json!({"x": "1"})),
    )
    .await;
    s.apply(
        "now alice cannot change it alone",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": "3"})),
    )
    .await;
    s.apply(
        "by force",
        &s.cm("a?force=true"),
        "alice",
        &cm("a", &json!({"x": "3"})),
    )
    .await;
    s.apply("alice gives up", &s.cm("a"), "alice", &cm("a", &json!({})))
        .await;
});

case!(
    a_shared_field_stays_until_the_last_owner_leaves,
    async |s| {
        s.apply(
            "alice",
            &s.cm("a"),
            "alice",
            &cm("a", &json!({"x": "1", "y": "1"})),
        )
        .await;
        s.apply("bob", &s.cm("a"), "bob", &cm("a", &json!({"x": "1"})))
            .await;
        s.apply(
            "alice leaves",
            &s.cm("a"),
            "alice",
            &cm("a", &json!({"y": "1"})),
        )
        .await;
        s.apply("bob leaves", &s.cm("a"), "bob", &cm("a", &json!({})))
            .await;
    }
);

case!(apply_and_update_share_fields, async |s| {
    s.post(
        "created by update",
        &format!("{}?fieldManager=carol", s.cms()),
        &cm("a", &json!({"x": "1"})),
    )
    .await;
    s.apply(
        "same value",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": "1"})),
    )
    .await;
    s.apply(
        "another value",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": "2"})),
    )
    .await;
    s.apply(
        "by force",
        &s.cm("a?force=true"),
        "alice",
        &cm("a", &json!({"x": "2"})),
    )
    .await;
    s.merge(
        "an update takes it",
        &s.cm("a?fieldManager=carol"),
        &json!({"data": {"x": "3"}}),
    )
    .await;
    s.apply(
        "apply meets the updater",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": "2"})),
    )
    .await;
    s.apply(
        "the same manager applies",
        &s.cm("a"),
        "carol",
        &cm("a", &json!({"x": "4"})),
    )
    .await;
});

case!(several_conflicts_are_told_together, async |s| {
    let mut one = deployment("a");
    one["metadata"]["labels"] = json!({"l": "1"});
    let path = s.group("apps/v1", "deployments/a");
    s.apply("alice", &path, "alice", &one).await;
    s.merge(
        "updater",
        &format!("{path}?fieldManager=scaler"),
        &json!({"spec": {"replicas": 9}}),
    )
    .await;
    let mut two = deployment("a");
    two["metadata"]["labels"] = json!({"l": "2"});
    two["spec"]["replicas"] = json!(3);
    two["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.test/app:9");
    s.apply("bob", &path, "bob", &two).await;
});

case!(apply_demands_a_manager_and_a_whole_body, async |s| {
    let body = cm("a", &json!({}));
    s.patch("no manager", "apply", &s.cm("a"), &body).await;
    s.apply(
        "no kind",
        &s.cm("a"),
        "alice",
        &json!({"metadata": {"name": "a"}}),
    )
    .await;
    s.apply(
        "no version",
        &s.cm("a"),
        "alice",
        &json!({"kind": "ConfigMap", "metadata": {"name": "a"}}),
    )
    .await;
    s.apply("another name", &s.cm("a"), "alice", &cm("b", &json!({})))
        .await;
    s.apply(
        "no name",
        &s.cm("a"),
        "alice",
        &json!({"apiVersion": "v1", "kind": "ConfigMap"}),
    )
    .await;
    s.apply(
        "another kind",
        &s.cm("a"),
        "alice",
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
    )
    .await;
    let mut managed = body.clone();
    managed["metadata"]["managedFields"] =
        json!([{"manager": "x", "operation": "Apply", "apiVersion": "v1"}]);
    s.apply("with managed fields", &s.cm("a"), "alice", &managed)
        .await;
    s.apply(
        "an unknown field",
        &s.cm("a"),
        "alice",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "nonsense": 1}),
    )
    .await;
    s.apply(
        "a wrong type",
        &s.cm("a"),
        "alice",
        &cm("a", &json!({"x": {"y": "z"}})),
    )
    .await;
    s.merge("force without apply", &s.cm("a?force=true"), &json!({}))
        .await;
});

case!(apply_reads_yaml, async |s| {
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {l: '1'}\ndata:\n  text: |\n    one\n    two\n";
    let headers = [("content-type", "application/apply-patch+yaml")];
    s.send(
        "yaml",
        Method::PATCH,
        &s.cm("a?fieldManager=alice"),
        &headers,
        yaml,
    )
    .await;
    s.send(
        "broken yaml",
        Method::PATCH,
        &s.cm("a?fieldManager=alice"),
        &headers,
        "a: [",
    )
    .await;
});

case!(apply_with_a_version_or_uid_does_not_create, async |s| {
    let mut body = cm("a", &json!({"x": "1"}));
    body["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    s.apply("uid of nobody", &s.cm("a"), "alice", &body).await;
    let mut body = cm("b", &json!({"x": "1"}));
    body["metadata"]["resourceVersion"] = json!("1");
    s.apply("version of nobody", &s.cm("b"), "alice", &body)
        .await;
    let made = s
        .apply("create", &s.cm("c"), "alice", &cm("c", &json!({"x": "1"})))
        .await;
    let mut body = cm("c", &json!({"x": "2"}));
    body["metadata"]["resourceVersion"] = json!(made.version());
    s.apply("right version", &s.cm("c"), "alice", &body).await;
    s.apply("stale version", &s.cm("c"), "alice", &body).await;
});

case!(lists_are_owned_by_key, async |s| {
    let path = s.group("apps/v1", "deployments/a");
    s.apply("alice", &path, "alice", &deployment("a")).await;
    let containers = |list| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"containers": list}}}})
    };
    s.apply(
        "bob adds a container",
        &path,
        "bob",
        &containers(json!([{"name": "side", "image": "registry.test/side:1"}])),
    )
    .await;
    s.apply("bob adds env to hers", &path, "bob",
        &containers(json!([{"name": "side", "image": "registry.test/side:1"}, {"name": "main", "env": [{"name": "B", "value": "2"}]}])))
        .await;
    s.apply(
        "bob leaves",
        &path,
        "bob",
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}),
    )
    .await;
    s.apply("twice the same key", &path, "bob",
        &containers(json!([{"name": "side", "image": "registry.test/side:1"}, {"name": "side", "image": "registry.test/side:2"}])))
        .await;
    s.apply(
        "no key",
        &path,
        "bob",
        &containers(json!([{"image": "registry.test/side:1"}])),
    )
    .await;
});

case!(ports_are_owned_by_port_and_protocol, async |s| {
    let service = |ports| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"clusterIP": "None", "ports": ports}})
    };
    s.apply(
        "alice",
        &s.core("services/a"),
        "alice",
        &service(json!([{"name": "http", "port": 80}])),
    )
    .await;
    let more = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}});
    s.apply("bob", &s.core("services/a"), "bob", &more).await;
    s.apply(
        "bob leaves",
        &s.core("services/a"),
        "bob",
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}),
    )
    .await;
});

case!(finalizers_are_a_set, async |s| {
    let with = |list| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": list}});
    s.apply(
        "alice",
        &s.cm("a"),
        "alice",
        &with(json!(["example.com/a"])),
    )
    .await;
    s.apply("bob", &s.cm("a"), "bob", &with(json!(["example.com/b"])))
        .await;
    s.apply("alice leaves", &s.cm("a"), "alice", &with(json!([])))
        .await;
    s.apply("bob leaves", &s.cm("a"), "bob", &with(json!([])))
        .await;
});

case!(atomic_lists_have_one_owner, async |s| {
    let account = |list| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"},
        "rules": list})
    };
    let path = s.group("rbac.authorization.k8s.io/v1", "roles/a");
    s.apply(
        "alice",
        &path,
        "alice",
        &account(json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])),
    )
    .await;
    s.apply(
        "bob",
        &path,
        "bob",
        &account(json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])),
    )
    .await;
    s.apply(
        "bob by force",
        &format!("{path}?force=true"),
        "bob",
        &account(json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}])),
    )
    .await;
});

case!(status_is_applied_apart, async |s| {
    let path = s.group("apps/v1", "deployments/a");
    s.apply("create", &path, "alice", &deployment("a")).await;
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "status": {"replicas": 1, "conditions": [{"type": "Available", "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "2024-01-01T00:00:00Z", "lastUpdateTime": "2024-01-01T00:00:00Z"}]}});
    s.apply("status", &format!("{path}/status"), "kubelet", &status)
        .await;
    s.apply("status at the front door", &path, "bob", &status)
        .await;
    let mut more = status.clone();
    more["status"]["conditions"] = json!([{"type": "Progressing", "status": "True", "reason": "r", "message": "m",
        "lastTransitionTime": "2024-01-01T00:00:00Z", "lastUpdateTime": "2024-01-01T00:00:00Z"}]);
    more["status"]["replicas"] = json!(2);
    s.apply(
        "another condition",
        &format!("{path}/status"),
        "other",
        &more,
    )
    .await;
    s.apply(
        "of nobody",
        &s.group("apps/v1", "deployments/none/status"),
        "kubelet",
        &status,
    )
    .await;
});

case!(
    an_updater_that_stops_mentioning_a_field_lets_it_go,
    async |s| {
        s.apply(
            "alice",
            &s.cm("a"),
            "alice",
            &cm("a", &json!({"x": "1", "y": "1"})),
        )
        .await;
        s.put(
            "bob replaces",
            &s.cm("a?fieldManager=bob"),
            &cm("a", &json!({"x": "1"})),
        )
        .await;
        s.apply(
            "alice again",
            &s.cm("a"),
            "alice",
            &cm("a", &json!({"x": "1", "y": "1"})),
        )
        .await;
    }
);

case!(custom_kinds_are_applied_by_their_schema, async |s| {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer"},
        "byKey": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "value": {"type": "string"}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "atomic": {"type": "array", "items": {"type": "string"}},
        "atomicMap": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    define(s, &widget_crd(s, &spec)).await;
    let path = widgets(s, "/a");
    s.apply("alice", &path, "alice", &widget(s, "a", &json!({
        "size": 1, "byKey": [{"name": "x", "value": "1"}], "set": ["x"], "atomic": ["x"], "atomicMap": {"a": "1"}, "free": {"p": {"q": 1}}})))
        .await;
    s.apply(
        "bob shares",
        &path,
        "bob",
        &widget(
            s,
            "a",
            &json!({
        "byKey": [{"name": "y", "value": "1"}], "set": ["y"], "free": {"p": {"r": 2}}}),
        ),
    )
    .await;
    s.apply("bob conflicts", &path, "bob", &widget(s, "a", &json!({
        "size": 2, "byKey": [{"name": "x", "value": "2"}], "atomic": ["y"], "atomicMap": {"b": "1"}})))
        .await;
    s.apply("by force", &format!("{path}?force=true"), "bob", &widget(s, "a", &json!({
        "size": 2, "byKey": [{"name": "x", "value": "2"}], "atomic": ["y"], "atomicMap": {"b": "1"}})))
        .await;
    s.apply("alice leaves", &path, "alice", &widget(s, "a", &json!({})))
        .await;
    s.apply(
        "an unknown field",
        &path,
        "bob",
        &widget(s, "a", &json!({"nonsense": 1})),
    )
    .await;
    s.apply(
        "a double key",
        &path,
        "bob",
        &widget(s, "a", &json!({"byKey": [{"name": "x"}, {"name": "x"}]})),
    )
    .await;
    s.apply(
        "a double member",
        &path,
        "bob",
        &widget(s, "a", &json!({"set": ["x", "x"]})),
    )
    .await;
    s.merge(
        "status",
        &format!("{path}/status?fieldManager=controller"),
        &json!({"status": {"phase": "Ready"}}),
    )
    .await;
    s.apply("status applied", &format!("{path}/status"), "other",
        &json!({"apiVersion": format!("{}.test/v1", s.ns()), "kind": "Widget", "metadata": {"name": "a"}, "status": {"more": 1}}))
        .await;
});

case!(nothing_is_applied_where_nothing_is_not_allowed, async |s| {
    let spec = json!({"type": "object", "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "on": {"type": "boolean"},
        "maybe": {"type": "string", "nullable": true},
        "inner": {"type": "object", "properties": {"a": {"type": "string"}}},
        "list": {"type": "array", "items": {"type": "string"}},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    }});
    define(s, &widget_crd(s, &spec)).await;
    for field in ["text", "count", "on", "maybe", "inner", "list", "set"] {
        let body = widget(s, field, &json!({field: null, "count": 1}));
        let body = if field == "count" {
            widget(s, field, &json!({"count": null}))
        } else {
            body
        };
        let path = widgets(s, &format!("/{field}"));
        s.apply(field, &path, "alice", &body).await;
        s.get(&format!("{field} after"), &path).await;
    }
    let body = widget(s, "entry", &json!({"list": ["a", null]}));
    s.apply("in a list", &widgets(s, "/entry"), "alice", &body)
        .await;
    let body = widget(s, "member", &json!({"set": ["a", null]}));
    s.apply("in a set", &widgets(s, "/member"), "alice", &body)
        .await;
});

case!(nothing_is_a_value_of_maps, async |s| {
    let binary = |name: &str, data: serde_json::Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "binaryData": data});
    s.apply(
        "binary",
        &s.cm("a"),
        "alice",
        &binary("a", json!({"k": null, "l": "AQI="})),
    )
    .await;
    s.get("binary after", &s.cm("a")).await;
    s.post("posted binary", &s.cms(), &binary("b", json!({"k": null})))
        .await;
    s.merge(
        "merged binary",
        &s.cm("b"),
        &json!({"binaryData": {"k": null, "m": "AQI="}}),
    )
    .await;
    s.apply("text", &s.cm("c"), "alice", &cm("c", &json!({"k": null})))
        .await;
    s.post(
        "posted text",
        &s.cms(),
        &cm("d", &json!({"k": null, "l": "x"})),
    )
    .await;
    let labels = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "e", "labels": {"a": null}}});
    s.apply("labels", &s.cm("e"), "alice", &labels).await;
});
