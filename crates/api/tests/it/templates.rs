//! The cluster templates and the ClusterClass say nothing that the types do not know, and nothing that admission refuses.

use std::fs;
use std::path::PathBuf;

use api::infrastructure::admission;
use api::infrastructure::v1beta1::{
    ProxmoxCluster, ProxmoxClusterTemplate, ProxmoxMachineTemplate,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What a user sets; everything else has a default.
const SET: [(&str, &str); 16] = [
    ("CLUSTER_NAME", "demo"),
    ("KUBERNETES_VERSION", "v1.36.4"),
    ("CONTROL_PLANE_MACHINE_COUNT", "3"),
    ("WORKER_MACHINE_COUNT", "2"),
    ("PROXMOX_SOURCENODE", "pve1"),
    ("TEMPLATE_VMID", "9000"),
    ("TEMPLATE_TAGS", "[capi, v1.36.4]"),
    ("CONTROL_PLANE_ENDPOINT_IP", "10.0.0.4"),
    ("NODE_IP_RANGES", "[10.0.0.10-10.0.0.99]"),
    ("GATEWAY", "10.0.0.1"),
    ("IP_PREFIX", "24"),
    ("DNS_SERVERS", "[10.0.0.1]"),
    ("BRIDGE", "vmbr0"),
    ("BOOT_VOLUME_DEVICE", "scsi0"),
    ("INSTANCE_1_NAME", "txl"),
    ("INSTANCE_2_NAME", "fra"),
];

/// Fills in variables as clusterctl does: `${NAME}` and `${NAME:=default}`.
fn filled_in(text: &str) -> String {
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (inside, rest) = part.split_once('}').unwrap();
        let (name, default) = inside.split_once(":=").unwrap_or((inside, "x"));
        let set = SET.iter().find(|(known, _)| *known == name);
        out.push_str(set.map_or(default, |(_, value)| value));
        out.push_str(rest);
    }
    out
}

fn documents() -> Vec<(String, Value)> {
    let dir: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "clusterctl"]
        .iter()
        .collect();
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = filled_in(&fs::read_to_string(&path).unwrap());
        let found: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        all.extend(found.into_iter().map(|document| (name.clone(), document)));
    }
    all
}

/// Nothing is lost on the way through the type, so the type knows every field.
fn known<K: DeserializeOwned + Serialize>(from: &str, document: &Value) {
    let typed: K = serde_json::from_value(document.clone()).unwrap();
    let back = serde_json::to_value(&typed).unwrap();
    assert_eq!(
        back["spec"],
        without_empty(document["spec"].clone()),
        "{from}"
    );
}

/// An empty list is as good as none.
fn without_empty(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|_, field| field.as_array().is_none_or(|list| !list.is_empty()));
            for field in fields.values_mut() {
                *field = without_empty(field.take());
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = without_empty(item.take());
            }
        }
        _ => {}
    }
    value
}

fn admitted(from: &str, document: &Value) {
    let kind = document["kind"].as_str().unwrap();
    let group = "infrastructure.cluster.x-k8s.io";
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "name": "x", "operation": "CREATE", "object": document, "userInfo": {},
            "kind": {"group": group, "version": "v1beta1", "kind": kind},
            "resource": {"group": group, "version": "v1beta1", "resource": "any"},
        },
    });
    let answer = admission::validate(serde_json::from_value(review).unwrap())
        .response
        .unwrap();
    assert!(answer.allowed, "{from}: {}", answer.result.message);
    assert_eq!(answer.warnings, None, "{from}");
}

#[test]
fn templates_say_what_the_types_know_and_admission_admits() {
    let mut seen = 0;
    for (from, document) in documents() {
        match document["kind"].as_str().unwrap() {
            "ProxmoxCluster" => known::<ProxmoxCluster>(&from, &document),
            "ProxmoxClusterTemplate" => known::<ProxmoxClusterTemplate>(&from, &document),
            "ProxmoxMachineTemplate" => known::<ProxmoxMachineTemplate>(&from, &document),
            _ => continue,
        }
        admitted(&from, &document);
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}
