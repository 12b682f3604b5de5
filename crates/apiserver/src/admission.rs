//! Admission webhooks: who is asked about a write, what they are asked, and what their answers mean.
//!
//! A configuration object lists webhooks; each says with rules, selectors and CEL conditions which
//! writes it wants to see ([`hook`]). A write that one of them wants becomes an `AdmissionReview`
//! ([`review`]). The mutating ones are asked one after the other, in the order of their
//! configurations' names, and may answer with a JSON patch; then, when the object has been validated,
//! the validating ones are asked all at once and may only refuse. One that cannot be asked refuses
//! too, unless its `failurePolicy` says otherwise. The asking itself is in `api::admission`.

mod condition;
mod hook;
pub(crate) mod review;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

pub(crate) use self::{condition::check as check_condition, hook::Hook};
use crate::{
    auth::User,
    registry::{Kinds, Resource},
    store::Store,
};

const MUTATING: &str = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
const VALIDATING: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A write as webhooks see it.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    pub(crate) operation: Operation,
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) subresource: &'a str,
    /// `apiVersion` and kind of the body where it is not the resource itself, such as `Scale`.
    pub(crate) body: Option<(&'a str, &'a str)>,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) user: &'a User,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub(crate) options: Value,
    pub(crate) dry_run: bool,
    pub(crate) object: Option<Value>,
    pub(crate) old: Option<Value>,
}

/// All webhooks of a kind of configuration, in the order in which they are asked.
#[derive(Debug, Default)]
pub(crate) struct Hooks(pub(crate) Vec<Hook>);

impl Hooks {
    fn read(store: &Store, storage: &str) -> Self {
        let Ok(snapshot) = store.list(storage, "", None) else {
            return Self::default();
        };
        let hooks = snapshot.entries.iter().flat_map(|entry| {
            let configuration = entry.value();
            let webhooks = configuration["webhooks"].as_array().cloned();
            let name = entry.key.to_string();
            webhooks
                .unwrap_or_default()
                .into_iter()
                .enumerate()
                .map(move |(at, webhook)| Hook::read(&webhook, &format!("{name}/{at}")))
        });
        Self(hooks.collect())
    }
}

/// The webhooks as they were when last read, so that they are compiled once and not for each write.
#[derive(Default)]
pub(crate) struct Cache {
    mutating: Mutex<(u64, Arc<Hooks>)>,
    validating: Mutex<(u64, Arc<Hooks>)>,
}

impl Cache {
    pub(crate) fn mutating(&self, store: &Store) -> Arc<Hooks> {
        current(&self.mutating, store, MUTATING)
    }

    pub(crate) fn validating(&self, store: &Store) -> Arc<Hooks> {
        current(&self.validating, store, VALIDATING)
    }
}

fn current(slot: &Mutex<(u64, Arc<Hooks>)>, store: &Store, storage: &str) -> Arc<Hooks> {
    let changed = store.changed(storage);
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if slot.0 != changed {
        *slot = (changed, Arc::new(Hooks::read(store, storage)));
    }
    Arc::clone(&slot.1)
}

/// Whether webhooks are never asked about a kind: otherwise a broken one could not be removed.
pub(crate) fn is_exempt(resource: &Resource) -> bool {
    resource.group == "admissionregistration.k8s.io"
}

/// The resource a webhook's rules match: the one of the request or, if it takes equivalents, another
/// version of the same objects.
pub(crate) fn matched(
    hook: &Hook,
    attributes: &Attributes<'_>,
    kinds: &Kinds,
) -> Option<Arc<Resource>> {
    if hook.wants(attributes, attributes.resource) {
        return Some(Arc::clone(attributes.resource));
    }
    if hook.exact {
        return None;
    }
    kinds
        .all()
        .filter(|other| {
            other.storage == attributes.resource.storage
                && other.api_version() != attributes.resource.api_version()
        })
        .find(|other| hook.wants(attributes, other))
        .cloned()
}
