//! What users see: every scenario lies on the whole system.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests may fail the test; clippy exempts only the test functions themselves"
)]

mod adoption;
mod backups;
mod budgets;
mod by_hand;
mod cluster_api;
mod containers;
mod copies;
mod documented;
mod effects;
mod failures;
mod fields;
mod images;
mod moves;
mod providers;
mod references;
mod reverts;
mod schedules;
mod sets;
mod simulation;
mod snapshots;
mod unreadable;
mod waits;

use api::vm::VirtualMachine;
use scenarios::Bed;
use serde_json::{Value, json};

/// A documented manifest.
macro_rules! manifest {
    ($name:literal) => {
        include_str!(concat!(
            "../../../../crates/api/tests/manifests/",
            $name,
            ".yaml"
        ))
    };
}
pub(crate) use manifest;

/// A bed with the documented Provider, image and small class, and root's own credentials.
pub(crate) async fn prepared() -> Bed {
    let bed = Bed::new().await;
    prepare(&bed).await;
    bed
}

/// A prepared bed with the documented machine, which is Ready.
pub(crate) async fn with_machine() -> Bed {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed
}

/// Applies the documented Provider, image and small class.
pub(crate) async fn prepare(bed: &Bed) {
    bed.name_template(9000, "ubuntu-22-template").await;
    bed.apply(include_str!("manifests/secret-root.yaml")).await;
    bed.apply(manifest!("provider-token")).await;
    bed.apply(manifest!("image")).await;
    bed.apply(manifest!("class-small")).await;
}

/// A set named `web` of so many machines of the documented class and image.
pub(crate) fn web_set(replicas: u32) -> Value {
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSet", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu-22"}},
            },
        },
    })
}
