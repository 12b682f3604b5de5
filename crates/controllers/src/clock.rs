//! The time of day, handed in so that it can be simulated.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

/// A wall clock: the machine's, or one that starts at a given moment and advances as `tokio::time` does.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    /// Read each time: it may be set right while this process runs, and goes on while the machine sleeps, as tokio's does not.
    Read(fn() -> Timestamp),
    Simulated {
        base: Timestamp,
        started: Instant,
    },
}

impl Clock {
    /// The clock of this machine.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the wall clock"
    )]
    pub fn system() -> Self {
        Self::reading(Timestamp::now)
    }

    /// A clock that shows what is read there.
    pub fn reading(source: fn() -> Timestamp) -> Self {
        Self(Source::Read(source))
    }

    /// A clock that shows `base` now, and runs with tokio's.
    pub fn starting_at(base: Timestamp) -> Self {
        Self(Source::Simulated {
            base,
            started: Instant::now(),
        })
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        match self.0 {
            Source::Read(source) => source(),
            Source::Simulated { base, started } => {
                let elapsed =
                    SignedDuration::try_from(started.elapsed()).unwrap_or(SignedDuration::MAX);
                base.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// The present moment in whole seconds, as Kubernetes writes it.
    pub fn time(&self) -> Time {
        let now = self.now();
        Time(now.round(jiff::Unit::Second).unwrap_or(now))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use super::*;

    thread_local! {
        static SHOWN: Cell<i64> = const { Cell::new(0) };
    }

    #[test]
    fn a_clock_that_is_set_right_shows_the_right_time() {
        let clock = Clock::reading(|| Timestamp::from_second(SHOWN.get()).unwrap());
        SHOWN.set(1_800_000_000);
        assert_eq!(clock.now().as_second(), 1_800_000_000);
        SHOWN.set(1_799_906_400);
        assert_eq!(clock.now().as_second(), 1_799_906_400);
        assert_eq!(clock.time().0.as_second(), 1_799_906_400);
    }

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_runs_with_tokios() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(clock.now().as_second(), 60);
    }
}
