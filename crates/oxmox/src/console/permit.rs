//! The permit of one visit: a digest on the machine, written by somebody the Kubernetes API let write there.

use api::vm::VirtualMachine;
use axum::http::StatusCode;
use controllers::Clock;
use jiff::SignedDuration;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Refusal;

/// Where the digest of a visitor's secret is written.
pub(crate) const ANNOTATION: &str = "oxmox.dev/console";
/// The field manager that writes it: the API server notes when it did.
pub(crate) const MANAGER: &str = "oxmox-console";
/// How long a permit is good for.
const FRESH: SignedDuration = SignedDuration::from_secs(60);

/// What is written for a secret.
pub(crate) fn digest(secret: &str) -> String {
    use std::fmt::Write as _;
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(secret) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Takes a permit away, once. Comes back with the machine it was for.
pub(super) async fn redeem(
    machines: &Api<VirtualMachine>,
    name: &str,
    secret: &str,
    clock: &Clock,
) -> Result<VirtualMachine, Refusal> {
    let silent = |_| {
        Refusal::new(
            StatusCode::BAD_GATEWAY,
            "the Kubernetes API does not answer",
        )
    };
    let refused = || {
        let text = "the token is not good, or not good any more; ask for another one";
        Refusal::new(StatusCode::FORBIDDEN, text)
    };
    // Who has no permit learns nothing about what machines there are.
    let machine = machines.get_opt(name).await.map_err(silent)?;
    let machine = machine.ok_or_else(refused)?;
    let permit = digest(secret);
    if !carries(&machine, &permit) || !is_fresh(&machine, clock) {
        return Err(refused());
    }
    // Of two visitors with one permit the API server lets one take it away.
    let place = format!("/metadata/annotations/{}", ANNOTATION.replace('/', "~1"));
    let take: Value = json!([
        {"op": "test", "path": place, "value": permit},
        {"op": "remove", "path": place},
    ]);
    let take: json_patch::Patch = serde_json::from_value(take).map_err(|_| refused())?;
    let taken = machines
        .patch(name, &PatchParams::default(), &Patch::Json::<()>(take))
        .await;
    match taken {
        Ok(machine) => Ok(machine),
        Err(kube::Error::Api(_)) => Err(refused()),
        Err(error) => Err(silent(error)),
    }
}

fn carries(machine: &VirtualMachine, permit: &str) -> bool {
    let annotations = machine.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(ANNOTATION))
        .map(String::as_str)
        == Some(permit)
}

/// Whether the permit was written a moment ago, by the API server's note of it.
fn is_fresh(machine: &VirtualMachine, clock: &Clock) -> bool {
    let fields = machine.metadata.managed_fields.iter().flatten();
    let written = fields
        .filter(|entry| entry.manager.as_deref() == Some(MANAGER))
        .filter_map(|entry| entry.time.as_ref())
        .map(|time| time.0)
        .max();
    written.is_some_and(|at| clock.now().duration_since(at).abs() <= FRESH)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};

    use super::*;

    fn machine(clock: &Clock, age: i64, manager: &str) -> VirtualMachine {
        let mut machine = VirtualMachine::new("web", api::vm::VirtualMachineSpec::default());
        machine.metadata.annotations = Some([(ANNOTATION.to_owned(), digest("s"))].into());
        machine.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            time: Some(Time(clock.now() - SignedDuration::from_secs(age))),
            ..ManagedFieldsEntry::default()
        }]);
        machine
    }

    #[tokio::test]
    async fn a_permit_is_good_for_a_minute_and_only_if_its_own_manager_wrote_it() {
        let clock = Clock::system();
        assert!(is_fresh(&machine(&clock, 5, MANAGER), &clock));
        assert!(!is_fresh(&machine(&clock, 90, MANAGER), &clock));
        assert!(!is_fresh(&machine(&clock, 5, "kubectl"), &clock));
    }

    #[test]
    fn what_is_written_is_not_the_secret() {
        assert!(digest("s").starts_with("sha256:043a718774c572bd"));
        let clock = Clock::system();
        assert!(carries(&machine(&clock, 5, MANAGER), &digest("s")));
        assert!(!carries(&machine(&clock, 5, MANAGER), "s"));
    }
}
