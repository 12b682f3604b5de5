//! What objects refer to: found, or told why not.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::vm::{DataSource, KeySelector, NamespacedRef, Provider, RestoreFrom, VMClass};
use fleet::{
    ClusterName,
    intent::{CloneMode, Payload, Source, TemplateRef},
};
use kube::{ResourceExt as _, runtime::reflector::ObjectRef};

use super::translate::Invalid;
use crate::{
    context::{Context, Error, namespace},
    hub::Kind,
    known::Known,
};

/// Something that is not there yet, or cannot be used: a reason and a sentence with the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// It can never work as written; otherwise it may come.
    pub(crate) invalid: bool,
}

impl Missing {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            invalid: false,
        }
    }
}

impl Missing {
    /// When to look again at the latest. Whatever else is missing tells when it comes; ConfigMaps are not watched.
    pub(crate) fn retry(&self) -> Duration {
        match self.reason {
            "ConfigMapNotFound" | "KeyNotFound" => Duration::from_secs(10),
            _ => Duration::from_mins(5),
        }
    }
}

impl From<Invalid> for Missing {
    fn from(invalid: Invalid) -> Self {
        Self {
            reason: "InvalidSpec",
            message: invalid.to_string(),
            invalid: true,
        }
    }
}

/// Either of the two ways looking something up fails.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// It is not there.
    Missing(Missing),
    /// It could not be asked for.
    Failed(Error),
}

impl Lookup {
    /// The same, said by somebody else than the object that is wrong: it may be put right.
    pub(super) fn may_come(self) -> Self {
        match self {
            Self::Missing(missing) => Self::Missing(Missing {
                invalid: false,
                ..missing
            }),
            failed @ Self::Failed(_) => failed,
        }
    }
}

impl From<Missing> for Lookup {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing)
    }
}

impl From<Invalid> for Lookup {
    fn from(invalid: Invalid) -> Self {
        Self::Missing(invalid.into())
    }
}

impl From<Error> for Lookup {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// An object of a store, by name.
pub(crate) fn find<K: Kind>(store: &Known<K>, namespace: &str, name: &str) -> Option<Arc<K>> {
    store.get(&ObjectRef::new(name).within(namespace))
}

/// The class of a machine.
pub(crate) fn class(context: &Context, place: &str, name: &str) -> Result<Arc<VMClass>, Missing> {
    find(&context.stores.classes, place, name).ok_or_else(|| {
        Missing::new(
            "ClassNotFound",
            format!("there is no VMClass {name:?} in namespace {place:?}; create it or change spec.classRef"),
        )
    })
}

/// The archive a guest is restored from.
pub(crate) fn backup(
    context: &Context,
    place: &str,
    from: &RestoreFrom,
) -> Result<Source, Missing> {
    let volume = match (&from.volume, &from.backup_ref) {
        (Some(volume), _) => Some(volume.clone()),
        (None, Some(backup)) => find(&context.stores.backups, place, &backup.name)
            .and_then(|backup| backup.status.as_ref()?.volume.clone()),
        (None, None) => None,
    };
    let waits = || Missing::new("WaitingForSource", "the backup is not there yet");
    volume
        .map(|volume| Source::Backup { volume })
        .ok_or_else(waits)
}

/// The origin of a guest that was begun. It is not needed again, but says that the disks were copied.
pub(crate) fn forgotten(missing: Missing) -> Source {
    Source::Template {
        from: TemplateRef::Gone(missing.message),
        mode: CloneMode::Auto,
        snapshot: None,
    }
}

/// The Provider an object names, or the only one of its namespace. A guest that was begun on the cluster of one is never
/// looked for, or made anew, on that of another.
pub(crate) fn provider(
    context: &Context,
    place: &str,
    named: Option<&NamespacedRef>,
    recorded: Option<&ClusterName>,
) -> Result<Arc<Provider>, Missing> {
    let found = any_provider(context, place, named, recorded)?;
    match recorded {
        Some(recorded) if *recorded != cluster(&found)? => Err(Missing::new(
            "ProviderChanged",
            format!(
                "the guest is on the cluster of Provider {:?} and not on that of {:?}: name that one in spec.providerRef, \
                 create it again if it is gone, or make a new object for the other cluster",
                recorded.as_str(),
                cluster(&found)?.as_str()
            ),
        )),
        _ => Ok(found),
    }
}

fn any_provider(
    context: &Context,
    place: &str,
    named: Option<&NamespacedRef>,
    recorded: Option<&ClusterName>,
) -> Result<Arc<Provider>, Missing> {
    let store = &context.stores.providers;
    if let Some(named) = named {
        let theirs = named.namespace.as_deref().unwrap_or(place);
        let found = find(store, theirs, &named.name).ok_or_else(|| {
            Missing::new(
                "ProviderNotFound",
                format!(
                    "there is no Provider {:?} in namespace {theirs:?}; create it or change spec.providerRef",
                    named.name
                ),
            )
        })?;
        return allowed(found, place);
    }
    if let Some((theirs, name)) = recorded.and_then(|name| name.as_str().split_once('/'))
        && let Some(found) = find(store, theirs, name)
    {
        return allowed(found, place);
    }
    let mut here = store.state_filter(|provider| namespace(provider) == place);
    match (here.pop(), here.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => Err(Missing::new(
            "ProviderAmbiguous",
            format!("namespace {place:?} has several Providers; name one in spec.providerRef"),
        )),
        (None, _) => Err(Missing::new(
            "ProviderNotFound",
            format!(
                "namespace {place:?} has no Provider; create one, or name one in spec.providerRef"
            ),
        )),
    }
}

/// A Provider, if a namespace may use it.
fn allowed(provider: Arc<Provider>, place: &str) -> Result<Arc<Provider>, Missing> {
    if !provider.allows(place) {
        return Err(Missing::new(
            "ProviderNotAllowed",
            format!(
                "Provider {}/{} does not let namespace {place:?} use it; its owner can add it to spec.allowedNamespaces",
                namespace(&*provider),
                provider.name_any()
            ),
        ));
    }
    Ok(provider)
}

/// Whether a namespace may have something new done on a cluster. What is known of one that is gone says its end.
pub(super) fn may_use(
    context: &Context,
    place: &str,
    cluster: &ClusterName,
) -> Result<(), Missing> {
    let provider = cluster.as_str().split_once('/');
    let provider =
        provider.and_then(|(theirs, name)| find(&context.stores.providers, theirs, name));
    provider.map_or(Ok(()), |provider| allowed(provider, place).map(drop))
}

/// The name the engine knows a Provider's cluster by.
pub(crate) fn cluster(provider: &Provider) -> Result<ClusterName, Missing> {
    let name = format!("{}/{}", namespace(provider), provider.name_any());
    ClusterName::new(name).map_err(|error| Missing::new("InvalidSpec", error.to_string()))
}

/// A text written in place or kept in a Secret or ConfigMap.
pub(crate) async fn text(
    context: &Context,
    place: &str,
    field: &str,
    source: &DataSource,
) -> Result<Payload, Lookup> {
    if let Some(text) = &source.inline {
        return Ok(Payload::from(text.as_str()));
    }
    if let Some(secret) = &source.secret_ref {
        return from_secret(context, place, field, secret, "userData").await;
    }
    match &source.config_map_ref {
        Some(map) => from_config_map(context, place, field, map, "userData").await,
        None => Err(Invalid::new(field, "give inline, secretRef or configMapRef").into()),
    }
}

/// A key of a Secret.
pub(crate) async fn from_secret(
    context: &Context,
    place: &str,
    field: &str,
    from: &KeySelector,
    default: &str,
) -> Result<Payload, Lookup> {
    let key = from.key.as_deref().unwrap_or(default);
    let secret = context.secret(place, &from.name).await?.ok_or_else(|| {
        Missing::new(
            "SecretNotFound",
            format!(
                "{field}: there is no Secret {:?} in namespace {place:?}",
                from.name
            ),
        )
    })?;
    let value = secret
        .data
        .unwrap_or_default()
        .remove(key)
        .map(|bytes| Payload::new(bytes.0));
    value.ok_or_else(|| absent_key(field, "Secret", &from.name, key).into())
}

/// A password in a Secret, without the end of the line that a file of it has.
pub(crate) async fn password(
    context: &Context,
    place: &str,
    field: &str,
    from: &KeySelector,
) -> Result<Payload, Lookup> {
    let read = from_secret(context, place, field, from, "password").await?;
    Ok(one_line(&read))
}

/// A text without the end of its line.
fn one_line(text: &Payload) -> Payload {
    let whole = text.expose();
    let line = match whole {
        [line @ .., b'\r', b'\n'] | [line @ .., b'\n'] => line,
        _ => whole,
    };
    Payload::new(line.to_vec())
}

/// A key of a ConfigMap.
pub(crate) async fn from_config_map(
    context: &Context,
    place: &str,
    field: &str,
    from: &KeySelector,
    default: &str,
) -> Result<Payload, Lookup> {
    let key = from.key.as_deref().unwrap_or(default);
    let map = context
        .config_map(place, &from.name)
        .await?
        .ok_or_else(|| {
            Missing::new(
                "ConfigMapNotFound",
                format!(
                    "{field}: there is no ConfigMap {:?} in namespace {place:?}",
                    from.name
                ),
            )
        })?;
    let text: Option<String> = map.data.unwrap_or_default().remove(key);
    let bytes: Option<Vec<u8>> = map
        .binary_data
        .unwrap_or_default()
        .remove(key)
        .map(|bytes| bytes.0);
    let value = text.map(Payload::from).or(bytes.map(Payload::new));
    value.ok_or_else(|| absent_key(field, "ConfigMap", &from.name, key).into())
}

fn absent_key(field: &str, kind: &str, name: &str, key: &str) -> Missing {
    Missing::new(
        "KeyNotFound",
        format!("{field}: {kind} {name:?} has no key {key:?}"),
    )
}

/// Decoded entries of a Secret, as text.
pub(crate) fn entries(secret: k8s_openapi::api::core::v1::Secret) -> BTreeMap<String, String> {
    let data = secret.data.unwrap_or_default().into_iter();
    data.filter_map(|(key, value)| Some((key, String::from_utf8(value.0).ok()?)))
        .collect()
}
