//! The permit of one visit: a `VMConsole`, made by somebody the Kubernetes API let make one.

use std::time::Duration;

use api::vm::{Provider, VMConsole, VirtualMachine};
use axum::http::StatusCode;
use controllers::Clock;
use jiff::SignedDuration;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use sha2::{Digest as _, Sha256};

use super::Refusal;

/// How long a permit is good for.
const FRESH: SignedDuration = SignedDuration::from_secs(60);
/// How often permits that nobody used are cleared away.
const SWEEP: Duration = Duration::from_mins(5);

/// What is written for a secret.
pub(crate) fn digest(secret: &str) -> String {
    use std::fmt::Write as _;
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(secret) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// What a visitor comes with: the name of its permit, and its secret.
pub(crate) fn token(permit: &str, secret: &str) -> String {
    format!("{permit}.{secret}")
}

/// Takes a permit away, once. Comes back with the machine it was for.
pub(super) async fn redeem(
    client: &Client,
    namespace: &str,
    name: &str,
    token: &str,
    clock: &Clock,
) -> Result<VirtualMachine, Refusal> {
    let refused = || {
        let text = "the token is not good, or not good any more; ask for another one";
        Refusal::new(StatusCode::FORBIDDEN, text)
    };
    // Who has no permit learns nothing about what machines there are.
    let (permit, secret) = token.rsplit_once('.').ok_or_else(refused)?;
    let permits: Api<VMConsole> = Api::namespaced(client.clone(), namespace);
    let found = permits.get_opt(permit).await.map_err(silent)?;
    let found = found
        .filter(|found| admits(found, name, secret) && is_fresh(found, clock))
        .ok_or_else(refused)?;
    // Of two visitors with one permit the API server lets one take it away.
    let this = Preconditions {
        uid: found.uid(),
        resource_version: None,
    };
    let taken = permits
        .delete(permit, &DeleteParams::default().preconditions(this))
        .await;
    match taken {
        Ok(_) => {}
        Err(kube::Error::Api(_)) => return Err(refused()),
        Err(error) => return Err(silent(error)),
    }
    let machines: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let machine = machines.get_opt(name).await.map_err(silent)?;
    machine.ok_or_else(refused)
}

/// Refuses a namespace that may not use the Provider of its machine any more.
pub(super) async fn check_provider(
    client: &Client,
    namespace: &str,
    machine: &VirtualMachine,
) -> Result<(), Refusal> {
    let status = machine.status.as_ref();
    let cluster = status.and_then(|status| status.cluster.as_deref());
    let Some((theirs, name)) = cluster.and_then(|cluster| cluster.split_once('/')) else {
        return Ok(());
    };
    if theirs == namespace {
        return Ok(());
    }
    let providers: Api<Provider> = Api::namespaced(client.clone(), theirs);
    let provider = providers.get_opt(name).await.map_err(silent)?;
    // One that is gone is not connected either, which is said later.
    if provider.is_none_or(|provider| provider.allows(namespace)) {
        return Ok(());
    }
    let text = format!(
        "Provider {theirs}/{name} does not let namespace {namespace:?} use it; its owner can add it to spec.allowedNamespaces"
    );
    Err(Refusal::new(StatusCode::FORBIDDEN, text))
}

fn silent(_: kube::Error) -> Refusal {
    Refusal::new(
        StatusCode::BAD_GATEWAY,
        "the Kubernetes API does not answer",
    )
}

/// Clears away permits that nobody used, for ever.
pub(super) async fn sweep(client: Client, namespace: Option<String>, clock: Clock) {
    let all: Api<VMConsole> = match &namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    loop {
        tokio::time::sleep(SWEEP).await;
        let Ok(list) = all.list(&ListParams::default()).await else {
            continue;
        };
        for old in list.iter().filter(|found| !is_fresh(found, &clock)) {
            let place = old.namespace().unwrap_or_default();
            let permits: Api<VMConsole> = Api::namespaced(client.clone(), &place);
            // It may have been used just now, or is tried again at the next round.
            let name = old.name_any();
            let _ = permits.delete(&name, &DeleteParams::default()).await;
        }
    }
}

fn admits(permit: &VMConsole, machine: &str, secret: &str) -> bool {
    permit.spec.vm_ref.name == machine && permit.spec.token == digest(secret)
}

/// Whether the permit was made a moment ago, by the API server's own clock.
fn is_fresh(permit: &VMConsole, clock: &Clock) -> bool {
    let made = permit.metadata.creation_timestamp.as_ref();
    made.is_some_and(|made| clock.now().duration_since(made.0).abs() <= FRESH)
}

#[cfg(test)]
mod tests {
    use api::vm::{LocalRef, VMConsoleSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn permit(clock: &Clock, age: i64) -> VMConsole {
        let vm_ref = LocalRef {
            name: "web".to_owned(),
        };
        let token = digest("s");
        let mut permit = VMConsole::new("visit", VMConsoleSpec { vm_ref, token });
        let made = clock.now() - SignedDuration::from_secs(age);
        permit.metadata.creation_timestamp = Some(Time(made));
        permit
    }

    #[tokio::test]
    async fn a_permit_is_good_for_a_minute() {
        let clock = Clock::system();
        assert!(is_fresh(&permit(&clock, 5), &clock));
        assert!(!is_fresh(&permit(&clock, 90), &clock));
    }

    #[tokio::test]
    async fn a_permit_admits_to_its_own_machine_whoever_has_its_secret() {
        let permit = permit(&Clock::system(), 5);
        assert!(permit.spec.token.starts_with("sha256:043a718774c572bd"));
        assert!(admits(&permit, "web", "s"));
        assert!(!admits(&permit, "db", "s"));
        let written = &permit.spec.token;
        assert!(!admits(&permit, "web", written), "the digest is no secret");
    }
}
