//! A namespace that is deleted takes its contents along.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Housekeeper;
use crate::{
    api::{Address, By, DeleteOptions, Policy},
    object,
};

/// The finalizer by which each namespace waits for its contents.
const FINALIZER: &str = "kubernetes";

impl Housekeeper {
    /// Empties terminating namespaces and lets go of those that are empty; true when something failed.
    pub(super) async fn empty_namespaces(&mut self) -> bool {
        let Ok(snapshot) = self.api.store.list("/namespaces", "", None) else {
            return false;
        };
        let mut failed = false;
        for entry in snapshot.entries {
            let terminating = {
                let mark = b"\"deletionTimestamp\"";
                entry.bytes.windows(mark.len()).any(|w| w == mark)
            };
            if terminating {
                failed |= !self.empty_namespace(&entry.value()).await;
            }
        }
        failed
    }

    async fn empty_namespace(&self, namespace: &Value) -> bool {
        let finalizers = object::strings(&namespace["spec"]["finalizers"]);
        if !object::is_deleting(namespace) || !finalizers.contains(&FINALIZER) {
            return true;
        }
        let name = object::name(namespace);
        let kinds = self.api.kinds();
        let mut remaining: Vec<(String, usize)> = Vec::new();
        let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
        for resource in kinds.stored().into_iter().filter(|r| r.namespaced) {
            let Ok(snapshot) = self
                .api
                .store
                .list(&resource.storage, &format!("{name}/"), None)
            else {
                continue;
            };
            let mut left = 0;
            for entry in snapshot.entries {
                let value = entry.value();
                if object::is_deleting(&value) && !object::finalizers(&value).is_empty() {
                    left += 1;
                    for finalizer in object::finalizers(&value) {
                        *finalizers.entry(finalizer.to_owned()).or_default() += 1;
                    }
                    continue;
                }
                let options = DeleteOptions {
                    policy: Some(Policy::Background),
                    // Nobody is left to end pods gracefully for.
                    grace: Some(0),
                    ..DeleteOptions::default()
                };
                let at = (name, object::name(&value));
                match self
                    .api
                    .delete_object(&self.context, &resource, at, &options)
                    .await
                {
                    Ok(deleted) if deleted.gone => {}
                    Ok(deleted) => {
                        left += 1;
                        for finalizer in object::finalizers(&deleted.object) {
                            *finalizers.entry(finalizer.to_owned()).or_default() += 1;
                        }
                    }
                    Err(status) if status.is_not_found() => {}
                    Err(error) => {
                        tracing::debug!(%error, namespace = name, "contents cannot be deleted yet");
                        left += 1;
                    }
                }
            }
            if left > 0 {
                remaining.push((format!("{}.{}", resource.plural, resource.group), left));
            }
        }
        let finalizers: Vec<_> = finalizers.into_iter().collect();
        let others = object::strings(&namespace["spec"]["finalizers"]).len() > 1;
        // Nobody reads what is said about a namespace that goes with this step.
        let told = if remaining.is_empty() && !others {
            true
        } else {
            self.report_namespace(name, &remaining, &finalizers).await
        };
        if remaining.is_empty() {
            return self.finish_namespace(name).await && told;
        }
        told
    }

    /// Gives up the namespace's own finalizer; with no other left it is gone.
    async fn finish_namespace(&self, name: &str) -> bool {
        let kinds = self.api.kinds();
        let Some(namespaces) = kinds.find("", "v1", "namespaces") else {
            return true;
        };
        let at = Address {
            namespace: "",
            name,
            subresource: "finalize",
        };
        let finished = self
            .api
            .change(&self.context, &namespaces, at, By::Update, |old| {
                let mut new = old.clone();
                let left = object::strings(&old["spec"]["finalizers"]).into_iter();
                let left: Vec<&str> = left.filter(|name| *name != FINALIZER).collect();
                let left = (!left.is_empty()).then(|| json!(left));
                object::put(&mut new["spec"], "finalizers", left);
                Ok(new)
            })
            .await;
        finished.is_ok_and(|_| true) || self.api.store.get("/namespaces", name).is_none()
    }

    /// Says what a namespace still waits for.
    async fn report_namespace(
        &self,
        name: &str,
        remaining: &[(String, usize)],
        finalizers: &[(String, usize)],
    ) -> bool {
        let kinds = self.api.kinds();
        let Some(namespaces) = kinds.find("", "v1", "namespaces") else {
            return true;
        };
        let spell = |list: &[(String, usize)], what: &str| {
            let parts: Vec<String> = list
                .iter()
                .map(|(name, count)| format!("{name}{what} {count} resource instances"))
                .collect();
            parts.join(", ")
        };
        let content = format!("Some resources are remaining: {}", spell(remaining, " has"));
        let waiting = format!(
            "Some content in the namespace has finalizers remaining: {}",
            spell(finalizers, " in")
        );
        let content = match remaining {
            [] => ("ContentRemoved", "All content successfully removed"),
            _ => ("SomeResourcesRemain", content.as_str()),
        };
        let waiting = match finalizers {
            [] => (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
            _ => ("SomeFinalizersRemain", waiting.as_str()),
        };
        let said = |some: bool| if some { "True" } else { "False" };
        let said = [
            (
                "NamespaceDeletionDiscoveryFailure",
                "False",
                (
                    "ResourcesDiscovered",
                    "All resources successfully discovered",
                ),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                (
                    "ParsedGroupVersions",
                    "All legacy kube types successfully parsed",
                ),
            ),
            (
                "NamespaceDeletionContentFailure",
                "False",
                (
                    "ContentDeleted",
                    "All content successfully deleted, may be waiting on finalization",
                ),
            ),
            (
                "NamespaceContentRemaining",
                said(!remaining.is_empty()),
                content,
            ),
            (
                "NamespaceFinalizersRemaining",
                said(!finalizers.is_empty()),
                waiting,
            ),
        ];
        let now = self.api.clock.now_rfc3339();
        let at = Address {
            namespace: "",
            name,
            subresource: "status",
        };
        let reported = self
            .api
            .change(&self.context, &namespaces, at, By::Update, |old| {
                let mut new = old.clone();
                let mut conditions = new["status"]["conditions"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                for (kind, status, why) in said {
                    object::set_condition(&mut conditions, (kind, status), why, &now);
                }
                new["status"]["conditions"] = json!(conditions);
                Ok(new)
            })
            .await;
        // What has finalizers goes when their owners let it; that is an event, not a retry.
        reported.is_ok()
    }
}
