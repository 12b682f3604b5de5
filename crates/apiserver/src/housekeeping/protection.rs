//! Claims and volumes that are in use stay until they are not.
//!
//! The finalizer is put on each of them when it is created. A claim is in use while a pod on a node
//! mounts it, a volume while it is bound to a claim.

use serde_json::Value;

use super::Housekeeper;
use crate::{
    api::{
        Address, By,
        plugins::{CLAIM_PROTECTION, VOLUME_PROTECTION},
    },
    object,
};

pub(super) const CLAIMS: &str = "/persistentvolumeclaims";
pub(super) const VOLUMES: &str = "/persistentvolumes";

impl Housekeeper {
    /// Lets go of claims and volumes that nobody uses; true when something failed.
    pub(super) async fn release_volumes(&mut self) -> bool {
        let mut failed = false;
        for (storage, key) in self.leaving.clone() {
            let Some(entry) = self.api.store.get(&storage, &key) else {
                self.leaving.remove(&(storage, key));
                continue;
            };
            let object = entry.value();
            let (plural, finalizer) = match storage.as_str() {
                CLAIMS => ("persistentvolumeclaims", CLAIM_PROTECTION),
                _ => ("persistentvolumes", VOLUME_PROTECTION),
            };
            if !object::has_finalizer(&object, finalizer) {
                self.leaving.remove(&(storage, key));
                continue;
            }
            let used = match storage.as_str() {
                CLAIMS => self.is_mounted(&object),
                _ => object["status"]["phase"] == "Bound",
            };
            if !used {
                failed |= !self.let_go(plural, finalizer, &object).await;
            }
        }
        failed
    }

    fn is_mounted(&self, claim: &Value) -> bool {
        let namespace = object::namespace(claim);
        let pods = self
            .api
            .store
            .list("/pods", &format!("{namespace}/"), None)
            .map(|snapshot| snapshot.entries)
            .unwrap_or_default();
        pods.iter().map(|entry| entry.value()).any(|pod| {
            let ended = matches!(
                pod["status"]["phase"].as_str(),
                Some("Succeeded" | "Failed")
            );
            let placed = pod["spec"]["nodeName"]
                .as_str()
                .is_some_and(|n| !n.is_empty());
            let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            let name = object::name(claim);
            let mut names = volumes.map(|v| &v["persistentVolumeClaim"]["claimName"]);
            placed && !ended && names.any(|claimed| claimed == name)
        })
    }

    async fn let_go(&self, plural: &str, finalizer: &str, object: &Value) -> bool {
        let kinds = self.api.kinds();
        let Some(resource) = kinds.find("", "v1", plural) else {
            return true;
        };
        let at = Address {
            namespace: object::namespace(object),
            name: object::name(object),
            subresource: "",
        };
        let done = self
            .api
            .change(&self.context, &resource, at, By::Update, |old| {
                let mut new = old.clone();
                object::remove_finalizer(&mut new, finalizer);
                Ok(new)
            })
            .await;
        match done {
            Ok(_) => true,
            Err(status) => status.is_not_found(),
        }
    }
}
