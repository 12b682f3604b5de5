//! Times that come again, in cron's words.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// A schedule: five fields (minute, hour, day of month, month, day of week), in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Cron's rule: with both kinds of day restricted, either one is enough.
    either_day: bool,
}

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a schedule: {problem}; write five fields such as \"0 3 * * *\", or @daily"
)]
pub(crate) struct CronError {
    text: String,
    problem: String,
}

/// How far ahead a next time is looked for: 29 February comes again within eight years.
const HORIZON_DAYS: i64 = 366 * 8;

impl Cron {
    pub(crate) fn parse(text: &str) -> Result<Self, CronError> {
        let wrong = |problem: String| CronError {
            text: text.to_owned(),
            problem,
        };
        let spelled = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        let fields: Vec<&str> = spelled.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(wrong(format!("it has {} fields", fields.len())));
        };
        let bits = |field: &str, low: u32, high: u32| field_bits(field, low, high).map_err(&wrong);
        let mut weekdays = bits(weekday, 0, 7)?;
        // Sunday is 0 and 7.
        weekdays = (weekdays | (weekdays >> 7)) & 0x7f;
        Ok(Self {
            minutes: bits(minute, 0, 59)?,
            hours: bits(hour, 0, 23)?,
            days: bits(day, 1, 31)?,
            months: bits(month, 1, 12)?,
            weekdays,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
        })
    }

    /// The first time after a moment; `None` if there is none (30 February).
    pub(crate) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let start = after.to_zoned(TimeZone::UTC).datetime();
        let mut day = start.date();
        for offset in 0..HORIZON_DAYS {
            if self.is_day(day) {
                let from = if offset == 0 {
                    Some((start.hour(), start.minute()))
                } else {
                    None
                };
                if let Some((hour, minute)) = self.first_minute(from) {
                    let at = DateTime::from_parts(day, jiff::civil::time(hour, minute, 0, 0));
                    return at.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp());
                }
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    fn is_day(&self, day: jiff::civil::Date) -> bool {
        let has = |bits: u64, at: i8| u32::try_from(at).is_ok_and(|at| bits & (1 << at) != 0);
        let in_month = has(self.days, day.day());
        let in_week = has(self.weekdays, day.weekday().to_sunday_zero_offset());
        has(self.months, day.month())
            && if self.either_day {
                in_month || in_week
            } else {
                in_month && in_week
            }
    }

    fn first_minute(&self, after: Option<(i8, i8)>) -> Option<(i8, i8)> {
        let all = (0..24i8).flat_map(|hour| (0..60i8).map(move |minute| (hour, minute)));
        let mut fit = all.filter(|(hour, minute)| {
            self.hours & (1 << hour) != 0 && self.minutes & (1 << minute) != 0
        });
        fit.find(|time| after.is_none_or(|after| *time > after))
    }
}

fn field_bits(field: &str, low: u32, high: u32) -> Result<u64, String> {
    let mut bits = 0;
    for part in field.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let step: u32 = step
            .parse()
            .ok()
            .filter(|step| *step > 0)
            .ok_or(format!("{part:?} has no step"))?;
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
        let (from, to) = match (range, range.split_once('-')) {
            ("*", _) => (low, high),
            (_, Some((from, to))) => (number(from)?, number(to)?),
            (one, None) if part.contains('/') => (number(one)?, high),
            (one, None) => (number(one)?, number(one)?),
        };
        if from < low || to > high || from > to {
            return Err(format!("{part:?} is not between {low} and {high}"));
        }
        for value in (from..=to).step_by(step as usize) {
            bits |= 1u64 << value;
        }
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn next(cron: &str, after: &str) -> String {
        let at = Cron::parse(cron)
            .unwrap()
            .next_after(after.parse().unwrap());
        at.map_or_else(|| "never".to_owned(), |at| at.to_string())
    }

    #[test]
    fn the_next_time_is_the_first_that_fits() {
        assert_eq!(
            next("0 3 * * *", "2026-11-15T02:59:59Z"),
            "2026-11-15T03:00:00Z"
        );
        assert_eq!(
            next("0 3 * * *", "2026-11-15T03:00:00Z"),
            "2026-11-16T03:00:00Z"
        );
        assert_eq!(
            next("*/15 8-9 * * *", "2026-11-15T09:45:00Z"),
            "2026-11-16T08:00:00Z"
        );
        assert_eq!(
            next("@monthly", "2026-11-15T00:00:00Z"),
            "2026-12-01T00:00:00Z"
        );
        assert_eq!(
            next("0 0 * * 7", "2026-11-16T00:00:00Z"),
            "2026-11-22T00:00:00Z"
        );
        assert_eq!(
            next("0 0 29 2 *", "2026-01-01T00:00:00Z"),
            "2028-02-29T00:00:00Z"
        );
        assert_eq!(next("0 0 30 2 *", "2026-01-01T00:00:00Z"), "never");
    }

    #[test]
    fn with_both_kinds_of_day_either_is_enough() {
        assert_eq!(
            next("0 0 13 * 5", "2026-11-13T00:00:00Z"),
            "2026-11-20T00:00:00Z"
        );
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "5-1 * * * *",
            "x * * * *",
            "*/0 * * * *",
            "@never",
        ] {
            assert!(
                Cron::parse(text)
                    .unwrap_err()
                    .to_string()
                    .contains("0 3 * * *"),
                "{text}"
            );
        }
    }
}
