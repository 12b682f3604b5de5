//! The only place that reads the wall clock.
//!
//! Kubernetes writes wall-clock timestamps into objects, while everything in Oxmox that waits does so on
//! tokio's clock. A [`Clock`] joins the two: a wall time taken once, plus what tokio's clock has advanced
//! since. On a paused clock the timestamps of a run are therefore the same every time.

use jiff::Timestamp;
use tokio::time::Instant;

/// Wall-clock time that advances with tokio's clock.
#[derive(Debug, Clone)]
pub struct Clock {
    base: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that starts at the machine's wall time.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn system() -> Self {
        Self::at(Timestamp::now())
    }

    /// A clock that starts at a given time, for runs that must repeat.
    pub fn at(base: Timestamp) -> Self {
        Self {
            base,
            start: Instant::now(),
        }
    }

    /// The current wall time.
    pub fn now(&self) -> Timestamp {
        self.base
            .checked_add(self.start.elapsed())
            .unwrap_or(Timestamp::MAX)
    }

    /// The current wall time as `metadata.creationTimestamp` spells it: RFC 3339, whole seconds.
    pub fn now_rfc3339(&self) -> String {
        rfc3339(self.now())
    }
}

/// Spells a time as Kubernetes' `Time` does: RFC 3339, UTC, whole seconds.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Spells a time as Kubernetes' `MicroTime` does: RFC 3339, UTC, microseconds.
pub(crate) fn rfc3339_micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_tokio_time() {
        let clock = Clock::at("2026-01-02T03:04:05Z".parse().unwrap());
        assert_eq!(clock.now_rfc3339(), "2026-01-02T03:04:05Z");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(clock.now_rfc3339(), "2026-01-02T03:05:06Z");
    }
}
