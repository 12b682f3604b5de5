//! Defaults of built-in kinds.
//!
//! Three sources, in this order: what depends on other fields ([`depends`]), the table of plain
//! defaults by type and field, and the zero values that a Go type shows even when nobody set them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

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
        } else if let Some(default) = &field.default {
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
        "core.v1.Secret" if text(map, "type").is_empty() => {
            map.insert("type".into(), "Opaque".into());
        }
        "core.v1.Pod" => pod(map),
        "core.v1.PodSpec" => pod_spec(map),
        "core.v1.NodeSpec" => {
            if let Some(range) = map.get("podCIDR").cloned() {
                put(map, "podCIDRs", json!([range]));
            }
        }
        "core.v1.Container" | "core.v1.EphemeralContainer" => container(map),
        "core.v1.Volume" if map.len() == 1 => put(map, "emptyDir", json!({})),
        "core.v1.ServiceSpec" => service(map),
        "apps.v1.DeploymentStrategy"
        | "apps.v1.DaemonSetUpdateStrategy"
        | "apps.v1.StatefulSetUpdateStrategy" => {
            if matches!(text(map, "type"), "" | "RollingUpdate") {
                put(map, "rollingUpdate", json!({}));
            }
        }
        "batch.v1.JobSpec" => {
            if !map.contains_key("completions") && !map.contains_key("parallelism") {
                put(map, "completions", json!(1));
            }
            put(map, "parallelism", json!(1));
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

fn pod(map: &mut Object) {
    if let Some(Value::Object(spec)) = map.get_mut("spec") {
        put(spec, "enableServiceLinks", json!(true));
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
    if map.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        for list in ["containers", "initContainers"] {
            for container in map
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                let ports = container.get_mut("ports").and_then(Value::as_array_mut);
                for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
                    if let Some(number) = port.get("containerPort").cloned() {
                        put(port, "hostPort", number);
                    }
                }
            }
        }
    }
}

fn container(map: &mut Object) {
    let image = text(map, "image");
    let tag = image
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'))
        .map(|(_, tag)| tag);
    let latest = !image.contains('@') && matches!(tag, None | Some("latest"));
    if text(map, "imagePullPolicy").is_empty() {
        let policy = if latest { "Always" } else { "IfNotPresent" };
        map.insert("imagePullPolicy".into(), policy.into());
    }
    if let Some(Value::Object(resources)) = map.get_mut("resources")
        && let Some(Value::Object(limits)) = resources.get("limits").cloned()
    {
        let requests = resources.entry("requests").or_insert_with(|| json!({}));
        if let Value::Object(requests) = requests {
            for (name, limit) in limits {
                requests.entry(name).or_insert(limit);
            }
        }
    }
}

fn service(map: &mut Object) {
    let kind = match text(map, "type") {
        "" => "ClusterIP",
        kind => kind,
    }
    .to_owned();
    if text(map, "sessionAffinity") == "ClientIP" {
        put(
            map,
            "sessionAffinityConfig",
            json!({"clientIP": {"timeoutSeconds": 10800}}),
        );
    }
    for port in map
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Value::Object(port) = port {
            put(port, "protocol", "TCP".into());
            let unset = match port.get("targetPort") {
                None => true,
                Some(target) => *target == json!(0) || *target == json!(""),
            };
            if let (true, Some(number)) = (unset, port.get("port").cloned()) {
                port.insert("targetPort".into(), number);
            }
        }
    }
    if kind != "ExternalName" {
        put(map, "internalTrafficPolicy", "Cluster".into());
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        put(map, "externalTrafficPolicy", "Cluster".into());
    }
    if kind == "LoadBalancer" {
        put(map, "allocateLoadBalancerNodePorts", json!(true));
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
                let time = matches!(definition.fields[field].ty, Ty::Time | Ty::MicroTime);
                assert_eq!(value.is_null(), time, "{name}.{field}");
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
