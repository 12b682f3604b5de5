//! The front of the house: discovery, OpenAPI, tables, health, versions.

use conformance::{Session, case};
use http::Method;
use serde_json::{Value, json};

use crate::fixtures::{cm, define, deployment, group, pod, widget_crd};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The groups and kinds that ours serves; the real one has more.
const GROUPS: &[&str] = &[
    "apps/v1",
    "batch/v1",
    "rbac.authorization.k8s.io/v1",
    "storage.k8s.io/v1",
    "coordination.k8s.io/v1",
    "policy/v1",
    "discovery.k8s.io/v1",
    "events.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
];

case!(the_core_group_is_discovered, async |s| {
    let answer = s.raw(Method::GET, "/api", &[], "").await;
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    s.note("versions", json!([body["kind"], body["versions"]]))
        .await;
    let answer = s.raw(Method::GET, "/api/v1", &[], "").await;
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    s.note("list", json!([body["kind"], body["groupVersion"]]))
        .await;
    for name in [
        "configmaps",
        "secrets",
        "pods",
        "pods/status",
        "pods/binding",
        "pods/eviction",
        "namespaces",
        "namespaces/status",
        "namespaces/finalize",
        "nodes",
        "nodes/status",
        "services",
        "services/status",
        "events",
        "serviceaccounts",
        "serviceaccounts/token",
        "persistentvolumes",
        "persistentvolumeclaims",
        "endpoints",
    ] {
        let mut found = body["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|r| r["name"] == name)
            .cloned()
            .unwrap_or_default();
        if let Some(found) = found.as_object_mut() {
            found.remove("storageVersionHash");
        }
        s.note(name, found).await;
    }
});

case!(groups_are_discovered, async |s| {
    let answer = s.raw(Method::GET, "/apis", &[], "").await;
    let all: Value = serde_json::from_slice(&answer.body).unwrap();
    for group_version in GROUPS {
        let (group, version) = group_version.split_once('/').unwrap();
        let found = all["groups"]
            .as_array()
            .unwrap()
            .iter()
            .find(|g| g["name"] == group)
            .cloned()
            .unwrap_or_default();
        let served = found["versions"]
            .as_array()
            .is_some_and(|v| v.iter().any(|v| v["version"] == version));
        s.note(group, json!([served, found["preferredVersion"]]))
            .await;
        let answer = s
            .raw(Method::GET, &format!("/apis/{group_version}"), &[], "")
            .await;
        let list: Value = serde_json::from_slice(&answer.body).unwrap();
        s.note(
            "its list",
            json!([list["kind"], list["apiVersion"], list["groupVersion"]]),
        )
        .await;
    }
});

case!(kinds_are_described, async |s| {
    for (group, names) in [
        (
            "apps/v1",
            &[
                "deployments",
                "deployments/status",
                "deployments/scale",
                "replicasets",
                "statefulsets",
                "daemonsets",
            ][..],
        ),
        ("batch/v1", &["jobs", "jobs/status"]),
        (
            "rbac.authorization.k8s.io/v1",
            &[
                "roles",
                "rolebindings",
                "clusterroles",
                "clusterrolebindings",
            ],
        ),
        (
            "storage.k8s.io/v1",
            &[
                "storageclasses",
                "csidrivers",
                "csinodes",
                "volumeattachments",
                "volumeattachments/status",
                "csistoragecapacities",
            ],
        ),
        ("coordination.k8s.io/v1", &["leases"]),
        (
            "policy/v1",
            &["poddisruptionbudgets", "poddisruptionbudgets/status"],
        ),
        ("discovery.k8s.io/v1", &["endpointslices"]),
        ("events.k8s.io/v1", &["events"]),
        ("scheduling.k8s.io/v1", &["priorityclasses"]),
        (
            "admissionregistration.k8s.io/v1",
            &[
                "mutatingwebhookconfigurations",
                "validatingwebhookconfigurations",
            ],
        ),
        (
            "apiextensions.k8s.io/v1",
            &[
                "customresourcedefinitions",
                "customresourcedefinitions/status",
            ],
        ),
        (
            "authentication.k8s.io/v1",
            &["tokenreviews", "selfsubjectreviews"],
        ),
        (
            "authorization.k8s.io/v1",
            &[
                "subjectaccessreviews",
                "selfsubjectaccessreviews",
                "selfsubjectrulesreviews",
                "localsubjectaccessreviews",
            ],
        ),
    ] {
        let answer = s.raw(Method::GET, &format!("/apis/{group}"), &[], "").await;
        let list: Value = serde_json::from_slice(&answer.body).unwrap();
        for name in names {
            let mut found = list["resources"]
                .as_array()
                .unwrap()
                .iter()
                .find(|r| r["name"] == *name)
                .cloned()
                .unwrap_or_default();
            if let Some(found) = found.as_object_mut() {
                found.remove("storageVersionHash");
            }
            s.note(&format!("{group} {name}"), found).await;
        }
    }
});

case!(discovery_can_be_had_in_one_piece, async |s| {
    for (path, group, names) in [
        (
            "/api",
            Value::Null,
            &[
                "configmaps",
                "pods",
                "namespaces",
                "nodes",
                "serviceaccounts",
            ][..],
        ),
        ("/apis", json!("apps"), &["deployments", "statefulsets"]),
        ("/apis", json!("storage.k8s.io"), &["storageclasses"]),
    ] {
        let answer = s
            .raw(Method::GET, path, &[("accept", AGGREGATED)], "")
            .await;
        let content = answer
            .headers
            .get("content-type")
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let items = body["items"].as_array().unwrap();
        let found = items
            .iter()
            .find(|i| i["metadata"]["name"] == group)
            .cloned()
            .unwrap_or_default();
        s.note(
            path,
            json!([content, body["kind"], body["apiVersion"], found["metadata"]]),
        )
        .await;
        for name in names {
            let resource = found["versions"][0]["resources"]
                .as_array()
                .unwrap()
                .iter()
                .find(|r| r["resource"] == *name)
                .cloned();
            s.note(name, json!(resource)).await;
        }
        s.note("freshness", found["versions"][0]["freshness"].clone())
            .await;
    }
});

case!(custom_kinds_are_discovered, async |s| {
    let mut crd = widget_crd(
        s,
        &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    );
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = json!("v1beta1");
    second["storage"] = json!(false);
    second["deprecated"] = json!(true);
    crd["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .insert(0, second);
    crd["spec"]["names"]["shortNames"] = json!(["wi"]);
    crd["spec"]["names"]["categories"] = json!(["all", "widgets"]);
    define(s, &crd).await;
    s.eventually("group", &format!("/apis/{}", group(s)), |r| {
        r.body["versions"].as_array().is_some_and(|v| v.len() == 2)
    })
    .await;
    s.eventually("version", &format!("/apis/{}/v1", group(s)), |r| {
        r.status == 200
    })
    .await;
    s.eventually("old version", &format!("/apis/{}/v1beta1", group(s)), |r| {
        r.status == 200
    })
    .await;
    s.get(
        "the old version warns",
        &format!("/apis/{}/v1beta1/widgets", group(s)),
    )
    .await;
    let mut found = Value::Null;
    for _ in 0..500 {
        let answer = s
            .raw(Method::GET, "/apis", &[("accept", AGGREGATED)], "")
            .await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        found = body["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|i| i["metadata"]["name"] == group(s))
            .cloned()
            .unwrap_or_default();
        if found["versions"].as_array().is_some_and(|v| v.len() == 2) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    s.note("in one piece", found).await;
});

case!(paths_are_listed, async |s| {
    let answer = s.raw(Method::GET, "/", &[], "").await;
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let paths: Vec<&str> = body["paths"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for path in [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/apis/apps",
        "/apis/apps/v1",
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/version",
    ] {
        s.note(path, json!(paths.contains(&path))).await;
    }
});

case!(health_is_told, async |s| {
    for path in [
        "/healthz",
        "/livez",
        "/readyz",
        "/healthz/ping",
        "/livez/ping",
        "/readyz/ping",
        "/readyz/nonsense",
    ] {
        s.get(path, path).await;
    }
    for path in ["/livez?verbose", "/readyz?verbose=1", "/healthz?verbose"] {
        let answer = s.raw(Method::GET, path, &[], "").await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        s.note(
            path,
            json!([
                answer.status.as_u16(),
                text.contains("[+]ping ok"),
                text.lines().last()
            ]),
        )
        .await;
    }
});

case!(the_version_is_told, async |s| {
    let answer = s.raw(Method::GET, "/version", &[], "").await;
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let keys: Vec<_> = body.as_object().unwrap().keys().cloned().collect();
    s.note("members", json!(keys)).await;
    s.note(
        "version",
        json!([answer.status.as_u16(), body["major"], body["minor"]]),
    )
    .await;
});

case!(metrics_are_told, async |s| {
    let answer = s.raw(Method::GET, "/metrics", &[], "").await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    s.note(
        "request counter",
        json!([
            answer.status.as_u16(),
            text.contains("apiserver_request_total{")
        ]),
    )
    .await;
});

async fn openapi(s: &Session, path: &str) -> Value {
    let answer = s.raw(Method::GET, path, &[], "").await;
    s.note(path, json!([answer.status.as_u16()])).await;
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

case!(openapi_v3_describes_kinds, async |s| {
    let index = openapi(s, "/openapi/v3").await;
    for path in ["api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1"] {
        let url = index["paths"][path]["serverRelativeURL"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        s.note(
            path,
            json!([url.starts_with("/openapi/v3/"), url.contains("?hash=")]),
        )
        .await;
    }
    let core = openapi(s, "/openapi/v3/api/v1").await;
    let schema = &core["components"]["schemas"]["io.k8s.api.core.v1.ConfigMap"];
    s.note("kind", schema["x-kubernetes-group-version-kind"].clone())
        .await;
    let mut names: Vec<_> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect();
    names.sort();
    s.note("properties", json!(names)).await;
    s.note("an operation", core["paths"]["/api/v1/namespaces/{namespace}/configmaps"]["post"]["x-kubernetes-group-version-kind"].clone()).await;
    let pod =
        &core["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    s.note(
        "containers",
        json!([
            pod["type"],
            pod["x-kubernetes-list-type"],
            pod["x-kubernetes-list-map-keys"],
            pod["x-kubernetes-patch-merge-key"],
            pod["x-kubernetes-patch-strategy"]
        ]),
    )
    .await;
});

case!(openapi_v2_describes_kinds, async |s| {
    let all = openapi(s, "/openapi/v2").await;
    s.note("swagger", all["swagger"].clone()).await;
    let schema = &all["definitions"]["io.k8s.api.apps.v1.Deployment"];
    s.note("kind", schema["x-kubernetes-group-version-kind"].clone())
        .await;
    let ports = &all["definitions"]["io.k8s.api.core.v1.Container"]["properties"]["ports"];
    s.note(
        "ports",
        json!([
            ports["type"],
            ports["x-kubernetes-list-type"],
            ports["x-kubernetes-list-map-keys"],
            ports["x-kubernetes-patch-merge-key"],
            ports["x-kubernetes-patch-strategy"]
        ]),
    )
    .await;
});

case!(openapi_describes_custom_kinds, async |s| {
    define(s, &widget_crd(s, &json!({"type": "object", "description": "what is wanted", "properties": {"size": {"type": "integer", "description": "how large"}}}))).await;
    let path = format!("/openapi/v3/apis/{}/v1", group(s));
    let mut document = Value::Null;
    for _ in 0..1000 {
        let answer = s.raw(Method::GET, &path, &[], "").await;
        document = serde_json::from_slice(&answer.body).unwrap_or_default();
        if document["components"]["schemas"].is_object() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let name = document["components"]["schemas"]
        .as_object()
        .and_then(|all| all.keys().find(|name| name.ends_with(".Widget")).cloned())
        .unwrap_or_default();
    let schema = &document["components"]["schemas"][&name];
    s.note(
        "kind",
        json!([name, schema["x-kubernetes-group-version-kind"]]),
    )
    .await;
    s.note("spec", schema["properties"]["spec"].clone()).await;
});

case!(tables_have_kubectls_columns, async |s| {
    s.post(
        "config map",
        &s.cms(),
        &cm("a", &json!({"x": "1", "y": "2"})),
    )
    .await;
    s.post("pod", &s.core("pods"), &pod("a")).await;
    s.post(
        "deployment",
        &s.group("apps/v1", "deployments"),
        &deployment("a"),
    )
    .await;
    s.post("secret", &s.core("secrets"), &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"x": "1"}})).await;
    s.post(
        "account",
        &s.core("serviceaccounts"),
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}),
    )
    .await;
    s.post("lease", &s.group("coordination.k8s.io/v1", "leases"), &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}))
        .await;
    s.post(
        "budget",
        &s.group("policy/v1", "poddisruptionbudgets"),
        &json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}),
    )
    .await;
    s.post("service", &s.core("services"), &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"app": "a"}}}))
        .await;
    for path in [
        s.cms(), s.core("pods"), s.core("secrets"), s.core("serviceaccounts/a"), s.core("services"), s.core("events"), s.core("persistentvolumeclaims"), s.core("endpoints"),
        s.group("apps/v1", "deployments"), s.group("apps/v1", "replicasets"), s.group("apps/v1", "statefulsets"), s.group("apps/v1", "daemonsets"), s.group("batch/v1", "jobs"),
        s.group("coordination.k8s.io/v1", "leases"), s.group("policy/v1", "poddisruptionbudgets"), s.group("rbac.authorization.k8s.io/v1", "roles"),
        s.group("rbac.authorization.k8s.io/v1", "rolebindings"), s.group("discovery.k8s.io/v1", "endpointslices"),
        format!("/api/v1/namespaces/{}", s.ns()), "/apis/storage.k8s.io/v1/storageclasses?labelSelector=x%3Dnone".into(), "/api/v1/nodes?labelSelector=x%3Dnone".into(),
        "/api/v1/persistentvolumes?labelSelector=x%3Dnone".into(), "/apis/scheduling.k8s.io/v1/priorityclasses?labelSelector=x%3Dnone".into(),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?labelSelector=x%3Dnone".into(), "/apis/storage.k8s.io/v1/csidrivers?labelSelector=x%3Dnone".into(),
        "/apis/storage.k8s.io/v1/csinodes?labelSelector=x%3Dnone".into(), "/apis/storage.k8s.io/v1/volumeattachments?labelSelector=x%3Dnone".into(),
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?labelSelector=x%3Dnone".into(), "/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=x%3Dnone".into(),
    ] {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let answer = s.raw(Method::GET, &path, &[("accept", accept)], "").await;
        let mut table: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let columns: Vec<Value> = table["columnDefinitions"].as_array().into_iter().flatten().map(|c| json!([c["name"], c["type"], c["format"], c["priority"]])).collect();
        // Ages differ by the second.
        let age = columns.iter().position(|c| c[0] == "Age" || c[0] == "Created At");
        let mut rows: Vec<Value> = table["rows"].as_array_mut().into_iter().flatten().map(|r| r["cells"].take()).collect();
        for row in &mut rows {
            if let (Some(age), Some(cells)) = (age, row.as_array_mut()) {
                cells[age] = json!("<age>");
            }
        }
        s.note(&path, json!([table["kind"], table["apiVersion"], columns, rows])).await;
    }
});

case!(tables_say_how_much_of_the_object_comes_along, async |s| {
    s.post("create", &s.cms(), &cm("a", &json!({"x": "1"})))
        .await;
    let accept = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    for include in ["None", "Metadata", "Object", "Nonsense"] {
        let answer = s
            .raw(
                Method::GET,
                &s.cm(&format!("a?includeObject={include}")),
                &[accept],
                "",
            )
            .await;
        let table: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        s.note(
            include,
            json!([
                answer.status.as_u16(),
                table["message"],
                table["rows"][0]["object"]
            ]),
        )
        .await;
    }
    s.send(
        "an error is no table",
        Method::GET,
        &s.cm("none"),
        &[accept],
        "",
    )
    .await;
    s.send(
        "nor is a table of another group",
        Method::GET,
        &s.cms(),
        &[("accept", "application/json;as=Table;v=v9;g=meta.k8s.io")],
        "",
    )
    .await;
    s.send(
        "a made thing",
        Method::POST,
        &s.cms(),
        &[accept, ("content-type", "application/json")],
        "{}",
    )
    .await;
});
