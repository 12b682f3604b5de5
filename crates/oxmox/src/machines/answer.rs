//! What the API server answers when it does not do what it was asked for, in words that say what to do.

use anyhow::{Error, anyhow};
use kube::core::Status;
use kube::runtime::{wait, watcher};

/// Why there is no answer, or another than the one asked for.
pub(super) fn why(error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => refusal(&status),
        other => Error::new(other).context("the API server did not answer"),
    }
}

/// The same of what was to be watched.
pub(super) fn why_unseen(error: wait::Error) -> Error {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let why = match error {
        wait::Error::ProbeFailed(
            InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error),
        ) => why(error),
        wait::Error::ProbeFailed(WatchError(status)) => refusal(&status),
        other @ wait::Error::ProbeFailed(_) => Error::new(other),
    };
    why.context("it cannot be watched")
}

/// Whether the kind is there, and the object is not.
pub(super) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && names_an_object(status))
}

/// A server that does not know a kind has no object to name, either.
fn names_an_object(status: &Status) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| !details.name.is_empty())
}

fn refusal(status: &Status) -> Error {
    let message = &status.message;
    match status.code {
        401 => anyhow!(
            "the API server does not know you: the credentials of the kubeconfig are not, or no longer, good there"
        ),
        403 => anyhow!("the API server does not let you: {message}"),
        404 if !names_an_object(status) => anyhow!(
            "Oxmox's kinds are not installed in that cluster: `oxmox crds | kubectl apply --server-side --force-conflicts -f -` or its chart installs them"
        ),
        _ => anyhow!("the API server refused it: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn api(status: serde_json::Value) -> kube::Error {
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_refusal_is_told_from_silence_and_says_what_to_do() {
        let said = |status| why(api(status)).to_string();
        let stranger = said(json!({ "code": 401, "message": "Unauthorized" }));
        assert!(stranger.contains("does not know you"), "{stranger}");
        let forbidden = "User \"joe\" cannot list resource";
        let forbidden = said(json!({ "code": 403, "message": forbidden }));
        assert_eq!(
            forbidden,
            "the API server does not let you: User \"joe\" cannot list resource"
        );
        let no_kind = json!({ "code": 404, "message": "404 page not found" });
        assert!(!is_absent(&api(no_kind.clone())));
        let no_kind = said(no_kind);
        assert!(no_kind.contains("oxmox crds | kubectl apply"), "{no_kind}");
        let gone = json!({
            "code": 404, "message": "vm \"web\" not found", "details": { "name": "web" },
        });
        assert!(is_absent(&api(gone.clone())));
        assert!(said(gone).contains("vm \"web\" not found"));
        let silence = kube::Error::Service("nobody listens".into());
        assert_eq!(why(silence).to_string(), "the API server did not answer");
    }
}
