//! Objects as users write and read them.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use api::vm::condition;
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::{GroupVersionKind, NamespaceResourceScope},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::Bed;

/// A manifest as kubectl reads it.
pub type Document = Value;

/// Where a disk image is that lives and flows make machines of.
pub(crate) const URL: &str = "https://images.example.com/noble.img";
/// What is there.
pub(crate) const CONTENT: &[u8] = b"QFI\xfb a small disk image";

/// How long scenarios wait for something that must happen; virtual time, so it may be long.
const PATIENCE: Duration = Duration::from_mins(30);

/// The plurals of our kinds; rendering the definitions takes longer than most scenarios.
fn plurals() -> &'static BTreeMap<String, String> {
    static PLURALS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        let names = api::crds().into_iter().map(|crd| crd.spec.names);
        names.map(|names| (names.kind, names.plural)).collect()
    });
    &PLURALS
}

/// The documents of a YAML text, with YAML 1.1's booleans as kubectl has them.
pub fn documents(text: &str) -> Vec<Document> {
    let parts = text.split("\n---\n").filter(|part| !part.trim().is_empty());
    parts
        .map(|part| serde_saphyr::from_str(part).unwrap())
        .collect()
}

impl Bed {
    /// The API of a kind in the default namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Applies every document of a YAML text, as `kubectl apply --server-side` does.
    pub async fn apply(&self, text: &str) {
        for document in documents(text) {
            self.try_apply(&document)
                .await
                .unwrap_or_else(|error| panic!("{document}\n{error}"));
        }
    }

    /// Applies one document; the answer is the API server's.
    pub async fn try_apply(&self, document: &Document) -> kube::Result<DynamicObject> {
        let version = document["apiVersion"].as_str().unwrap();
        let kind = document["kind"].as_str().unwrap();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if let Some(plural) = plurals().get(kind) {
            resource.plural.clone_from(plural);
        }
        let place = document["metadata"]["namespace"].as_str();
        let place = place.unwrap_or("default");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), place, &resource);
        let name = document["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("kubectl").force();
        api.patch(name, &params, &Patch::Apply(document)).await
    }

    /// Merges a change into an object's spec.
    pub async fn change<K>(&self, name: &str, spec: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let patch = json!({ "spec": spec });
        self.api::<K>()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// Deletes an object and waits until it is gone.
    pub async fn delete<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        self.api::<K>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
        self.until_gone::<K>(name).await;
    }

    /// Waits until an object is gone.
    pub async fn until_gone<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api = self.api::<K>();
        let begun = tokio::time::Instant::now();
        while let Some(object) = api.get_opt(name).await.unwrap() {
            let waited = begun.elapsed();
            assert!(
                waited <= PATIENCE,
                "{name} is still there: {object:#?}\n{}",
                self.story(name).await
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// An object.
    pub async fn get<K>(&self, name: &str) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        self.api::<K>().get(name).await.unwrap()
    }

    /// Waits until an object is as it should be.
    pub async fn until<K>(&self, name: &str, what: &str, is: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        let api = self.api::<K>();
        let begun = tokio::time::Instant::now();
        loop {
            let object = api.get(name).await.unwrap();
            if is(&object) {
                return object;
            }
            if begun.elapsed() > PATIENCE {
                let shown = serde_json::to_string_pretty(&object).unwrap();
                panic!("{name} is not {what}: {shown}\n{}", self.story(name).await);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until an object is Ready for its present spec.
    pub async fn until_ready<K>(&self, name: &str) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        self.until(name, "Ready", |object: &K| {
            let status = serde_json::to_value(object).unwrap()["status"].clone();
            let current = status["observedGeneration"].as_i64() == object.meta().generation;
            current && read_condition(&status, "Ready").is_some_and(|c| c.status == "True")
        })
        .await
    }

    /// Waits until a condition has this reason.
    pub async fn until_reason<K>(&self, name: &str, kind: &str, reason: &str) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + std::fmt::Debug,
    {
        self.until(name, &format!("{kind} for {reason}"), |object: &K| {
            let status = serde_json::to_value(object).unwrap()["status"].clone();
            read_condition(&status, kind).is_some_and(|c| c.reason == reason)
        })
        .await
    }

    /// What was said about an object, oldest first.
    pub async fn story(&self, name: &str) -> String {
        let events: Api<Event> = self.api();
        let mut events = events.list(&ListParams::default()).await.unwrap().items;
        events.retain(|event| event.involved_object.name.as_deref() == Some(name));
        events.sort_by_key(|event| event.first_timestamp.as_ref().map(|time| time.0));
        let line = |event: &Event| {
            let at = event
                .first_timestamp
                .as_ref()
                .map(|time| time.0.to_string());
            let (reason, message) = (event.reason.as_deref(), event.message.as_deref());
            format!(
                "{} {}: {}",
                at.unwrap_or_default(),
                reason.unwrap_or_default(),
                message.unwrap_or_default()
            )
        };
        events.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The names of all objects of a kind.
    pub async fn names<K>(&self) -> Vec<String>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let all = self.api::<K>().list(&ListParams::default()).await.unwrap();
        all.items.iter().map(kube::ResourceExt::name_any).collect()
    }
}

fn read_condition(status: &Value, kind: &str) -> Option<Condition> {
    let all: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).ok()?;
    condition(&all, kind).cloned()
}
