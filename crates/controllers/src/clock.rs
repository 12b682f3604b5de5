//! The time of day, derived from tokio's clock so that it can be simulated.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

/// A wall clock that runs with tokio's: it starts at a given moment and advances as `tokio::time` does.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    started: Instant,
}

impl Clock {
    /// The clock of this machine.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the wall clock"
    )]
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// A clock that shows `base` now.
    pub fn starting_at(base: Timestamp) -> Self {
        Self {
            base,
            started: Instant::now(),
        }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        let elapsed =
            SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The present moment in whole seconds, as Kubernetes writes it.
    pub fn time(&self) -> Time {
        Time(self.now().round(jiff::Unit::Second).unwrap_or(self.base))
    }
}
