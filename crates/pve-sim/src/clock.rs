//! Time as the simulated PVE sees it: tokio's clock, moved to a point in calendar time.

use std::time::Duration;

use tokio::time::Instant;

/// Calendar seconds at which a simulation begins unless told otherwise.
pub(crate) const DEFAULT_EPOCH: u64 = 1_794_700_000;

/// Seconds a simulated host has already been up when the simulation begins.
pub(crate) const HOST_UPTIME: u64 = 86_400;

/// Turns tokio's monotonic time into calendar time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    epoch: Duration,
}

impl Clock {
    /// A clock that shows `epoch` (seconds since 1970) now.
    pub fn starting_at(epoch: u64) -> Self {
        Self {
            start: Instant::now(),
            epoch: Duration::from_secs(epoch),
        }
    }

    /// A clock that shows the time of this machine.
    pub fn of_this_machine() -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            start: Instant::now(),
            epoch: now,
        }
    }

    /// Time since 1970.
    pub fn unix(&self) -> Duration {
        self.epoch + self.start.elapsed()
    }

    /// Whole seconds since 1970.
    pub fn now(&self) -> u64 {
        self.unix().as_secs()
    }

    /// Hundredths of a second since the hosts were started: the `pstart` of processes.
    pub(crate) fn ticks(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis() / 10).unwrap_or_default() + HOST_UPTIME * 100
    }
}

/// A point in calendar time, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    pub(crate) year: u64,
    pub(crate) month: u64,
    pub(crate) day: u64,
    pub(crate) hour: u64,
    pub(crate) minute: u64,
    pub(crate) second: u64,
    /// Days since Sunday.
    pub(crate) weekday: usize,
}

/// Takes seconds since 1970 apart, in UTC.
pub(crate) fn calendar(unix: u64) -> Calendar {
    let days = unix / 86_400;
    // Days are counted from 1 March 0000, so that leap days come last in their year.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    Calendar {
        year: year_of_era + era * 400 + u64::from(month <= 2),
        month,
        day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
        hour: unix / 3600 % 24,
        minute: unix / 60 % 60,
        second: unix % 60,
        weekday: usize::try_from((days + 4) % 7).unwrap_or_default(),
    }
}

/// `Sun, 15 Nov 2026 19:39:12 GMT`
pub(crate) fn http_date(unix: u64) -> String {
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let Calendar {
        year,
        month,
        day,
        hour,
        minute,
        second,
        weekday,
    } = calendar(unix);
    let month = MONTHS[usize::try_from(month - 1).unwrap_or_default()];
    format!(
        "{}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT",
        DAYS[weekday]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_http_wants_them() {
        assert_eq!(http_date(1_794_771_552), "Sun, 15 Nov 2026 19:39:12 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
