//! Objects that many cases use.

use std::time::Duration;

use conformance::Session;
use http::Method;
use serde_json::{Value, json};

/// A config map.
pub(crate) fn cm(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// A config map with labels.
pub(crate) fn labelled(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// A pod with one container.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "registry.test/app:1"}]},
    })
}

/// A deployment with one container.
pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "registry.test/app:1",
                    "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}]},
            },
        },
    })
}

/// The group that belongs to the case alone.
pub(crate) fn group(s: &Session) -> String {
    format!("{}.test", s.ns())
}

/// The path of the definitions.
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of namespaced `Widget`s in the case's group, version `v1`, with `spec` of this schema.
pub(crate) fn widget_crd(s: &Session, spec: &Value) -> Value {
    let group = group(s);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": spec,
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// Creates the definition and waits until its kind is served in `version`.
pub(crate) async fn define(s: &Session, crd: &Value) {
    let created = s.post("define", CRDS, crd).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let spec = &crd["spec"];
    for version in spec["versions"].as_array().expect("versions") {
        let (group, plural) = (spec["group"].as_str(), spec["names"]["plural"].as_str());
        let path = format!(
            "/apis/{}/{}/{}",
            group.expect("a group"),
            version["name"].as_str().expect("a version"),
            plural.expect("a plural"),
        );
        served(s, &path, version["served"] == true).await;
    }
}

/// Waits until the path is served, or no longer.
pub(crate) async fn served(s: &Session, path: &str, served: bool) {
    for _ in 0..1500 {
        if (s.raw(Method::GET, path, &[], "").await.status == 200) == served {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The path of the widgets, or of one, or of a subresource of one.
pub(crate) fn widgets(s: &Session, rest: &str) -> String {
    format!("/apis/{}/v1/namespaces/{}/widgets{rest}", group(s), s.ns())
}

/// A widget.
pub(crate) fn widget(s: &Session, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{}/v1", group(s)),
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// Text as a query's value.
pub(crate) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut encoded, byte| {
        let _ = write!(encoded, "%{byte:02x}");
        encoded
    })
}
