//! The only place that reads the wall clock.
//!
//! Kubernetes writes wall-clock timestamps into objects, while everything in Oxmox that waits does so on
//! tokio's clock. A server shows its machine's time as it is at every moment, because that may be set right while the
//! server runs, and goes on while the machine sleeps. A simulated [`Clock`] is a wall time taken once, plus what tokio's
//! clock has advanced since: on a paused clock the timestamps of a run are the same every time.

use jiff::Timestamp;
use tokio::time::Instant;

/// The time of day.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    Read(fn() -> Timestamp),
    Simulated { base: Timestamp, start: Instant },
}

impl Clock {
    /// The machine's wall time.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn system() -> Self {
        Self(Source::Read(Timestamp::now))
    }

    /// A clock that starts at a given time and advances with tokio's, for runs that must repeat.
    pub fn at(base: Timestamp) -> Self {
        Self(Source::Simulated {
            base,
            start: Instant::now(),
        })
    }

    /// The current wall time.
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Source::Read(source) => source(),
            Source::Simulated { base, start } => {
                base.checked_add(start.elapsed()).unwrap_or(Timestamp::MAX)
            }
        }
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

    #[test]
    fn the_machines_time_is_read_each_time() {
        thread_local! {
            static SHOWN: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
        }
        let read = || Timestamp::from_second(SHOWN.get()).unwrap();
        let clock = Clock(Source::Read(read));
        SHOWN.set(1_800_000_000);
        assert_eq!(clock.now().as_second(), 1_800_000_000);
        SHOWN.set(1_799_906_400);
        assert_eq!(clock.now().as_second(), 1_799_906_400);
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_tokio_time() {
        let clock = Clock::at("2026-01-02T03:04:05Z".parse().unwrap());
        assert_eq!(clock.now_rfc3339(), "2026-01-02T03:04:05Z");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(clock.now_rfc3339(), "2026-01-02T03:05:06Z");
    }
}
