//! Watches as kube-rs' watcher uses them.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, PostParams, WatchEvent, WatchParams},
    runtime::{WatchStreamExt as _, watcher},
};

use super::client::{config_map, start};

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_everything_in_order() {
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let (_server, client) = start();
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.create(&PostParams::default(), &config_map("old"))
            .await
            .unwrap();
        let mut stream = watcher(maps.clone(), config).boxed();
        let mut seen = Vec::new();
        for step in 0..6 {
            let event = stream.try_next().await.unwrap().unwrap();
            seen.push(match event {
                watcher::Event::Init => "init".to_owned(),
                watcher::Event::InitApply(map) => format!("initial {}", map.metadata.name.unwrap()),
                watcher::Event::InitDone => "ready".to_owned(),
                watcher::Event::Apply(map) => format!("apply {}", map.metadata.name.unwrap()),
                watcher::Event::Delete(map) => format!("delete {}", map.metadata.name.unwrap()),
            });
            match step {
                2 => drop(
                    maps.create(&PostParams::default(), &config_map("new"))
                        .await
                        .unwrap(),
                ),
                3 => {
                    let mut map = maps.get("new").await.unwrap();
                    map.data = None;
                    maps.replace("new", &PostParams::default(), &map)
                        .await
                        .unwrap();
                }
                4 => drop(maps.delete("new", &DeleteParams::default()).await.unwrap()),
                _ => {}
            }
        }
        assert_eq!(
            seen,
            [
                "init",
                "initial old",
                "ready",
                "apply new",
                "apply new",
                "delete new"
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_floor_is_gone() {
    let (server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let first = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    server.compact();
    let version = first.metadata.resource_version.unwrap();
    let mut stream = maps
        .watch(&WatchParams::default(), &version)
        .await
        .unwrap()
        .boxed();
    match stream.try_next().await.unwrap().unwrap() {
        WatchEvent::Error(status) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        }
        other => panic!("expected an error, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_was_overtaken_lists_again() {
    let (server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut stream = watcher(maps.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    maps.create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    assert_eq!(
        stream
            .try_next()
            .await
            .unwrap()
            .unwrap()
            .metadata
            .name
            .as_deref(),
        Some("a")
    );
    // Nobody reads the stream while this happens.
    for name in ["b", "c"] {
        maps.create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    server.compact();
    let mut names = std::collections::BTreeSet::new();
    while names.len() < 3 {
        if let Some(Ok(map)) = stream.next().await {
            names.insert(map.metadata.name.unwrap());
        }
    }
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn selectors_turn_changes_into_comings_and_goings() {
    let (_server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut stream = maps
        .watch(&WatchParams::default().labels("on=yes"), "0")
        .await
        .unwrap()
        .boxed();
    let mut map = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    for label in ["yes", "no", "yes"] {
        map.metadata.labels = Some([("on".to_owned(), label.to_owned())].into());
        map = maps
            .replace("a", &PostParams::default(), &map)
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(match stream.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            _ => "other",
        });
    }
    assert_eq!(seen, ["added", "deleted", "added"]);
}
