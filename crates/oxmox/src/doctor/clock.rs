//! The wall clock, to compare a node's with.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the doctor compares real clocks; everything else takes this number"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
