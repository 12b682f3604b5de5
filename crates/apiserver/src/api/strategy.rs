//! What the server itself decides about objects of particular built-in kinds.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::Api;
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
        ("apps", "DaemonSet") => count_templates(None, object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => complete_crd(object),
        _ => {}
    }
}

/// Gives a new object what only the server may decide, such as its first status.
pub(crate) fn prepare_new(api: &Api, resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") => {
            object::set_path(object, "spec.finalizers", json!(["kubernetes"]));
            object::set_path(object, "status", json!({"phase": "Active"}));
        }
        ("", "Pod") => {
            let class = qos_class(object);
            object["status"] = json!({"phase": "Pending", "qosClass": class});
        }
        ("", "PersistentVolumeClaim") => object["status"] = json!({"phase": "Pending"}),
        ("", "PersistentVolume") => {
            let now = api.clock.now_rfc3339();
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        }
        ("batch", "Job") => own_pods(object),
        ("", "Service") => object["status"] = json!({"loadBalancer": {}}),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let mut stored: Vec<Value> = object["spec"]["versions"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|version| version["storage"] == true)
                .map(|version| version["name"].clone())
                .collect();
            stored.dedup();
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
    if resource.is("apps", "daemonsets") && subresource.is_empty() {
        count_templates(Some(old), object);
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Namespace") if subresource != "finalize" => {
            if let Some(finalizers) = old["spec"].get("finalizers") {
                object["spec"]["finalizers"] = finalizers.clone();
            }
        }
        _ => {}
    }
}

/// Counts the templates that a daemon set had, in the annotation where the first versions kept it.
fn count_templates(old: Option<&Value>, object: &mut Value) {
    const COUNT: &str = "deprecated.daemonset.template.generation";
    let count = |object: &Value| {
        let count = object["metadata"]["annotations"][COUNT].as_str();
        count.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
    };
    let number = match old {
        None => count(object).max(1),
        Some(old) if old["spec"]["template"] == object["spec"]["template"] => count(old),
        Some(old) => count(old) + 1,
    };
    if object["metadata"].is_object() {
        object["metadata"]["annotations"][COUNT] = json!(number.to_string());
    }
}

/// A job finds its pods by its own uid, unless somebody selects them by hand.
fn own_pods(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (object::uid(job).to_owned(), object::name(job).to_owned());
    let template = &mut job["spec"]["template"];
    if template["metadata"].is_null() {
        template["metadata"] = json!({});
    }
    let labels = &mut template["metadata"]["labels"];
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        if labels[key].is_null() {
            labels[key] = json!(value);
        }
    }
    if job["metadata"]["labels"].is_null() {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
    }
    if job["spec"]["selector"].is_null() {
        job["spec"]["selector"] =
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
}

/// The formats in a CRD's schemas that mean nothing to the server, and that `old` has not.
pub(crate) fn unknown_formats(crd: &Value, old: Option<&Value>) -> Vec<String> {
    fn walk(schema: &Value, found: &mut BTreeSet<String>) {
        if let Some(format) = schema["format"].as_str()
            && schema["type"] == "string"
            && !crate::schema::is_format(format)
        {
            found.insert(format.to_owned());
        }
        for name in ["properties", "patternProperties", "definitions"] {
            let below = schema[name].as_object().into_iter().flatten();
            below.for_each(|(_, sub)| walk(sub, found));
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            let below = schema[name].as_array().into_iter().flatten();
            below.for_each(|sub| walk(sub, found));
        }
        for name in ["items", "additionalProperties", "not"] {
            if schema[name].is_object() {
                walk(&schema[name], found);
            }
        }
    }
    let all = |crd: &Value| {
        let mut found = BTreeSet::new();
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        versions.for_each(|version| walk(&version["schema"]["openAPIV3Schema"], &mut found));
        found
    };
    let known = old.map(all).unwrap_or_default();
    all(crd).difference(&known).cloned().collect()
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
