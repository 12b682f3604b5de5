//! What an error of PVE means for the matter at hand.

use std::time::Duration;

use pve::{Error, Retry};

use crate::{Failure, Waiting};

/// What to do about an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Wait and try again.
    Wait(Waiting),
    /// It may have happened: look before trying again.
    Verify,
    /// It can never work.
    Never(Failure),
}

/// Reads an error of a call or of a task.
pub(crate) fn judge(error: &Error) -> Trouble {
    match error {
        Error::Unreachable { .. } | Error::Decode { .. } => Trouble::Wait(Waiting::Unreachable),
        Error::OutcomeUnknown { .. } | Error::Interrupted { .. } => Trouble::Verify,
        Error::Unauthenticated { .. } => Trouble::Wait(Waiting::Credentials),
        Error::Denied { .. } => Trouble::Wait(Waiting::Privilege),
        Error::Locked { .. } => Trouble::Wait(Waiting::Locked),
        Error::NoQuorum { .. } => Trouble::Wait(Waiting::Quorum),
        Error::OutOfSpace { .. } => Trouble::Wait(Waiting::Space),
        Error::Protected { .. } => Trouble::Wait(Waiting::Protected),
        Error::InUse { .. } => Trouble::Wait(Waiting::InUse),
        Error::NoFreeVmid { .. } => Trouble::Wait(Waiting::Vmid),
        Error::Parameters { .. } | Error::Request { .. } => Trouble::Never(Failure::Invalid),
        Error::RootOnly { .. }
        | Error::FeatureMissing { .. }
        | Error::Unsupported { .. }
        | Error::NotImplemented { .. } => Trouble::Never(Failure::Unsupported),
        other => match other.retry() {
            Retry::Verify => Trouble::Verify,
            _ => Trouble::Wait(Waiting::Error),
        },
    }
}

/// How long to wait after the n-th failure in a row.
pub(crate) fn backoff(failures: u32) -> Duration {
    let seconds = 1u64 << failures.min(8);
    Duration::from_secs(seconds.min(120))
}

/// Whether an error says that there is too much going on.
pub(crate) fn congested(error: &Error) -> bool {
    matches!(error, Error::LockTimeout { .. })
}

/// An error with its causes, in one line.
pub(crate) fn line(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
