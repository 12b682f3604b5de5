//! Events: what happened, for people.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{Event, EventSource};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{Clock, status::digest};

/// Writes events about objects, each once until something else is said under the same reason.
pub(crate) struct Events {
    client: Client,
    clock: Clock,
    said: Mutex<BTreeMap<String, Vec<Said>>>,
}

/// What was said last under a reason, by their digests: there are several for every object.
struct Said {
    reason: u64,
    message: u64,
    count: i32,
}

/// Whether an event is a nuisance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Normal,
    Warning,
}

impl Events {
    pub(crate) fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            said: Mutex::default(),
        }
    }

    /// Says that something happened to an object. Failing to say it is not a failure.
    pub(crate) async fn say<K>(&self, about: &K, severity: Severity, reason: &str, message: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let Some(uid) = about.uid() else { return };
        if !self.is_new(&uid, reason, message) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        (&uid, reason, message).hash(&mut hasher);
        let name = format!("{}.{:016x}", about.name_any(), hasher.finish());
        let namespace = about.namespace().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let now = self.clock.time();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            involved_object: about.object_ref(&()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            type_: Some(
                match severity {
                    Severity::Normal => "Normal",
                    Severity::Warning => "Warning",
                }
                .to_owned(),
            ),
            source: Some(EventSource {
                component: Some("oxmox".to_owned()),
                host: None,
            }),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now.clone()),
            count: Some(1),
            ..Event::default()
        };
        let made = api.create(&PostParams::default(), &event).await;
        if let Err(kube::Error::Api(status)) = &made
            && status.code == 409
        {
            let count = self.again(&uid, reason);
            let patch = json!({ "lastTimestamp": now, "count": count });
            let again = api
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            if let Err(error) = again {
                tracing::debug!(%error, reason, "event not counted");
            }
        } else if let Err(error) = made {
            tracing::debug!(%error, reason, "event not written");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Said>>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what is said; says whether it is something else than before.
    fn is_new(&self, uid: &str, reason: &str, message: &str) -> bool {
        let (reason, message) = (digest(reason), digest(message));
        let mut said = self.lock();
        let about = said.entry(uid.to_owned()).or_default();
        if let Some(said) = about.iter_mut().find(|said| said.reason == reason) {
            return std::mem::replace(&mut said.message, message) != message;
        }
        about.push(Said {
            reason,
            message,
            count: 1,
        });
        true
    }

    /// Forgets what was said about an object that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn again(&self, uid: &str, reason: &str) -> i32 {
        let reason = digest(reason);
        let mut said = self.lock();
        let about = said.get_mut(uid).into_iter().flatten();
        match about.into_iter().find(|said| said.reason == reason) {
            Some(said) => {
                said.count += 1;
                said.count
            }
            None => 1,
        }
    }
}
