//! Secrets that somebody needs to the end.
//!
//! Without its credentials a cluster cannot be reached, and nothing that was made on it removed. So a finalizer keeps them, even
//! when their whole namespace is deleted: nobody can put a Secret back into a namespace that goes.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _, core::NamespaceResourceScope, core::PartialObjectMeta};
use serde_json::json;

use crate::context::{Context, Error, namespace};
use crate::hub::Kind;

/// How Secrets are kept.
pub(crate) struct Keep {
    /// The finalizer.
    pub(crate) finalizer: &'static str,
    /// A label that they get.
    pub(crate) label: Option<&'static str>,
}

impl Keep {
    /// Keeps Secrets of an object's namespace. Returns those that somebody wants to be gone.
    pub(crate) async fn hold<K>(
        &self,
        context: &Context,
        object: &K,
        names: &[String],
    ) -> Result<Vec<PartialObjectMeta<Secret>>, Error>
    where
        K: Kind + kube::Resource<Scope = NamespaceResourceScope>,
    {
        let api: Api<Secret> = context.api_in(&namespace(object));
        let mut going = Vec::new();
        for name in names {
            let Some(secret) = api.get_metadata_opt(name).await? else {
                continue;
            };
            if secret.metadata.deletion_timestamp.is_some() {
                going.push(secret);
                continue;
            }
            let labelled = |label| secret.labels().contains_key(label);
            if self.has(&secret) && self.label.is_none_or(labelled) {
                continue;
            }
            let mut finalizers = secret.finalizers().to_vec();
            if !self.has(&secret) {
                finalizers.push(self.finalizer.to_owned());
            }
            let mut patch = json!({"metadata": {
                "resourceVersion": secret.resource_version(), "finalizers": finalizers,
            }});
            if let Some(label) = self.label {
                patch["metadata"]["labels"] = json!({label: ""});
            }
            let params = PatchParams::default();
            match api
                .patch_metadata(name, &params, &Patch::Merge(&patch))
                .await
            {
                Ok(_) => {}
                // An administrator may not want it written. Then it can be lost, and they should know.
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    let text = format!(
                        "Secret {name:?} is not kept until it is not needed any more: {}",
                        status.message
                    );
                    context.warn(object, "SecretNotHeld", &text).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(going)
    }

    /// Lets Secrets go that nobody needs any more.
    pub(crate) async fn release(
        &self,
        context: &Context,
        place: &str,
        names: &[String],
    ) -> Result<(), Error> {
        let api: Api<Secret> = context.api_in(place);
        for name in names {
            let Some(secret) = api.get_metadata_opt(name).await? else {
                continue;
            };
            if !self.has(&secret) {
                continue;
            }
            let finalizers = secret.finalizers().iter();
            let rest: Vec<_> = finalizers.filter(|f| **f != self.finalizer).collect();
            let patch = json!({"metadata": {
                "resourceVersion": secret.resource_version(), "finalizers": rest,
            }});
            let params = PatchParams::default();
            match api
                .patch_metadata(name, &params, &Patch::Merge(&patch))
                .await
            {
                Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    fn has(&self, secret: &PartialObjectMeta<Secret>) -> bool {
        secret.finalizers().iter().any(|f| f == self.finalizer)
    }
}
