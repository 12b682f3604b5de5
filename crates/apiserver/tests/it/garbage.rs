//! What a cluster does by itself.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
    runtime::wait::{await_condition, conditions},
};
use serde_json::json;

use super::client::{config_map, start};

async fn owner_and_dependent(client: &Client, block: bool) -> Api<ConfigMap> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let owner = maps
        .create(&PostParams::default(), &config_map("owner"))
        .await
        .unwrap();
    let dependent: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "dependent", "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
            "uid": owner.metadata.uid, "blockOwnerDeletion": block,
        }]},
    }))
    .unwrap();
    maps.create(&PostParams::default(), &dependent)
        .await
        .unwrap();
    maps
}

fn policy(policy: PropagationPolicy) -> DeleteParams {
    DeleteParams {
        propagation_policy: Some(policy),
        ..DeleteParams::default()
    }
}

async fn gone(maps: &Api<ConfigMap>, name: &str) {
    let uid = match maps.get_opt(name).await.unwrap() {
        Some(map) => map.metadata.uid.unwrap(),
        None => return,
    };
    await_condition(maps.clone(), name, conditions::is_deleted(&uid))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn dependents_go_after_their_owner() {
    let (_server, client) = start();
    let maps = owner_and_dependent(&client, false).await;
    maps.delete("owner", &policy(PropagationPolicy::Background))
        .await
        .unwrap();
    gone(&maps, "dependent").await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_waits_for_its_dependents() {
    let (_server, client) = start();
    let maps = owner_and_dependent(&client, true).await;
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    maps.patch("dependent", &PatchParams::default(), &hold)
        .await
        .unwrap();
    maps.delete("owner", &policy(PropagationPolicy::Foreground))
        .await
        .unwrap();
    await_condition(maps.clone(), "dependent", |map: Option<&ConfigMap>| {
        map.is_some_and(|m| m.metadata.deletion_timestamp.is_some())
    })
    .await
    .unwrap();
    assert!(maps.get_opt("owner").await.unwrap().is_some());
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("dependent", &PatchParams::default(), &release)
        .await
        .unwrap();
    gone(&maps, "owner").await;
}

#[tokio::test(start_paused = true)]
async fn orphans_lose_the_reference_and_stay() {
    let (_server, client) = start();
    let maps = owner_and_dependent(&client, false).await;
    maps.delete("owner", &policy(PropagationPolicy::Orphan))
        .await
        .unwrap();
    gone(&maps, "owner").await;
    let dependent = maps.get("dependent").await.unwrap();
    assert_eq!(dependent.metadata.owner_references, None);
    assert_eq!(dependent.metadata.deletion_timestamp, None);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_takes_its_contents_along() {
    let (_server, client) = start();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "x"}})).unwrap();
    let created = namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "x");
    assert!(accounts.get_opt("default").await.unwrap().is_some());
    let maps: Api<ConfigMap> = Api::namespaced(client, "x");
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    namespaces
        .delete("x", &DeleteParams::default())
        .await
        .unwrap();
    await_condition(
        namespaces,
        "x",
        conditions::is_deleted(&created.metadata.uid.unwrap()),
    )
    .await
    .unwrap();
    assert!(
        maps.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
