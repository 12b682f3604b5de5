//! What follows from a write, done before its writer gets the answer.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Api, context::Context, update::By};
use crate::{
    auth::rbac,
    object,
    registry::Resource,
    store::{Encoded, Entry, Expect, Op, Write},
};

impl Api {
    /// Brings the roles that collect others' rules up to date; they may feed one another.
    pub(crate) async fn aggregate_roles(&self, resource: &Arc<Resource>) {
        loop {
            let Ok(snapshot) = self.store.list(&resource.storage, "", None) else {
                return;
            };
            let mut changed = false;
            for entry in snapshot.entries {
                let mark = b"\"aggregationRule\"";
                if !entry.bytes.windows(mark.len()).any(|w| w == mark) {
                    continue;
                }
                let mut role = entry.value();
                let Some(rules) = rbac::aggregate(self, &role) else {
                    continue;
                };
                if role["rules"] == rules || (role["rules"].is_null() && rules == json!([])) {
                    continue;
                }
                role["rules"] = rules;
                let write = Write {
                    resource: Arc::clone(&resource.storage),
                    key: entry.key.to_string(),
                    expect: Expect::Revision(entry.revision),
                    op: Op::Put(Encoded::new(&role)),
                };
                // Whoever was faster aggregates after their own write.
                changed |= self.store.commit(write).await.is_ok();
            }
            if !changed {
                return;
            }
        }
    }

    /// Gives a new namespace its default service account and, with TLS, the authority to trust.
    /// Each namespace has a default account and the server's certificate, whoever deletes them.
    pub(crate) async fn refurnish(self: &Arc<Self>, storage: &str, key: &str) {
        if let Some((namespace, name)) = key.split_once('/')
            && matches!(
                (storage, name),
                ("/serviceaccounts", "default") | ("/configmaps", "kube-root-ca.crt")
            )
            && let Some(entry) = self.store.get("/namespaces", namespace)
        {
            Box::pin(self.furnish_namespace(&entry)).await;
        }
    }

    pub(crate) async fn furnish_namespace(self: &Arc<Self>, entry: &Arc<Entry>) {
        let namespace = entry.value();
        if object::is_deleting(&namespace) {
            return;
        }
        let name = object::name(&namespace);
        let mut wanted: Vec<(&str, Value)> =
            vec![("serviceaccounts", json!({"metadata": {"name": "default"}}))];
        if let Some(ca) = &self.root_ca {
            wanted.push((
                "configmaps",
                json!({
                    "metadata": {
                        "name": "kube-root-ca.crt",
                        "annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."},
                    },
                    "data": {"ca.crt": ca},
                }),
            ));
        }
        let kinds = self.kinds();
        for (plural, mut object) in wanted {
            let Some(resource) = kinds.find("", "v1", plural) else {
                continue;
            };
            let key = resource.key(name, object::name(&object));
            if self.store.get(&resource.storage, &key).is_some() {
                continue;
            }
            object["apiVersion"] = json!("v1");
            object["kind"] = json!(resource.kind);
            let context =
                Context::internal("system:kube-controller-manager", "kube-controller-manager");
            let created =
                Box::pin(self.create_object(&context, &resource, name, object, By::Update)).await;
            if let Err(error) = created {
                tracing::debug!(%error, namespace = name, "a namespace lacks its {plural}");
            }
        }
    }
}
