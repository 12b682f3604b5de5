//! A definition that is deleted takes its objects along.

use serde_json::{Value, json};

use super::Housekeeper;
use crate::{
    api::{By, CLEANUP, CRDS, DeleteOptions, Policy},
    object,
    registry::{builtin, text},
};

impl Housekeeper {
    /// Deletes the objects of definitions on their way out; true when something must be tried again.
    pub(super) async fn empty_definitions(&mut self) -> bool {
        let mut failed = false;
        for key in self.departing.clone() {
            match self.api.store.get(CRDS, &key) {
                Some(entry) => failed |= !self.empty_definition(&entry.value()).await,
                None => drop(self.departing.remove(&key)),
            }
        }
        failed
    }

    async fn empty_definition(&self, crd: &Value) -> bool {
        if !object::is_deleting(crd) || !object::has_finalizer(crd, CLEANUP) {
            return true;
        }
        let spec = &crd["spec"];
        let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
        let kinds = self.api.kinds();
        let mut left = false;
        if let Some(resource) = kinds
            .by_storage(&builtin::storage(group, plural))
            .or_else(|| kinds.preferred(group, plural))
        {
            let Ok(snapshot) = self.api.store.list(&resource.storage, "", None) else {
                return false;
            };
            for entry in snapshot.entries {
                let value = entry.value();
                left = true;
                if object::is_deleting(&value) {
                    continue;
                }
                let options = DeleteOptions {
                    policy: Some(Policy::Background),
                    ..DeleteOptions::default()
                };
                let at = (object::namespace(&value), object::name(&value));
                if let Err(error) = self
                    .api
                    .delete_object(&self.context, &resource, at, &options)
                    .await
                {
                    tracing::debug!(%error, "an object of a deleted definition remains");
                }
            }
            left = left
                && self
                    .api
                    .store
                    .list(&resource.storage, "", None)
                    .is_ok_and(|s| !s.entries.is_empty());
        }
        let Some(definitions) =
            kinds.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        else {
            return true;
        };
        let now = self.api.clock.now_rfc3339();
        if left {
            let told = self
                .edit_status(&definitions, crd, |new| {
                    let mut conditions = new["status"]["conditions"]
                        .as_array()
                        .cloned()
                        .unwrap_or_default();
                    object::set_condition(
                        &mut conditions,
                        ("Terminating", "True"),
                        (
                            "InstanceDeletionInProgress",
                            "CustomResource deletion is in progress",
                        ),
                        &now,
                    );
                    new["status"]["conditions"] = json!(conditions);
                })
                .await;
            return told;
        }
        self.edit(&definitions, crd, |new| {
            object::remove_finalizer(new, CLEANUP);
        })
        .await
        .is_ok()
    }

    async fn edit_status(
        &self,
        resource: &std::sync::Arc<crate::registry::Resource>,
        value: &Value,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> bool {
        let at = crate::api::Address {
            namespace: object::namespace(value),
            name: object::name(value),
            subresource: "status",
        };
        self.api
            .change(&self.context, resource, at, By::Update, |old| {
                let mut new = old.clone();
                object::take_meta(&mut new, "resourceVersion");
                change(&mut new);
                Ok(new)
            })
            .await
            .is_ok()
    }
}
