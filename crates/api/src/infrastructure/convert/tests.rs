//! Round trips between all versions, over objects made at random from the versions' own schemas.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;
use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::{Map, Value, json};

use super::{ANNOTATION, Error, GROUP, convert};
use crate::infrastructure::crds;

const KINDS: [&str; 4] = [
    "ProxmoxCluster",
    "ProxmoxClusterTemplate",
    "ProxmoxMachine",
    "ProxmoxMachineTemplate",
];
const VERSIONS: [&str; 4] = ["v1alpha1", "v1alpha2", "v1alpha3", "v1beta1"];

/// The schemas of all versions, made once: deriving them takes longer than converting.
static SCHEMAS: LazyLock<BTreeMap<(String, String), Value>> = LazyLock::new(|| {
    let crds = crds(&WebhookClientConfig::default());
    let versions = crds.iter().flat_map(|crd| {
        crd.spec.versions.iter().map(|version| {
            let key = (crd.spec.names.kind.clone(), version.name.clone());
            let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref();
            (key, serde_json::to_value(schema).unwrap())
        })
    });
    versions.collect()
});

fn schema_of(kind: &str, version: &str) -> &'static Value {
    &SCHEMAS[&(kind.to_owned(), version.to_owned())]
}

/// Some value that a schema allows, as far as shape goes.
fn some_value(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return proptest::sample::select(values.clone()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return prop_oneof![
            (1..9999_i64).prop_map(Value::from),
            "[1-9]Gi".prop_map(Value::from)
        ]
        .boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => (1..9999_i64).prop_map(Value::from).boxed(),
        Some("number") => (1..99_i64).prop_map(Value::from).boxed(),
        Some("array") => some_list(schema),
        Some("object") => some_object(schema),
        _ => "[a-z]{3,8}".prop_map(Value::from).boxed(),
    }
}

/// A list whose items have different keys, as a keyed list must.
fn some_list(schema: &Value) -> BoxedStrategy<Value> {
    let key = schema["x-kubernetes-list-map-keys"][0]
        .as_str()
        .map(str::to_owned);
    // `net0` is not one of the oldest version's additional devices.
    let first = usize::from(schema["items"].to_string().contains("self != 'net0'"));
    prop::collection::vec(some_value(&schema["items"]), 1..4)
        .prop_map(move |mut items| {
            for (number, item) in items.iter_mut().enumerate() {
                if let Some(key) = &key {
                    item[key.as_str()] = json!(format!("net{}", first + number));
                }
            }
            Value::Array(items)
        })
        .boxed()
}

fn some_object(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(values) = schema.get("additionalProperties") {
        return prop::collection::btree_map("[a-z]{3,8}", some_value(values), 1..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed();
    }
    let Some(properties) = schema["properties"].as_object() else {
        return Just(json!({"free": "form"})).boxed();
    };
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let (must, may): (Vec<_>, Vec<_>) = properties
        .iter()
        .partition(|(name, _)| required.contains(&name.as_str()));
    let pairs = |fields: Vec<(&String, &Value)>| -> Vec<_> {
        fields
            .into_iter()
            .map(|(name, field)| (name.clone(), some_value(field)))
            .collect()
    };
    let (must, may) = (pairs(must), pairs(may));
    let most = may.len();
    subsequence(may, 0..=most)
        .prop_flat_map(move |chosen| {
            let (names, values): (Vec<_>, Vec<_>) = must.iter().cloned().chain(chosen).unzip();
            values.prop_map(move |values| {
                Value::Object(names.iter().cloned().zip(values).collect::<Map<_, _>>())
            })
        })
        .boxed()
}

fn some_pair() -> impl Strategy<Value = (Value, &'static str)> {
    (
        proptest::sample::select(&KINDS[..]),
        proptest::sample::select(&VERSIONS[..]),
        proptest::sample::select(&VERSIONS[..]),
    )
        .prop_flat_map(|(kind, from, to)| {
            let schema = schema_of(kind, from);
            let spec = some_value(&schema["properties"]["spec"]);
            let status = match schema["properties"].get("status") {
                Some(status) => some_value(status).prop_map(Some).boxed(),
                None => Just(None).boxed(),
            };
            (spec, status).prop_map(move |(spec, status)| {
                let mut object = json!({
                    "apiVersion": format!("{GROUP}/{from}"),
                    "kind": kind,
                    "metadata": {"name": "x"},
                    "spec": spec,
                });
                if let Some(status) = status {
                    object["status"] = status;
                }
                (object, to)
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn there_and_back_is_the_same_object((object, to) in some_pair()) {
        let from = object["apiVersion"].as_str().unwrap().to_owned();
        let there = convert(object.clone(), to).unwrap();
        prop_assert_eq!(&there["apiVersion"], &json!(format!("{GROUP}/{to}")));
        // An API server that merges declarations refuses what the schema does not have.
        let kind = there["kind"].as_str().unwrap();
        let declared = schema_of(kind, to)["properties"].get("status").is_some();
        prop_assert!(declared || there.get("status").is_none(), "{}", there);
        let mut back = convert(there, &from).unwrap();
        // What waits for the hub may stay about; it is not part of what was said.
        if let Some(metadata) = back["metadata"].as_object_mut() {
            metadata.remove("annotations");
        }
        prop_assert_eq!(back, object);
    }
}

fn machine(version: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": "ProxmoxMachine",
        "metadata": {"name": "worker-1"}, "spec": spec,
    })
}

#[test]
fn the_oldest_network_becomes_interfaces_in_order() {
    let old = machine(
        "v1alpha1",
        &json!({
            "sourceNode": "pve1", "templateID": 100, "numCores": 4, "memoryMiB": 8192, "target": "pve2",
            "network": {
                "default": {"bridge": "vmbr0"},
                "additionalDevices": [{"name": "net1", "bridge": "vmbr1",
                    "ipv4PoolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}}],
            },
        }),
    );
    let hub = convert(old, "v1beta1").unwrap();
    assert_eq!(
        hub["spec"],
        json!({
            "sourceNode": "pve1", "template": 100, "cores": 4, "memory": 8192, "nodeName": "pve2",
            "network": {"networkDevices": [
                {"name": "net0", "bridge": "vmbr0", "defaultIPv4": true, "defaultIPv6": true},
                {"name": "net1", "bridge": "vmbr1", "ipPoolRef": [
                    {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p", "family": "ipv4"}]},
            ]},
        })
    );
}

#[test]
fn a_change_made_in_an_older_version_leaves_what_it_cannot_see() {
    let hub = machine(
        "v1beta1",
        &json!({"template": "ubuntu-22.04", "cores": 4, "memory": 8192, "diskSize": 50, "nodeName": "pve"}),
    );
    let mut old = convert(hub, "v1alpha2").unwrap();
    assert!(old["metadata"]["annotations"][ANNOTATION].is_string());
    assert_eq!(old["spec"]["numCores"], 4);
    assert_eq!(old["spec"].get("templateID"), None, "a name is no VMID");
    old["spec"]["numCores"] = json!(8);
    let hub = convert(old, "v1beta1").unwrap();
    assert_eq!(
        hub["spec"],
        json!({"template": "ubuntu-22.04", "cores": 8, "memory": 8192, "diskSize": 50, "nodeName": "pve"})
    );
    assert_eq!(hub["metadata"], json!({"name": "worker-1"}));
}

#[test]
fn an_object_that_the_older_version_says_whole_carries_no_annotation() {
    let old = machine(
        "v1alpha2",
        &json!({"sourceNode": "pve1", "templateID": 100, "network": {"networkDevices": [{"name": "net0", "bridge": "vmbr0"}]}}),
    );
    let hub = convert(old.clone(), "v1beta1").unwrap();
    assert_eq!(convert(hub, "v1alpha2").unwrap(), old);
}

#[test]
fn failure_domains_are_a_map_in_the_older_contract_and_a_list_in_the_newer() {
    let list = json!([
        {"name": "fra", "controlPlane": true, "attributes": {"type": "instance"}},
        {"name": "txl", "controlPlane": true},
    ]);
    let hub = json!({
        "apiVersion": format!("{GROUP}/v1beta1"), "kind": "ProxmoxCluster", "metadata": {"name": "x"},
        "spec": {}, "status": {"failureDomains": list},
    });
    let old = convert(hub, "v1alpha1").unwrap();
    let map = json!({
        "fra": {"controlPlane": true, "attributes": {"type": "instance"}},
        "txl": {"controlPlane": true},
    });
    assert_eq!(old["status"]["failureDomains"], map);
    let back = convert(old, "v1beta1").unwrap();
    assert_eq!(back["status"]["failureDomains"], list);
}

#[test]
fn unknown_versions_and_kinds_are_refused() {
    let object = machine("v1alpha1", &json!({}));
    assert!(matches!(
        convert(object, "v9"),
        Err(Error::UnknownVersion { .. })
    ));
    let other = json!({"apiVersion": "v1", "kind": "Pod"});
    assert_eq!(
        convert(other, "v1beta1"),
        Err(Error::UnknownKind("Pod".into()))
    );
}
