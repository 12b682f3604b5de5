//! Every documented manifest reads as the kind it says it is, with nothing left over.

use api::vm::{
    ImageSource, PowerState, Provider, ProviderSpec, UserData, VMClass, VMClone, VMImage,
    VMPlacementPolicy, VMSnapshot, VirtualMachine,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn documents(text: &str) -> Vec<Value> {
    text.split("\n---\n")
        .map(|doc| serde_saphyr::from_str(doc).unwrap())
        .collect()
}

/// Reads a document as `K` and checks that writing it again keeps every field.
#[track_caller]
fn whole<K: DeserializeOwned + Serialize>(doc: &Value) -> K {
    let read: K = serde_json::from_value(doc.clone()).unwrap();
    let again = serde_json::to_value(&read).unwrap();
    let mut lost = Vec::new();
    missing("", doc, &again, &mut lost);
    assert!(lost.is_empty(), "fields that were not understood: {lost:?}");
    read
}

fn missing(path: &str, written: &Value, kept: &Value, lost: &mut Vec<String>) {
    match (written, kept) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                let path = format!("{path}.{key}");
                match b.get(key) {
                    Some(kept) => missing(&path, value, kept, lost),
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                missing(&format!("{path}[{i}]"), a, b, lost);
            }
        }
        (Value::Bool(true), Value::String(word)) if word == "On" => {}
        (a, b) if a == b => {}
        (a, b) => lost.push(format!("{path}: {a} became {b}")),
    }
}

macro_rules! manifest {
    ($name:literal) => {
        include_str!(concat!("../manifests/", $name, ".yaml"))
    };
}

#[test]
fn every_documented_object_is_understood_whole() {
    let mut seen = 0;
    for text in [
        manifest!("provider-token"),
        manifest!("provider-multi-node"),
        manifest!("reconfigure"),
        manifest!("snapshot-memory"),
        manifest!("snapshot-plain"),
        manifest!("multi-nic"),
        manifest!("class-small"),
        manifest!("image"),
        manifest!("machine"),
        manifest!("clone"),
        manifest!("storage-classes"),
        manifest!("placement"),
    ] {
        for doc in documents(text) {
            seen += 1;
            match doc["kind"].as_str().unwrap() {
                "Provider" => drop(whole::<Provider>(&doc)),
                "VirtualMachine" => drop(whole::<VirtualMachine>(&doc)),
                "VMClass" => drop(whole::<VMClass>(&doc)),
                "VMImage" => drop(whole::<VMImage>(&doc)),
                "VMSnapshot" => drop(whole::<VMSnapshot>(&doc)),
                "VMClone" => drop(whole::<VMClone>(&doc)),
                "VMPlacementPolicy" => drop(whole::<VMPlacementPolicy>(&doc)),
                other => panic!("no such kind {other}"),
            }
        }
    }
    assert_eq!(seen, 14);
}

#[test]
fn the_excerpts_fit_the_objects_they_belong_to() {
    let mut provider = documents(manifest!("provider-token")).remove(0);
    let excerpt = documents(manifest!("provider-insecure-excerpt")).remove(0);
    provider["spec"]["runtime"]["env"] = excerpt["spec"]["runtime"]["env"].clone();
    let provider: Provider = whole(&provider);
    assert_eq!(
        provider.spec.runtime.unwrap().env[0].value.as_deref(),
        Some("true")
    );

    let excerpt = documents(manifest!("user-data-excerpt")).remove(0);
    let user_data: UserData = whole(&excerpt["userData"]);
    assert!(
        user_data
            .cloud_init
            .unwrap()
            .inline
            .unwrap()
            .contains("gateway4")
    );
}

#[test]
fn an_unquoted_on_arrives_as_a_boolean_and_means_on() {
    let doc = documents(manifest!("machine")).remove(0);
    assert_eq!(doc["spec"]["powerState"], json!(true));
    let vm: VirtualMachine = whole(&doc);
    assert_eq!(vm.spec.power_state, Some(PowerState::On));
}

#[test]
fn an_image_may_be_named_by_a_bare_number() {
    let image: VMImage = serde_json::from_value(json!({
        "metadata": { "name": "x" }, "spec": { "source": 9000 }
    }))
    .unwrap();
    assert_eq!(image.spec.source, Some(ImageSource::Vmid(9000)));
}

#[test]
fn a_provider_may_leave_its_secret_out() {
    let spec: ProviderSpec =
        serde_json::from_value(json!({ "endpoint": "https://pve:8006" })).unwrap();
    assert_eq!(spec.credential_secret_ref, None);
}
