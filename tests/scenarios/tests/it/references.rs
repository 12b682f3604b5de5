//! What becomes of a guest when an object beside its own changes: its Provider, a class, a placement policy.

use std::time::Duration;

use api::vm::{
    Container, Provider, VMBackup, VMClass, VMMigration, VMPlacementPolicy, VMSnapshot,
    VirtualMachine,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Resource,
    api::{ObjectMeta, PostParams},
    core::NamespaceResourceScope,
};
use pve::PoolId;
use scenarios::Bed;
use serde_json::{Value, json};

use crate::{manifest, prepared, with_machine};

async fn members(bed: &Bed, pool: &PoolId) -> Vec<u32> {
    let pool = bed.root().pools().get(pool).await.unwrap();
    let members = pool.members.iter().filter_map(|member| member.vmid);
    members.map(pve::Vmid::get).collect()
}

#[tokio::test(start_paused = true)]
async fn another_default_pool_is_for_new_guests() {
    let bed = prepared().await;
    let pools = ["old", "new"].map(|name| PoolId::new(name).unwrap());
    for pool in &pools {
        bed.root().pools().create(pool, None).await.unwrap();
    }
    let joins = |pool: &str| json!({ "defaults": { "pool": pool } });
    bed.change::<Provider>("proxmox-prod", joins("old")).await;
    bed.apply(manifest!("machine")).await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.until_ready::<Container>("cache").await;
    let before = members(&bed, &pools[0]).await;
    assert_eq!(before.len(), 2);
    bed.sleep(Duration::from_mins(1)).await;

    bed.change::<Provider>("proxmox-prod", joins("new")).await;
    let second = manifest!("machine").replace("name: web-server", "name: second");
    bed.apply(&second).await;
    bed.until_ready::<VirtualMachine>("second").await;
    bed.sleep(Duration::from_mins(10)).await;
    assert_eq!(members(&bed, &pools[0]).await, before);
    let joined = bed.guest("second").await.vmid;
    assert_eq!(members(&bed, &pools[1]).await, [joined]);

    // What was named is left when it is named no longer.
    for pool in [json!("new"), json!(null)] {
        bed.change::<VirtualMachine>("web-server", json!({ "pool": pool }))
            .await;
        bed.until_ready::<VirtualMachine>("web-server").await;
        bed.sleep(Duration::from_mins(1)).await;
    }
    assert_eq!(members(&bed, &pools[0]).await.len(), 1);
    assert_eq!(members(&bed, &pools[1]).await, [joined]);
}

#[tokio::test(start_paused = true)]
async fn tags_that_people_put_on_a_container_stay_when_a_policy_speaks_of_its_labels() {
    let bed = prepared().await;
    let mut container = scenarios::documents(include_str!("manifests/container.yaml")).remove(0);
    container["metadata"]["labels"] = json!({ "role": "cache" });
    bed.try_apply(&container).await.unwrap();
    bed.until_ready::<Container>("cache").await;
    let guest = bed.guest("cache").await;
    bed.configure(&guest, "tags", "theirs").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMPlacementPolicy
metadata: { name: apart }
spec: { antiAffinity: [{ key: role, operator: Exists }] }
",
    )
    .await;
    bed.sleep(Duration::from_mins(2)).await;
    let tags = bed.guest("cache").await.key("tags").to_owned();
    let tags: Vec<&str> = tags.split(';').collect();
    assert!(tags.contains(&"theirs") && tags.len() == 2, "{tags:?}");
}

async fn until_used<K>(bed: &Bed, name: &str, times: i32)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug,
{
    let used = |object: &K| {
        let object: Value = serde_json::to_value(object).unwrap();
        object["status"]["usedBy"] == json!(times)
    };
    bed.until(name, "used so often", used).await;
}

#[tokio::test(start_paused = true)]
async fn a_class_and_a_policy_without_a_machine_are_used_by_one_less() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClass
metadata: { name: medium }
spec: { cpus: 4, memory: 8Gi }
---
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMPlacementPolicy
metadata: { name: anywhere }
spec: {}
",
    )
    .await;
    bed.apply(manifest!("machine")).await;
    let named = json!({ "placementRef": { "name": "anywhere" } });
    bed.change::<VirtualMachine>("web-server", named).await;
    until_used::<VMClass>(&bed, "small", 1).await;
    until_used::<VMPlacementPolicy>(&bed, "anywhere", 1).await;
    let other = json!({ "classRef": { "name": "medium" }, "placementRef": null });
    bed.change::<VirtualMachine>("web-server", other).await;
    until_used::<VMClass>(&bed, "medium", 1).await;
    until_used::<VMClass>(&bed, "small", 0).await;
    until_used::<VMPlacementPolicy>(&bed, "anywhere", 0).await;
    bed.delete::<VirtualMachine>("web-server").await;
    until_used::<VMClass>(&bed, "medium", 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_class_is_deleted_says_so_at_once() {
    let bed = with_machine().await;
    bed.delete::<VMClass>("small").await;
    bed.sleep(Duration::from_secs(5)).await;
    let machine = bed.get::<VirtualMachine>("web-server").await;
    let conditions = machine.status.unwrap().conditions;
    let ready = api::vm::condition(&conditions, "Ready").unwrap();
    assert_eq!(ready.reason, "ClassNotFound", "{ready:?}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_counts_containers_as_they_come_and_go() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    let counts = |count| {
        move |provider: &Provider| {
            let status = provider.status.as_ref();
            status.and_then(|status| status.connected_vms) == Some(count)
        }
    };
    bed.sleep(Duration::from_secs(2)).await;
    assert!(counts(1)(&bed.get::<Provider>("proxmox-prod").await));
    bed.delete::<Container>("cache").await;
    bed.sleep(Duration::from_secs(2)).await;
    assert!(counts(0)(&bed.get::<Provider>("proxmox-prod").await));
}

/// Why an object of a namespace is not Ready.
async fn reason<K>(bed: &Bed, place: &str, name: &str) -> String
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + serde::Serialize
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(bed.client.clone(), place);
    let object = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
    let conditions = object["status"]["conditions"].as_array().unwrap().clone();
    let ready = conditions.iter().find(|it| it["type"] == "Ready").unwrap();
    ready["reason"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn who_may_not_use_a_provider_any_more_has_nothing_new_done_there() {
    let bed = prepared().await;
    let team = Namespace {
        metadata: ObjectMeta {
            name: Some("team".to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces: Api<Namespace> = Api::all(bed.client.clone());
    let created = namespaces.create(&PostParams::default(), &team).await;
    created.unwrap();
    let allowed = |who: Value| json!({ "allowedNamespaces": who });
    bed.change::<Provider>("proxmox-prod", allowed(json!(["team"])))
        .await;
    let theirs = async |mut document: Value| {
        document["metadata"]["namespace"] = json!("team");
        bed.try_apply(&document).await.unwrap();
    };
    for text in [manifest!("image"), manifest!("class-small")] {
        theirs(scenarios::documents(text).remove(0)).await;
    }
    let mut machine = scenarios::documents(manifest!("machine")).remove(0);
    machine["spec"]["providerRef"] = json!({ "name": "proxmox-prod", "namespace": "default" });
    theirs(machine).await;
    bed.sleep(Duration::from_mins(3)).await;
    let ready = reason::<VirtualMachine>(&bed, "team", "web-server").await;
    assert_eq!(ready, "Running");

    bed.change::<Provider>("proxmox-prod", allowed(json!([])))
        .await;
    bed.pve().control().reset_counts();
    let of = json!({ "name": "web-server" });
    for (kind, spec) in [
        ("VMSnapshot", json!({ "vmRef": of })),
        ("VMBackup", json!({ "vmRef": of, "storage": "local" })),
        ("VMMigration", json!({ "vmRef": of, "targetNode": "pve2" })),
    ] {
        theirs(json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": kind,
            "metadata": { "name": "new" }, "spec": spec,
        }))
        .await;
    }
    bed.sleep(Duration::from_mins(2)).await;
    let refused = "ProviderNotAllowed";
    assert_eq!(
        reason::<VirtualMachine>(&bed, "team", "web-server").await,
        refused
    );
    assert_eq!(reason::<VMSnapshot>(&bed, "team", "new").await, refused);
    assert_eq!(reason::<VMBackup>(&bed, "team", "new").await, refused);
    assert_eq!(reason::<VMMigration>(&bed, "team", "new").await, refused);
    let counts = bed.pve().control().counts();
    let changes: Vec<_> = counts.keys().filter(|it| it.starts_with("POST")).collect();
    assert!(changes.is_empty(), "{changes:?}");
}
