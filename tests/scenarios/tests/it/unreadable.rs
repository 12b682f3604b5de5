//! Objects that the schema lets in and nobody can read, and what the schema does not let in.

use std::time::Duration;

use api::vm::{VMClass, VirtualMachine};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use scenarios::Bed;
use serde_json::{Value, json};

use crate::{manifest, prepared, with_machine};

fn class(name: &str, memory: &Value) -> Value {
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMClass", "metadata": {"name": name},
        "spec": {"cpus": 1, "memory": memory},
    })
}

/// Has the API server accept classes of any shape, as one with an older definition would.
async fn loosen(bed: &Bed) {
    let name = "vmclasses.infra.virtrigaud.io";
    let api: Api<CustomResourceDefinition> = Api::all(bed.client.clone());
    let anything = json!([{
        "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema",
        "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(anything).unwrap());
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_read_stops_nobody_else() {
    let mut bed = prepared().await;
    loosen(&bed).await;
    bed.sleep(Duration::from_mins(1)).await;
    bed.try_apply(&class("broken", &json!(-1))).await.unwrap();
    bed.stop_operator().await;
    bed.start_operator();
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let story = bed.story("broken").await;
    assert!(
        story.contains("Unreadable") && story.contains("spec.memory"),
        "{story}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_read_any_more_stays_in_use_and_its_end_is_seen() {
    let bed = with_machine().await;
    loosen(&bed).await;
    bed.try_apply(&class("small", &json!(-1))).await.unwrap();
    bed.sleep(Duration::from_mins(6)).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let classes = bed.api::<VMClass>();
    let _ = classes.delete("small", &DeleteParams::default()).await;
    bed.change::<VirtualMachine>("web-server", json!({"description": "again"}))
        .await;
    bed.until_reason::<VirtualMachine>("web-server", "Ready", "ClassNotFound")
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_read_is_refused_with_the_name_of_its_field() {
    let bed = prepared().await;
    let of = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": kind, "metadata": {"name": "bad"}, "spec": spec,
        })
    };
    let set = |update: Value| {
        let labels = json!({"app": "web"});
        of(
            "VMSet",
            json!({
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"classRef": {"name": "small"}}},
                "updateStrategy": {"rollingUpdate": update},
            }),
        )
    };
    let machine = |spec: Value| of("VirtualMachine", spec);
    let five_milliards = 5_000_000_000_u64;
    let long = "a".repeat(64);
    for (document, field) in [
        (class("bad", &json!(-1)), "spec.memory"),
        (class("bad", &json!("99999999Pi")), "spec.memory"),
        (of("VMImage", json!({"source": -5})), "spec.source"),
        (
            of("VMImage", json!({"source": five_milliards})),
            "spec.source",
        ),
        (
            machine(json!({"disks": [{"name": "root", "size": "99999999Pi"}]})),
            "spec.disks[0].size",
        ),
        (
            machine(json!({"restarts": five_milliards})),
            "spec.restarts",
        ),
        (
            machine(json!({"hardware": {"rng": {"maxBytes": five_milliards}}})),
            "spec.hardware.rng.maxBytes",
        ),
        (
            machine(json!({"hardware": {"rng": {"periodMillis": five_milliards}}})),
            "spec.hardware.rng.periodMillis",
        ),
        (
            machine(json!({"networks": [{"name": "lan", "staticIP": {
                "address": "10.0.0.2/24",
                "routes": [{"to": "10.1.0.0/16", "via": "10.0.0.1", "metric": five_milliards}],
            }}]})),
            "metric",
        ),
        (set(json!({"partition": five_milliards})), "partition"),
        (
            set(json!({"maxUnavailable": five_milliards})),
            "maxUnavailable",
        ),
        (set(json!({"maxUnavailable": "half"})), "maxUnavailable"),
        (
            of(
                "VMClone",
                json!({"sourceVMRef": {"name": "a"}, "target": {"name": long}}),
            ),
            "spec.target.name",
        ),
        (
            of(
                "VMClone",
                json!({"sourceVMRef": {"name": "a"}, "target": {"name": "A b"}}),
            ),
            "spec.target.name",
        ),
        (
            of(
                "VMRestore",
                json!({"backupRef": {"name": "a"}, "targetName": long}),
            ),
            "spec.targetName",
        ),
    ] {
        let refused = bed.try_apply(&document).await.unwrap_err().to_string();
        assert!(refused.contains(field), "{document}\n{refused}");
    }
    let mut long = set(json!({}));
    long["metadata"]["name"] = "a".repeat(59).into();
    let refused = bed.try_apply(&long).await.unwrap_err().to_string();
    assert!(refused.contains("58 characters"), "{refused}");
}
