//! The Secrets a Provider reads, which are kept for as long as it is.

use std::{sync::Arc, time::Duration};

use api::vm::Provider;
use k8s_openapi::api::core::v1::Secret;
use kube::{ResourceExt as _, core::PartialObjectMeta};

use super::DEFAULT_SECRET;
use crate::{
    context::{Context, Error, namespace},
    kinds::Watches,
    secrets::Keep,
};

pub(crate) const KEEP: Keep = Keep {
    finalizer: "infra.virtrigaud.io/secret",
    label: None,
    needed: |context, place, name| {
        let mut providers = context.stores.providers.state().into_iter();
        providers.any(|it| namespace(&*it) == place && names(&it).iter().any(|of| of == name))
    },
};

/// How long a Secret is kept whose Provider stays. Somebody wants to put another in its place; but what is deleted together is not
/// deleted in the same moment.
const TOGETHER: Duration = Duration::from_secs(20);

/// Those that a Provider reads no more are let go.
pub(super) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    Keep::follow(&mut watches.providers, context, names);
}

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

/// Keeps them. Says after what time it must be looked again, because some are about to be let go.
pub(super) async fn hold(
    context: &Context,
    provider: &Provider,
) -> Result<Option<Duration>, Error> {
    let uid = provider.uid().unwrap_or_default();
    let held = (provider.metadata.generation, names(provider));
    if context.providers.holds(&uid) == Some(held.clone()) {
        return Ok(None);
    }
    // Said first: a Secret that changes meanwhile takes it back.
    context.providers.hold(uid.clone(), Some(held.clone()));
    let left = match KEEP.hold(context, provider, &held.1).await {
        Ok(going) if going.is_empty() => return Ok(None),
        Ok(going) => let_go(context, provider, &going).await,
        Err(error) => Err(error),
    };
    context.providers.hold(uid, None);
    left
}

/// Lets those go that are deleted alone.
async fn let_go(
    context: &Context,
    provider: &Provider,
    going: &[PartialObjectMeta<Secret>],
) -> Result<Option<Duration>, Error> {
    let now = context.clock.now();
    let mut soonest = None;
    for secret in going {
        let since = secret.metadata.deletion_timestamp.as_ref();
        let since = since.map_or(now, |time| time.0);
        let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let Some(left) = TOGETHER.checked_sub(age).filter(|left| !left.is_zero()) else {
            KEEP.release(context, secret).await?;
            continue;
        };
        let text = format!(
            "Secret {:?} is being deleted and gone within {} seconds: put it back after that, what is written into it now is lost",
            secret.name_any(),
            TOGETHER.as_secs()
        );
        context.warn(provider, "SecretDeleted", &text).await;
        soonest = Some(soonest.map_or(left, |soonest: Duration| soonest.min(left)));
    }
    Ok(soonest)
}
