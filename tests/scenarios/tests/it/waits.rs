//! What guests wait for, and what they keep away from.

use std::time::Duration;

use api::vm::{Container, Provider, VirtualMachine};
use serde_json::json;

use crate::prepared;

const POLICY: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMPlacementPolicy
metadata: { name: apart }
spec: { antiAffinity: [{ key: role, operator: Exists }] }
";

fn told_by_secret() -> serde_json::Value {
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": {"name": "web"},
        "spec": {
            "classRef": {"name": "small"}, "imageRef": {"name": "ubuntu-22"},
            "userData": {"cloudInit": {"secretRef": {"name": "late"}}},
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_machine_goes_on_when_its_secret_comes() {
    let bed = prepared().await;
    bed.try_apply(&told_by_secret()).await.unwrap();
    bed.until_reason::<VirtualMachine>("web", "Ready", "SecretNotFound")
        .await;
    bed.sleep(Duration::from_secs(20)).await;
    bed.apply(
        "
apiVersion: v1
kind: Secret
metadata: { name: late }
stringData: { userData: '#cloud-config' }
",
    )
    .await;
    bed.sleep(Duration::from_secs(3)).await;
    let machine: VirtualMachine = bed.get("web").await;
    assert!(machine.status.unwrap().vmid.is_some(), "it still waits");
}

#[tokio::test(start_paused = true)]
async fn a_password_made_of_a_file_has_no_end_of_a_line_in_it() {
    let bed = prepared().await;
    let mut boots = bed.pve().boots();
    for (name, file) in [
        ("unix", "geheim\n"),
        ("dos", "geheim\r\n"),
        ("none", "geheim"),
    ] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"password": file},
        });
        bed.try_apply(&secret).await.unwrap();
        let mut machine = told_by_secret();
        machine["metadata"]["name"] = json!(name);
        machine["spec"]["userData"] = json!({"cloudInit": {"passwordSecretRef": {"name": name}}});
        bed.try_apply(&machine).await.unwrap();
        bed.until_ready::<VirtualMachine>(name).await;
        let read = boots.recv().await.unwrap().seed.unwrap().user_data;
        let lines: Vec<&str> = read.lines().filter(|it| it.contains("geheim")).collect();
        assert_eq!(lines, ["password: \"geheim\""], "{read}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_never_on_waits_for_a_secret_that_it_is_told_of_later() {
    let bed = prepared().await;
    let mut boots = bed.pve().boots();
    let mut machine = told_by_secret();
    let told = machine["spec"]["userData"].take();
    machine["spec"]["powerState"] = json!("Off");
    bed.try_apply(&machine).await.unwrap();
    bed.until_ready::<VirtualMachine>("web").await;
    let late = json!({ "userData": told, "powerState": "On" });
    bed.change::<VirtualMachine>("web", late).await;
    bed.until_reason::<VirtualMachine>("web", "Ready", "SecretNotFound")
        .await;
    bed.sleep(Duration::from_mins(5)).await;
    assert!(!bed.guest("web").await.running, "it does not know its data");
    bed.apply(
        "
apiVersion: v1
kind: Secret
metadata: { name: late }
stringData: { userData: '#cloud-config' }
",
    )
    .await;
    let machine: VirtualMachine = bed.until_ready("web").await;
    let boot = boots.try_recv().unwrap();
    assert_eq!(boot.seed.unwrap().user_data, "#cloud-config");
    let ips = machine.status.unwrap().ips;
    assert!(!ips.is_empty(), "the image's network is kept");
}

#[tokio::test(start_paused = true)]
async fn machines_made_together_keep_apart_from_whoever_has_the_label() {
    let bed = prepared().await;
    bed.apply(POLICY).await;
    for name in ["one", "two", "three"] {
        let machine = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
            "metadata": {"name": name, "labels": {"role": name}},
            "spec": {
                "classRef": {"name": "small"}, "imageRef": {"name": "ubuntu-22"},
                "placementRef": {"name": "apart"},
            },
        });
        bed.try_apply(&machine).await.unwrap();
    }
    let mut nodes = Vec::new();
    for name in ["one", "two", "three"] {
        bed.until_ready::<VirtualMachine>(name).await;
        nodes.push(bed.guest(name).await.node);
    }
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "{nodes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_container_heeds_its_policy_and_has_the_tags_it_is_known_by() {
    let bed = prepared().await;
    bed.change::<Provider>("proxmox-prod", json!({"defaults": {"tags": ["fleet"]}}))
        .await;
    bed.apply(POLICY).await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    let first: Container = bed.until_ready("cache").await;
    let node = first.status.unwrap().node.unwrap();
    // The one template there is lies where the first container is, or can be.
    bed.delete::<Container>("cache").await;
    let machine = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": {"name": "db", "labels": {"role": "db"}},
        "spec": {"classRef": {"name": "small"}, "imageRef": {"name": "ubuntu-22"}, "node": node},
    });
    bed.try_apply(&machine).await.unwrap();
    bed.until_ready::<VirtualMachine>("db").await;
    let container = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "Container",
        "metadata": {"name": "apart", "labels": {"role": "cache"}},
        "spec": {
            "template": "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst",
            "node": node, "placementRef": {"name": "apart"},
        },
    });
    bed.try_apply(&container).await.unwrap();
    bed.sleep(Duration::from_mins(2)).await;
    let container: Container = bed.get("apart").await;
    let status = container.status.unwrap();
    let ready = api::vm::condition(&status.conditions, "Ready").unwrap();
    assert_eq!(ready.status, "False", "{}", ready.message);
    bed.delete::<VirtualMachine>("db").await;
    bed.until_ready::<Container>("apart").await;
    let tags = bed.guest("apart").await.key("tags").to_owned();
    assert!(
        tags.contains("fleet") && tags.contains("role-cache"),
        "{tags}"
    );
    let changed = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "Container",
        "metadata": {"name": "apart"},
        "spec": {
            "template": "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst",
            "unprivileged": false,
        },
    });
    let refused = bed.try_apply(&changed).await.unwrap_err().to_string();
    assert!(refused.contains("unprivileged is used when"), "{refused}");
}
