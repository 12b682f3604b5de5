//! Real time, for what a jumping clock does not show.

use std::time::{Duration, Instant};

/// A running stopwatch.
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "measures this computer's work while tokio's clock jumps"
    )]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
