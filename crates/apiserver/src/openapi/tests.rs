use serde_json::json;

use super::*;

fn kind<'a>(group: &'a str, kind: &'a str, plural: &'a str) -> Kind<'a> {
    Kind {
        group,
        version: "v1",
        kind,
        plural,
        namespaced: true,
        status: true,
        scale: false,
        create_only: false,
        schema: None,
    }
}

/// Every reference in `value` must have its schema in `schemas`.
fn assert_closed(value: &Value, schemas: &Value, prefix: &str) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                let name = name.strip_prefix(prefix).unwrap();
                assert!(schemas.get(name).is_some(), "{name}");
            }
            map.values()
                .for_each(|child| assert_closed(child, schemas, prefix));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|child| assert_closed(child, schemas, prefix)),
        _ => {}
    }
}

#[test]
fn built_in_kinds_are_described_with_how_their_lists_merge() {
    let document = v3(&[kind("apps", "Deployment", "deployments")], "v1.36.4");
    let schemas = &document["components"]["schemas"];
    assert_closed(&document, schemas, "#/components/schemas/");
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    );
    insta::assert_json_snapshot!(schemas["io.k8s.api.core.v1.Container"]["properties"]["ports"]);
    insta::assert_json_snapshot!(schemas["io.k8s.api.apps.v1.DeploymentSpec"]);
}

#[test]
fn clients_can_see_that_fields_are_validated_and_dry_runs_known() {
    let document = v3(&[kind("", "ConfigMap", "configmaps")], "v1.36.4");
    let path = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"];
    let names: Vec<_> = path["patch"]["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|p| p["name"].as_str())
        .collect();
    assert!(names.contains(&"fieldValidation") && names.contains(&"dryRun"));
    assert_eq!(
        path["patch"]["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    let accepted = path["patch"]["requestBody"]["content"].as_object().unwrap();
    assert!(accepted.contains_key("application/strategic-merge-patch+json"));
}

#[test]
fn custom_kinds_keep_their_words() {
    let schema = json!({"type": "object", "description": "A widget.", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer", "description": "how large"},
            "either": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}}});
    let widget = Kind {
        schema: Some(&schema),
        ..kind("example.com", "Widget", "widgets")
    };
    let document = v3(&[widget], "v1.36.4");
    let schemas = &document["components"]["schemas"];
    assert_closed(&document, schemas, "#/components/schemas/");
    insta::assert_json_snapshot!(schemas["com.example.v1.Widget"]);
    let content = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]
        ["patch"]["requestBody"]["content"];
    assert!(
        content
            .get("application/strategic-merge-patch+json")
            .is_none()
    );
    let document = v2(
        &[widget, kind("apps", "Deployment", "deployments")],
        "v1.36.4",
    );
    assert_closed(&document, &document["definitions"], "#/definitions/");
    let either = &document["definitions"]["com.example.v1.Widget"]["properties"]["spec"]["properties"]
        ["either"];
    assert_eq!(*either, json!({"x-kubernetes-int-or-string": true}));
}

#[test]
fn the_index_changes_with_its_documents() {
    let (a, b) = (json!({"x": 1}), json!({"x": 2}));
    let url = |document: &Value| {
        index([("api/v1", document)])["paths"]["api/v1"]["serverRelativeURL"].clone()
    };
    assert!(
        url(&a)
            .as_str()
            .unwrap()
            .starts_with("/openapi/v3/api/v1?hash=")
    );
    assert_ne!(url(&a), url(&b));
}
