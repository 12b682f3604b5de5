//! Secrets that somebody needs to the end.
//!
//! Without its credentials a cluster cannot be reached, and nothing that was made on it removed. So a finalizer keeps them, even
//! when their whole namespace is deleted: nobody can put a Secret back into a namespace that goes. Whatever nobody names any more
//! is let go, however that came about: another Secret was named, the last object that named it is gone, or was forced away while
//! nobody watched.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _, core::NamespaceResourceScope, core::PartialObjectMeta};
use serde_json::json;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::context::{Context, Error, namespace, refusal};
use crate::hub::{Kind, Watch};
use crate::known::is_gone;

/// How long until a Secret is tried again that could not be let go.
const AGAIN: Duration = Duration::from_secs(30);

/// How Secrets are kept.
pub(crate) struct Keep {
    /// The finalizer.
    pub(crate) finalizer: &'static str,
    /// A label that they get.
    pub(crate) label: Option<&'static str>,
    /// Whether somebody needs the Secret of a namespace and name.
    pub(crate) needed: fn(&Context, &str, &str) -> bool,
}

/// All ways in which Secrets are kept.
const KEEPS: [&Keep; 2] = [&crate::vm::provider::KEEP, &crate::capi::KEEP];

/// The ways of those who are looked after. Of others it is not known what they need.
fn keeps(context: &Context) -> &'static [&'static Keep] {
    if context.is_for_cluster_api_only {
        &[&crate::capi::KEEP]
    } else {
        &KEEPS
    }
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
            let patched = api
                .patch_metadata(name, &params, &Patch::Merge(&patch))
                .await;
            if let Err(error) = patched {
                // An administrator may not want it written. Then it can be lost, and they should know.
                let Some(why) = refusal(&error) else {
                    return Err(error.into());
                };
                let text =
                    format!("Secret {name:?} is not kept until it is not needed any more: {why}");
                context.warn(object, "SecretNotHeld", &text).await;
            }
        }
        Ok(going)
    }

    /// Lets a Secret go.
    pub(crate) async fn release(
        &self,
        context: &Context,
        secret: &PartialObjectMeta<Secret>,
    ) -> Result<(), Error> {
        let api: Api<Secret> = context.api_in(&secret.namespace().unwrap_or_default());
        let finalizers = secret.finalizers().iter();
        let rest: Vec<_> = finalizers.filter(|f| **f != self.finalizer).collect();
        let patch = json!({"metadata": {
            "resourceVersion": secret.resource_version(), "finalizers": rest,
        }});
        let (name, params) = (secret.name_any(), PatchParams::default());
        let patched = api
            .patch_metadata(&name, &params, &Patch::Merge(&patch))
            .await;
        match patched {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) if refusal(&error).is_some() => Ok(()),
            other => other.map(drop).map_err(Error::from),
        }
    }

    /// Has the Secrets looked at that objects of a kind name no more.
    pub(crate) fn follow<K>(
        watch: &mut Watch<K>,
        context: &Arc<Context>,
        names: fn(&K) -> Vec<String>,
    ) where
        K: Kind + kube::Resource<Scope = NamespaceResourceScope>,
    {
        let context = context.clone();
        let last: Mutex<BTreeMap<(String, String), Vec<String>>> = Mutex::default();
        watch.subscribe(move |object| {
            let place = namespace(object);
            let key = (place.clone(), object.name_any());
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            let (before, now) = if is_gone(object) {
                (last.remove(&key), Vec::new())
            } else {
                let now = names(object);
                (last.insert(key, now.clone()), now)
            };
            for name in before.unwrap_or_default() {
                if !now.contains(&name) {
                    context.unneeded.look((place.clone(), name));
                }
            }
        });
    }

    fn has(&self, secret: &PartialObjectMeta<Secret>) -> bool {
        secret.finalizers().iter().any(|f| f == self.finalizer)
    }
}

type Name = (String, String);

/// Secrets that somebody may not need any more, by namespace and name.
pub(crate) struct Unneeded {
    to: UnboundedSender<Name>,
    from: Mutex<Option<UnboundedReceiver<Name>>>,
}

impl Default for Unneeded {
    fn default() -> Self {
        let (to, from) = unbounded_channel();
        Self {
            to,
            from: Mutex::new(Some(from)),
        }
    }
}

impl Unneeded {
    fn look(&self, name: Name) {
        // Nobody listens only while everything is being taken down.
        let _ = self.to.send(name);
    }

    /// A Secret was seen: if it is kept, then for somebody.
    pub(crate) fn seen(&self, secret: &Secret) {
        let kept = |keep: &&Keep| secret.finalizers().iter().any(|f| f == keep.finalizer);
        if KEEPS.iter().any(kept) {
            self.look((secret.namespace().unwrap_or_default(), secret.name_any()));
        }
    }
}

/// Lets Secrets go that nobody needs any more.
pub(crate) async fn sweep(context: Arc<Context>) {
    let from = context.unneeded.from.lock();
    let Some(mut from) = from.unwrap_or_else(PoisonError::into_inner).take() else {
        return;
    };
    // Who needs them is known only then.
    context.stores.providers.ready().await;
    context.stores.proxmox_clusters.ready().await;
    let mut left: BTreeSet<Name> = BTreeSet::new();
    loop {
        let pause = if left.is_empty() {
            Duration::MAX
        } else {
            AGAIN
        };
        match timeout(pause, from.recv()).await {
            Ok(None) => return,
            Ok(Some(name)) => drop(left.insert(name)),
            Err(_) => {}
        }
        while let Ok(name) = from.try_recv() {
            left.insert(name);
        }
        for name in std::mem::take(&mut left) {
            if let Err(error) = let_go(&context, &name).await {
                tracing::debug!(secret = ?name, %error, "not let go yet");
                left.insert(name);
            }
        }
    }
}

async fn let_go(context: &Context, (place, name): &Name) -> Result<(), Error> {
    let api: Api<Secret> = context.api_in(place);
    for keep in keeps(context) {
        if (keep.needed)(context, place, name) {
            continue;
        }
        if let Some(secret) = api.get_metadata_opt(name).await?
            && keep.has(&secret)
        {
            keep.release(context, &secret).await?;
        }
    }
    Ok(())
}
