//! Machines that a VMClone makes: on which cluster.

use api::vm::{Provider, VMClone, VirtualMachine};
use scenarios::Bed;
use serde_json::{Value, json};

use crate::{manifest, prepare};

/// The documented machine, which names no Provider.
fn without_provider() -> Value {
    let mut machine = scenarios::documents(manifest!("machine")).remove(0);
    let spec = machine["spec"].as_object_mut().unwrap();
    spec.remove("providerRef");
    machine
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_made_on_the_cluster_of_its_source_though_another_has_joined_since() {
    let bed = Bed::builder().clusters(2).start().await;
    prepare(&bed).await;
    bed.try_apply(&without_provider()).await.unwrap();
    bed.until_ready::<VirtualMachine>("web-server").await;
    let other = manifest!("provider-token")
        .replace("proxmox-prod", "other")
        .replace("pve.example", "pve-1.example");
    bed.apply(&other).await;
    bed.until_ready::<Provider>("other").await;
    let clone = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMClone",
        "metadata": { "name": "copy" }, "spec": { "sourceVMRef": { "name": "web-server" } },
    });
    bed.try_apply(&clone).await.unwrap();
    bed.until_ready::<VMClone>("copy").await;
    let made = bed.guests_of(0).await;
    assert!(made.iter().any(|guest| guest.name == "copy"), "{made:?}");
}
