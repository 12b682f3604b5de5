//! The API of the management cluster, asked with patience.

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Bed, PATIENCE};
use crate::objects::{Kind, kinds};

impl Bed {
    pub(super) fn api(&self, namespace: &str, kind: Kind) -> Api<DynamicObject> {
        let resource = kind.resource();
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    /// Applies an object as `kubectl apply --server-side` does; says what the API server objects to.
    pub async fn try_apply(&self, namespace: &str, object: &Value) -> Result<Value, kube::Error> {
        let kind = object["kind"].as_str().unwrap();
        let version = object["apiVersion"].as_str().unwrap();
        let known = kinds::ALL.iter().find(|known| known.kind == kind);
        let known = known.unwrap_or_else(|| panic!("which resource is {kind}?"));
        let mut resource = known.resource();
        version.clone_into(&mut resource.api_version);
        resource.version = version.rsplit('/').next().unwrap().to_owned();
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        };
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("user").force();
        let patch = Patch::Apply(object);
        let applied = patiently(|| api.patch(name, &params, &patch)).await?;
        Ok(serde_json::to_value(applied).unwrap())
    }

    /// Applies an object.
    pub async fn apply(&self, namespace: &str, object: &Value) -> Value {
        let applied = self.try_apply(namespace, object).await;
        applied.unwrap_or_else(|error| panic!("{error}\n{object:#}"))
    }

    /// Changes an object.
    pub async fn patch(&self, namespace: &str, kind: Kind, name: &str, patch: &Value) {
        let (api, params) = (self.api(namespace, kind), PatchParams::default());
        let patch = Patch::Merge(patch);
        patiently(|| api.patch(name, &params, &patch))
            .await
            .unwrap_or_else(|error| panic!("{} {name}: {error}", kind.kind));
    }

    /// An object, if it is there.
    pub async fn get(&self, namespace: &str, kind: Kind, name: &str) -> Option<Value> {
        let api = self.api(namespace, kind);
        let found = patiently(|| api.get_opt(name)).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    /// All objects of a kind, by name.
    pub async fn list(&self, namespace: &str, kind: Kind) -> Vec<Value> {
        let (api, everything) = (self.api(namespace, kind), ListParams::default());
        let listed = patiently(|| api.list(&everything)).await;
        let mut all: Vec<Value> = listed
            .unwrap_or_else(|error| panic!("{}: {error}", kind.kind))
            .into_iter()
            .map(|object| serde_json::to_value(object).unwrap())
            .collect();
        all.sort_by_key(|object| object["metadata"]["name"].as_str().map(str::to_owned));
        all
    }

    /// Asks for the end of an object.
    pub async fn delete(&self, namespace: &str, kind: Kind, name: &str) {
        let (api, params) = (self.api(namespace, kind), DeleteParams::default());
        let asked = patiently(|| api.delete(name, &params)).await;
        asked.unwrap_or_else(|error| panic!("{} {name}: {error}", kind.kind));
    }
}

/// Asks the API server until it answers for itself, which it does not while it waits for others: a webhook that is just
/// starting or was just moved, a definition it has not read yet, more work than it can do.
pub(super) async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let start = Instant::now();
    loop {
        match ask().await {
            Err(error) if is_passing(&error) && start.elapsed() < *PATIENCE => {
                sleep(Duration::from_millis(250)).await;
            }
            answer => return answer,
        }
    }
}

fn is_passing(error: &kube::Error) -> bool {
    match error {
        // What is not found has a reason; a path that is not served has none.
        kube::Error::Api(status) if status.code == 404 => status.reason != "NotFound",
        kube::Error::Api(status) => [409, 429].contains(&status.code) || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}
