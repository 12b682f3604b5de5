//! Plain reading and writing of built-in kinds.

use apiserver::InMemory;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

pub(crate) fn start() -> (InMemory, Client) {
    let server = InMemory::new();
    let client = Client::new(server.service(), "default");
    (server, client)
}

pub(crate) fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap()
}

pub(crate) fn code(error: kube::Error) -> (u16, String, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason, status.message),
        other => panic!("not an API error: {other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_is_created_read_changed_and_deleted() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let created = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    assert!(created.metadata.uid.is_some());
    assert_eq!(created.metadata.namespace.as_deref(), Some("default"));

    let mut changed = maps.get("a").await.unwrap();
    assert_eq!(changed, created);
    changed
        .data
        .as_mut()
        .unwrap()
        .insert("b".into(), "2".into());
    let changed = maps
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_ne!(
        changed.metadata.resource_version,
        created.metadata.resource_version
    );

    let patch = Patch::Merge(json!({"data": {"a": null}}));
    let patched = maps
        .patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap().keys().collect::<Vec<_>>(), ["b"]);

    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let (status, reason, message) = code(maps.get("a").await.unwrap_err());
    assert_eq!((status, reason.as_str()), (404, "NotFound"));
    assert_eq!(message, "configmaps \"a\" not found");
}

#[tokio::test(start_paused = true)]
async fn the_second_writer_of_a_state_is_told_so() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut one = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let mut two = one.clone();
    one.data
        .as_mut()
        .unwrap()
        .insert("one".into(), String::new());
    two.data
        .as_mut()
        .unwrap()
        .insert("two".into(), String::new());
    maps.replace("a", &PostParams::default(), &one)
        .await
        .unwrap();
    let (status, reason, message) = code(
        maps.replace("a", &PostParams::default(), &two)
            .await
            .unwrap_err(),
    );
    assert_eq!((status, reason.as_str()), (409, "Conflict"));
    assert_eq!(
        message,
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
}

#[tokio::test(start_paused = true)]
async fn writing_what_is_there_already_is_no_write() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let one = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    let two = maps
        .replace("a", &PostParams::default(), &one)
        .await
        .unwrap();
    assert_eq!(one.metadata.resource_version, two.metadata.resource_version);
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_chunks_of_one_state() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "c", "d", "e"] {
        maps.create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    maps.delete("d", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let rest = maps
        .list(&ListParams::default().limit(10).continue_token(&token))
        .await
        .unwrap();
    let names: Vec<_> = rest
        .items
        .iter()
        .map(|m| m.metadata.name.clone().unwrap())
        .collect();
    assert_eq!(names, ["c", "d", "e"]);
    assert_eq!(
        rest.metadata.resource_version,
        first.metadata.resource_version
    );
    assert_eq!(rest.metadata.continue_, None);
}

#[tokio::test(start_paused = true)]
async fn names_are_generated() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map = serde_json::from_value(json!({"metadata": {"generateName": "x-"}})).unwrap();
    let created = maps.create(&PostParams::default(), &map).await.unwrap();
    let name = created.metadata.name.unwrap();
    assert!(name.starts_with("x-") && name.len() == 7, "{name}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_in_a_namespace_that_does_not_exist() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    let error = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap_err();
    assert_eq!(code(error).2, "namespaces \"nowhere\" not found");
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut map = config_map("a");
    map.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    maps.create(&PostParams::default(), &map).await.unwrap();
    let answer = maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(answer.left().unwrap().metadata.deletion_timestamp.is_some());
    assert!(maps.get_opt("a").await.unwrap().is_some());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn dry_runs_answer_as_if_and_change_nothing() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let created = maps.create(&dry, &config_map("a")).await.unwrap();
    assert!(created.metadata.uid.is_some());
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn secrets_keep_plain_text_encoded() {
    let (_server, client) = start();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = serde_json::from_value(json!({
        "metadata": {"name": "s"}, "stringData": {"k": "v"},
    }))
    .unwrap();
    let created = secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    assert_eq!(created.data.unwrap()["k"].0, b"v");
    assert_eq!(created.string_data, None);
    let namespaces: Api<Namespace> = Api::all(client);
    assert!(namespaces.get_opt("default").await.unwrap().is_some());
}
