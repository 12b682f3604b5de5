//! Real time and processor time, for what a jumping clock does not show.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

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

/// Time the threads of a process (a number, or `self`) have run, in the kernel's ticks of ten milliseconds.
pub(super) fn processor_time(pid: &str) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("cannot read /proc/{pid}/stat"))?;
    // The name of the program comes before, in parentheses, and may hold anything.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|text| text.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(ticks * 10))
}
