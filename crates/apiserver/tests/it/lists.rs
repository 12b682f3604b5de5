//! Lists in pieces, and what becomes of them when their state is gone.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ListParams, PostParams},
};

use super::client::{config_map, start};

#[tokio::test(start_paused = true)]
async fn a_list_whose_state_is_gone_can_go_on_in_the_current_one() {
    let (server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "d"] {
        maps.create(&PostParams::default(), &config_map(name))
            .await
            .unwrap();
    }
    let first = maps.list(&ListParams::default().limit(1)).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    maps.create(&PostParams::default(), &config_map("c"))
        .await
        .unwrap();

    // As long as the state is there, what came later is not in it.
    let rest = ListParams::default().continue_token(&token);
    let names = |list: kube::core::ObjectList<ConfigMap>| -> Vec<String> {
        let maps = list.items.into_iter();
        maps.map(|map| map.metadata.name.unwrap()).collect()
    };
    assert_eq!(names(maps.list(&rest).await.unwrap()), ["b", "d"]);

    server.compact();
    let kube::Error::Api(status) = maps.list(&rest).await.unwrap_err() else {
        panic!("the server answers with a status");
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(
        status
            .message
            .contains("or use the continue token in this response")
    );
    let resume = status.metadata.unwrap().continue_.unwrap();
    let rest = ListParams::default().continue_token(&resume);
    assert_eq!(names(maps.list(&rest).await.unwrap()), ["b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_a_state_before_the_floor_is_gone() {
    let (server, client) = start();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let made = maps
        .create(&PostParams::default(), &config_map("a"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &config_map("b"))
        .await
        .unwrap();
    server.compact();
    let version = made.metadata.resource_version.unwrap();
    let then = ListParams::default()
        .at(&version)
        .matching(kube::api::VersionMatch::Exact);
    let kube::Error::Api(status) = maps.list(&then).await.unwrap_err() else {
        panic!("the server answers with a status");
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
}
