//! What the server itself decides about objects of particular built-in kinds.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    object,
    registry::{Resource, text},
};

/// Rewrites what is only another way to write something, and names a definition may leave out.
pub(crate) fn complete(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => {
            let name = object::name(object).to_owned();
            if !name.is_empty() {
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
            }
        }
        ("", "Secret") => merge_string_data(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => complete_crd(object),
        _ => {}
    }
}

/// Gives a new object what only the server may decide, such as its first status.
pub(crate) fn prepare_new(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => {
            object::set_path(object, "spec.finalizers", json!(["kubernetes"]));
            object::set_path(object, "status", json!({"phase": "Active"}));
        }
        ("", "Pod") => {
            let class = qos_class(object);
            object["status"] = json!({"phase": "Pending", "qosClass": class});
        }
        ("", "PersistentVolumeClaim" | "PersistentVolume") => {
            object["status"] = json!({"phase": "Pending"});
        }
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => {
            if let Some(role) = object.as_object_mut() {
                role.entry("rules").or_insert(Value::Null);
            }
        }
        ("", "Service") => object["status"] = json!({"loadBalancer": {}}),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let stored: Vec<Value> = object["spec"]["versions"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|version| version["storage"] == true)
                .map(|version| version["name"].clone())
                .collect();
            object["status"] = json!({
                "acceptedNames": {"kind": "", "plural": ""},
                "conditions": null,
                "storedVersions": stored,
            });
        }
        _ => {}
    }
}

/// Completes a changed object before admission.
pub(crate) fn prepare_update(
    resource: &Resource,
    old: &Value,
    object: &mut Value,
    subresource: &str,
) {
    complete(resource, object);
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") if subresource != "finalize" => {
            if let Some(finalizers) = old["spec"].get("finalizers") {
                object["spec"]["finalizers"] = finalizers.clone();
            }
        }
        _ => {}
    }
}

/// `stringData` is a way to write `data`, never stored.
fn merge_string_data(object: &mut Value) {
    let Some(Value::Object(plain)) = object.as_object_mut().and_then(|o| o.remove("stringData"))
    else {
        return;
    };
    if !object["data"].is_object() {
        object["data"] = json!({});
    }
    for (key, value) in plain {
        if let Some(text) = value.as_str() {
            object["data"][key] = json!(STANDARD.encode(text));
        }
    }
}

/// The names and versions a CRD may leave out.
fn complete_crd(object: &mut Value) {
    let kind = text(&object["spec"]["names"], "kind").to_owned();
    let names = &mut object["spec"]["names"];
    if !names.is_object() {
        return;
    }
    if text(names, "singular").is_empty() {
        names["singular"] = json!(kind.to_lowercase());
    }
    if text(names, "listKind").is_empty() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if !object["spec"]["conversion"].is_object() {
        object["spec"]["conversion"] = json!({"strategy": "None"});
    }
}

/// How a pod ranks when a node runs short, as its resources say.
fn qos_class(pod: &Value) -> &'static str {
    let containers: Vec<&Value> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
        .collect();
    let quantity = |value: &Value| value.as_str().is_some_and(|q| q != "0") || value.is_number();
    let any = containers.iter().any(|c| {
        ["requests", "limits"].iter().any(|kind| {
            ["cpu", "memory"]
                .iter()
                .any(|r| quantity(&c["resources"][*kind][*r]))
        })
    });
    let guaranteed = containers.iter().all(|c| {
        ["cpu", "memory"].iter().all(|r| {
            let limit = &c["resources"]["limits"][*r];
            let request = &c["resources"]["requests"][*r];
            quantity(limit) && (request.is_null() || request == limit)
        })
    });
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_ends_up_encoded_in_data() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"b": "y"}});
        merge_string_data(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "eA==", "b": "eQ=="}}));
    }

    #[test]
    fn pods_are_classed_by_their_resources() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(qos_class(&pod(json!({}))), "BestEffort");
        assert_eq!(
            qos_class(&pod(json!({"requests": {"cpu": "1"}}))),
            "Burstable"
        );
        let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(qos_class(&pod(full)), "Guaranteed");
    }
}
