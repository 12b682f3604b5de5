//! Defaults of built-in kinds.
//!
//! Three sources, in this order: what depends on other fields ([`depends`]), the table of plain
//! defaults by type and field, and the defaults that the types themselves declare.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::quantity::Quantity;
use super::types::{Ty, TypeDef, lookup};

/// Plain defaults by type: field and value.
static TABLE: LazyLock<BTreeMap<&'static str, Vec<(&'static str, Value)>>> = LazyLock::new(|| {
    let mut table: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in include_str!("defaults.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let mut words = line.splitn(3, ' ');
        if let (Some(name), Some(field), Some(text)) = (words.next(), words.next(), words.next()) {
            let value = serde_json::from_str(text).unwrap_or_default();
            table.entry(name).or_default().push((field, value));
        }
    }
    table
});

type Object = Map<String, Value>;

/// Fills in the defaults of `object` and of all below it.
pub(super) fn apply(definition: &TypeDef, object: &mut Value) {
    let Value::Object(map) = object else { return };
    depends(definition.name, map);
    for (field, default) in TABLE.get(definition.name).into_iter().flatten() {
        if !map.contains_key(*field) {
            map.insert((*field).to_owned(), default.clone());
        }
    }
    for (name, field) in &definition.fields {
        if map.contains_key(*name) {
            continue;
        }
        if field.present {
            map.insert((*name).to_owned(), json!({}));
        } else if let Some(default) = field.default.as_ref().filter(|d| **d != field.ty.zero()) {
            map.insert((*name).to_owned(), default.clone());
        }
    }
    for (name, child) in map {
        if let Some(field) = definition.fields.get(name.as_str()) {
            walk(&field.ty, child);
        }
    }
}

fn walk(ty: &Ty, value: &mut Value) {
    match (ty, value) {
        // What the API server itself keeps in metadata is never defaulted.
        (Ty::Named("meta.v1.ObjectMeta"), _) => {}
        (Ty::Named(name), value) => {
            if let Some(definition) = lookup(name) {
                apply(definition, value);
            }
        }
        (Ty::List(list), Value::Array(items)) => {
            for item in items {
                walk(&list.item, item);
            }
        }
        // Amounts of resources are counted in thousandths.
        (Ty::Map(sub, _), Value::Object(map)) if **sub == Ty::Quantity => {
            for amount in map.values_mut() {
                if let Ok(quantity) = Quantity::parse(amount.as_str().unwrap_or_default()) {
                    *amount = quantity.round_to_milli().to_string().into();
                }
            }
        }
        (Ty::Map(sub, _), Value::Object(map)) => map.values_mut().for_each(|v| walk(sub, v)),
        _ => {}
    }
}

fn text<'a>(map: &'a Object, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn put(map: &mut Object, name: &str, value: Value) {
    map.entry(name).or_insert(value);
}

/// Defaults that follow from other fields.
fn depends(name: &str, map: &mut Object) {
    match name {
        "core.v1.Secret" => put(map, "type", "Opaque".into()),
        "core.v1.Pod" => pod(map),
        "core.v1.PodSpec" => pod_spec(map),
        "core.v1.NodeSpec" => {
            if let Some(range) = map.get("podCIDR").cloned() {
                put(map, "podCIDRs", json!([range]));
            }
        }
        "core.v1.NodeStatus" => {
            if let Some(capacity) = map.get("capacity").cloned() {
                put(map, "allocatable", capacity);
            }
        }
        "core.v1.ReplicationController" => labels_of_template(map, true),
        "core.v1.LimitRangeItem" if text(map, "type") == "Container" => limits(map),
        "core.v1.Container" | "core.v1.EphemeralContainer" => {
            let policy = pull_policy(text(map, "image"));
            put(map, "imagePullPolicy", policy.into());
        }
        "core.v1.Volume" if map.len() == usize::from(map.contains_key("name")) => {
            put(map, "emptyDir", json!({}));
        }
        "core.v1.Service" => service(map),
        "apps.v1.DeploymentStrategy" | "apps.v1.DaemonSetUpdateStrategy" => {
            if matches!(text(map, "type"), "" | "RollingUpdate") {
                put(map, "rollingUpdate", json!({}));
            }
        }
        "apps.v1.StatefulSetUpdateStrategy" if text(map, "type").is_empty() => {
            put(map, "rollingUpdate", json!({}));
        }
        "batch.v1.Job" => job(map),
        "autoscaling.v2.HorizontalPodAutoscalerBehavior" => {
            let up = json!({
                "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                "policies": [
                    { "type": "Pods", "value": 4, "periodSeconds": 15 },
                    { "type": "Percent", "value": 100, "periodSeconds": 15 },
                ],
            });
            let down = json!({
                "selectPolicy": "Max",
                "policies": [{ "type": "Percent", "value": 100, "periodSeconds": 15 }],
            });
            scaling(map, "scaleUp", &up);
            scaling(map, "scaleDown", &down);
        }
        "networking.v1.NetworkPolicySpec" => {
            let egress = map
                .get("egress")
                .and_then(Value::as_array)
                .is_some_and(|e| !e.is_empty());
            let types = if egress {
                json!(["Ingress", "Egress"])
            } else {
                json!(["Ingress"])
            };
            put(map, "policyTypes", types);
        }
        "rbac.v1.Subject" => {
            if matches!(text(map, "kind"), "User" | "Group") {
                put(map, "apiGroup", "rbac.authorization.k8s.io".into());
            }
        }
        "rbac.v1.RoleRef" if text(map, "apiGroup").is_empty() => {
            map.insert("apiGroup".into(), "rbac.authorization.k8s.io".into());
        }
        "apiextensions.v1.CustomResourceDefinitionNames" => {
            let kind = text(map, "kind").to_owned();
            put(map, "singular", kind.to_lowercase().into());
            if !kind.is_empty() {
                put(map, "listKind", format!("{kind}List").into());
            }
        }
        _ => {}
    }
}

/// Rules of scaling that say nothing of some of it get the rest from `usual`; an empty list of
/// policies is a list.
fn scaling(map: &mut Object, name: &str, usual: &Value) {
    put(map, name, json!({}));
    let Some(rules) = below(map, name) else {
        return;
    };
    for (name, value) in usual.as_object().into_iter().flatten() {
        put(rules, name, value.clone());
    }
}

fn below<'a>(map: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    map.get_mut(name).and_then(Value::as_object_mut)
}

fn items<'a>(map: &'a mut Object, name: &str) -> impl Iterator<Item = &'a mut Object> {
    let list = map.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Adds to the map `to` what the map `from` has and it has not.
fn fill(map: &mut Object, from: &str, to: &str) {
    if let Some(Value::Object(given)) = map.get(from).cloned() {
        let to = map.entry(to).or_insert_with(|| json!({}));
        for (name, value) in given {
            if let Value::Object(to) = &mut *to {
                put(to, &name, value);
            }
        }
    }
}

/// What holds for pods, and not for templates of pods.
fn pod(map: &mut Object) {
    let Some(spec) = below(map, "spec") else {
        return;
    };
    put(spec, "enableServiceLinks", json!(true));
    let host = spec.get("hostNetwork") == Some(&json!(true));
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            if let Some(resources) = below(container, "resources") {
                fill(resources, "limits", "requests");
            }
            for port in items(container, "ports").filter(|_| host) {
                if let Some(number) = port.get("containerPort").cloned() {
                    put(port, "hostPort", number);
                }
            }
        }
    }
}

fn pod_spec(map: &mut Object) {
    // The old name of the account is kept in step with the new one.
    for (from, to) in [
        ("serviceAccountName", "serviceAccount"),
        ("serviceAccount", "serviceAccountName"),
    ] {
        if !text(map, from).is_empty() && text(map, to).is_empty() {
            let account = text(map, from).to_owned();
            map.insert(to.into(), account.into());
        }
    }
}

/// An image that may change under its name is pulled each time.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map(|(_, tag)| tag);
    let latest = !image.is_empty() && !image.contains('@') && tag.is_none_or(|t| t == "latest");
    if latest { "Always" } else { "IfNotPresent" }
}

fn limits(map: &mut Object) {
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        fill(map, from, to);
    }
}

/// Some kinds take the labels of their pods where they have none.
fn labels_of_template(map: &mut Object, select: bool) {
    let labels = map
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .cloned();
    let Some(labels) = labels else { return };
    if select && let Some(spec) = below(map, "spec") {
        put(spec, "selector", labels.clone());
    }
    if let Some(metadata) = below(map, "metadata") {
        put(metadata, "labels", labels);
    }
}

fn job(map: &mut Object) {
    labels_of_template(map, false);
    let spec = map.entry("spec").or_insert_with(|| json!({}));
    let Value::Object(spec) = spec else { return };
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        put(spec, "completions", json!(1));
    }
    let retries = if spec.contains_key("backoffLimitPerIndex") {
        i32::MAX
    } else {
        6
    };
    let replacement = if spec.contains_key("podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    for (name, value) in [
        ("parallelism", json!(1)),
        ("backoffLimit", json!(retries)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!(replacement)),
        ("manualSelector", json!(false)),
    ] {
        put(spec, name, value);
    }
}

fn service(map: &mut Object) {
    let Some(spec) = below(map, "spec") else {
        return;
    };
    let kind = match text(spec, "type") {
        "" => "ClusterIP",
        kind => kind,
    }
    .to_owned();
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            let timeout = spec
                .get("sessionAffinityConfig")
                .and_then(|config| config.pointer("/clientIP/timeoutSeconds"));
            if timeout.is_none() {
                let config = json!({"clientIP": {"timeoutSeconds": 10800}});
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        "" | "None" => {
            spec.remove("sessionAffinityConfig");
        }
        _ => {}
    }
    for port in items(spec, "ports") {
        put(port, "protocol", "TCP".into());
        let unset = match port.get("targetPort") {
            None => true,
            Some(target) => *target == json!(0) || *target == json!(""),
        };
        if unset {
            let number = port.get("port").cloned().unwrap_or(json!(0));
            port.insert("targetPort".into(), number);
        }
    }
    let balanced = kind == "LoadBalancer";
    let outside =
        balanced || kind == "NodePort" || kind == "ClusterIP" && spec.contains_key("externalIPs");
    if outside {
        put(spec, "externalTrafficPolicy", "Cluster".into());
    }
    if balanced || matches!(kind.as_str(), "NodePort" | "ClusterIP") {
        put(spec, "internalTrafficPolicy", "Cluster".into());
    }
    if balanced {
        put(spec, "allocateLoadBalancerNodePorts", json!(true));
        let balancer = below(map, "status").and_then(|status| below(status, "loadBalancer"));
        if let Some(balancer) = balancer {
            for ingress in items(balancer, "ingress").filter(|i| i.contains_key("ip")) {
                put(ingress, "ipMode", "VIP".into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::BuiltIn;

    fn defaulted(group: &str, kind: &str, mut object: Value) -> Value {
        BuiltIn::find(group, "v1", kind)
            .expect("the kind is known")
            .default(&mut object);
        object
    }

    #[test]
    fn the_table_names_what_exists() {
        let lines = include_str!("defaults.txt").lines().skip(1);
        assert!(lines.clone().is_sorted());
        assert_eq!(TABLE.values().map(Vec::len).sum::<usize>(), lines.count());
        for (name, defaults) in TABLE.iter() {
            let definition = lookup(name).unwrap_or_else(|| panic!("{name}"));
            for (field, value) in defaults {
                assert!(definition.fields.contains_key(field), "{name}.{field}");
                assert!(!value.is_null(), "{name}.{field}");
            }
        }
    }

    #[test]
    fn objects_get_what_kubernetes_gives_them() {
        insta::assert_json_snapshot!([
            defaulted(
                "apps",
                "Deployment",
                json!({"spec": {"template": {"spec": {"containers": [
                {"name": "a", "image": "a:1", "ports": [{"containerPort": 80}],
                 "livenessProbe": {"httpGet": {"port": 80}}},
                {"name": "b", "image": "b", "resources": {"limits": {"cpu": "1"}}},
            ], "volumes": [{"name": "x"}, {"name": "y", "secret": {"secretName": "s"}}]}}}})
            ),
            defaulted("", "Service", json!({"spec": {"ports": [{"port": 80}]}})),
            defaulted("", "Secret", json!({})),
            defaulted(
                "",
                "Pod",
                json!({"spec": {"serviceAccountName": "x", "containers": []}})
            ),
            defaulted("apps", "StatefulSet", json!({"spec": {}})),
            defaulted("batch", "Job", json!({"spec": {}})),
            defaulted(
                "policy",
                "PodDisruptionBudget",
                json!({"spec": {"minAvailable": 1}})
            ),
            defaulted(
                "storage.k8s.io",
                "StorageClass",
                json!({"provisioner": "p"})
            ),
            defaulted("", "ConfigMap", json!({"data": {"a": "b"}})),
        ]);
    }
}
