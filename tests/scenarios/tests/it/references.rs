//! What becomes of a guest when an object beside its own changes: its Provider, a class, a placement policy.

use std::time::Duration;

use api::vm::{Container, Provider, VMClass, VMPlacementPolicy, VirtualMachine};
use kube::{Resource, core::NamespaceResourceScope};
use pve::PoolId;
use scenarios::Bed;
use serde_json::{Value, json};

use crate::{manifest, prepared};

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
