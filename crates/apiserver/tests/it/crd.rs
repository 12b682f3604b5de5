//! CustomResourceDefinitions and the controllers that live on them.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResource, CustomResourceExt as _, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::{
        Controller,
        controller::Action,
        wait::{await_condition, conditions},
        watcher,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::client::{code, start};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Widget",
    namespaced,
    status = "WidgetStatus"
)]
pub(crate) struct WidgetSpec {
    size: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WidgetStatus {
    seen: u32,
}

pub(crate) async fn define(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &Widget::crd())
        .await
        .unwrap();
    await_condition(
        crds,
        "widgets.example.com",
        conditions::is_crd_established(),
    )
    .await
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_exists_once_its_definition_is_established() {
    let (_server, client) = start();
    let widgets: Api<Widget> = Api::default_namespaced(client.clone());
    assert_eq!(
        code(widgets.list(&ListParams::default()).await.unwrap_err()).0,
        404
    );
    define(&client).await;
    let widget = Widget::new("w", WidgetSpec { size: 1 });
    let created = widgets
        .create(&PostParams::default(), &widget)
        .await
        .unwrap();
    assert_eq!(created.metadata.generation, Some(1));
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_through_different_doors() {
    let (_server, client) = start();
    define(&client).await;
    let widgets: Api<Widget> = Api::default_namespaced(client);
    let mut widget = Widget::new("w", WidgetSpec { size: 1 });
    widget.status = Some(WidgetStatus { seen: 9 });
    let created = widgets
        .create(&PostParams::default(), &widget)
        .await
        .unwrap();
    assert!(created.status.is_none());

    let patch = Patch::Merge(json!({"spec": {"size": 5}, "status": {"seen": 3}}));
    let patched = widgets
        .patch_status("w", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!((patched.spec.size, patched.status.unwrap().seen), (1, 3));
    assert_eq!(patched.metadata.generation, Some(1));

    let patched = widgets
        .patch("w", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.spec.size, 5);
    assert_eq!(patched.metadata.generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_controller_runs_on_it() {
    let (_server, client) = start();
    define(&client).await;
    let widgets: Api<Widget> = Api::default_namespaced(client.clone());
    let controller = Controller::new(widgets.clone(), watcher::Config::default())
        .run(
            |widget: Arc<Widget>, api: Arc<Api<Widget>>| async move {
                let patch = json!({
                    "apiVersion": "example.com/v1", "kind": "Widget",
                    "metadata": {"name": widget.name_any()},
                    "status": {"seen": widget.spec.size},
                });
                api.patch_status(
                    &widget.name_any(),
                    &PatchParams::apply("test").force(),
                    &Patch::Apply(patch),
                )
                .await?;
                Ok::<_, kube::Error>(Action::requeue(Duration::from_hours(1)))
            },
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(widgets.clone()),
        )
        .for_each(|_| async {});
    let task = tokio::spawn(controller);
    widgets
        .create(
            &PostParams::default(),
            &Widget::new("w", WidgetSpec { size: 7 }),
        )
        .await
        .unwrap();
    await_condition(widgets, "w", |w: Option<&Widget>| {
        w.and_then(|w| w.status.as_ref())
            .is_some_and(|s| s.seen == 7)
    })
    .await
    .unwrap();
    task.abort();
}
