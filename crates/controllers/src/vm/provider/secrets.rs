//! The Secrets a Provider reads, which are kept for as long as it is.

use std::time::Duration;

use api::vm::Provider;
use kube::ResourceExt as _;

use super::DEFAULT_SECRET;
use crate::{
    context::{Context, Error, namespace},
    secrets::Keep,
};

const KEEP: Keep = Keep {
    finalizer: "infra.virtrigaud.io/secret",
    label: None,
};

/// How long a Secret is kept whose Provider stays. Somebody wants to put another in its place; but what is deleted together is not
/// deleted in the same moment.
const TOGETHER: Duration = Duration::from_secs(20);

/// The Secrets of its namespace that a Provider reads.
pub(super) fn names(provider: &Provider) -> Vec<String> {
    let named = provider.spec.credential_secret_ref.as_ref();
    let place = namespace(provider);
    let own = named.is_none_or(|it| it.namespace.as_ref().is_none_or(|of| *of == place));
    let credentials = named.map_or(DEFAULT_SECRET, |it| it.name.as_str());
    let runtime = provider.spec.runtime.iter();
    let in_env = runtime
        .flat_map(|runtime| &runtime.env)
        .filter_map(|var| var.value_from.as_ref()?.secret_key_ref.as_ref());
    let mut names: Vec<String> = in_env.map(|key| key.name.clone()).collect();
    names.extend(own.then(|| credentials.to_owned()));
    names.sort();
    names.dedup();
    names
}

/// Keeps them. Says whether some are about to be let go, and it must be looked again.
pub(super) async fn hold(context: &Context, provider: &Provider) -> Result<bool, Error> {
    let uid = provider.uid().unwrap_or_default();
    let held = (provider.metadata.generation, names(provider));
    if context.providers.holds(&uid) == Some(held.clone()) {
        return Ok(false);
    }
    let going = KEEP.hold(context, provider, &held.1).await?;
    if going.is_empty() {
        context.providers.hold(uid, Some(held));
        return Ok(false);
    }
    let now = context.clock.now();
    let mut due = Vec::new();
    for secret in &going {
        let since = secret.metadata.deletion_timestamp.as_ref();
        let since = since.map_or(now, |time| time.0);
        if Duration::try_from(now.duration_since(since)).unwrap_or_default() >= TOGETHER {
            due.push(secret.name_any());
        }
    }
    KEEP.release(context, &namespace(provider), &due).await?;
    Ok(due.len() < going.len())
}

/// Lets go of those that no other Provider reads.
pub(super) async fn release(context: &Context, provider: &Provider) -> Result<(), Error> {
    let place = namespace(provider);
    let others = context.stores.providers.state_filter(|other| {
        other.metadata.uid != provider.metadata.uid && namespace(other) == place
    });
    let mut going = names(provider);
    going.retain(|name| !others.iter().any(|other| names(other).contains(name)));
    KEEP.release(context, &place, &going).await?;
    context
        .providers
        .hold(provider.uid().unwrap_or_default(), None);
    Ok(())
}
