//! Calendar events, by which PVE runs backup jobs: `02:00`, `mon..fri 22:30`, `*/15`, `daily`.
//!
//! The form is `[days] [[year-]month-day] [[hours:]minutes]`; a field is a star, a number, a range
//! `1..5`, a step `*/15` or a list of these. Times are UTC, as everything here is.

use crate::clock::{Calendar, calendar};

const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// How far ahead the next time is looked for: more than a leap year's four.
const HORIZON: u64 = 5 * 366 * 24 * 60;

/// A calendar event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    weekdays: Vec<usize>,
    months: Field,
    days: Field,
    hours: Field,
    minutes: Field,
}

/// The values one part of a time may have; empty means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Field(Vec<u64>);

impl Field {
    fn one(value: u64) -> Self {
        Self(vec![value])
    }

    fn has(&self, value: u64) -> bool {
        self.0.is_empty() || self.0.contains(&value)
    }

    fn parse(text: &str, first: u64, last: u64) -> Option<Self> {
        let mut values = Vec::new();
        for item in text.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(step.parse::<u64>().ok()?)),
                None => (item, None),
            };
            let (low, high) = match range.split_once("..") {
                Some((low, high)) => (low.parse().ok()?, high.parse().ok()?),
                None if range == "*" && step.is_none() => return Some(Self::default()),
                None if range == "*" => (first, last),
                None => {
                    let one = range.parse().ok()?;
                    (one, if step.is_some() { last } else { one })
                }
            };
            let step = step.unwrap_or(1);
            if low < first || high > last || low > high || step == 0 {
                return None;
            }
            values.extend((low..=high).step_by(usize::try_from(step).ok()?));
        }
        Some(Self(values))
    }
}

impl Schedule {
    /// The event a text describes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "minutely" => "*:*",
            "hourly" => "*:0",
            "daily" => "0:0",
            "weekly" => "mon 0:0",
            "monthly" => "*-1 0:0",
            "quarterly" => "1,4,7,10-1 0:0",
            "semiannually" | "semi-annually" => "1,7-1 0:0",
            "yearly" | "annually" => "1-1 0:0",
            other => other,
        };
        let mut found = Self {
            weekdays: Vec::new(),
            months: Field::default(),
            days: Field::default(),
            hours: Field::one(0),
            minutes: Field::one(0),
        };
        let mut words = text.split_whitespace().peekable();
        words.peek()?;
        if let Some(days) = words.peek().and_then(|word| weekdays(word)) {
            found.weekdays = days;
            words.next();
        }
        if let Some(date) = words.peek().filter(|word| word.contains('-')) {
            let fields: Vec<&str> = date.split('-').collect();
            // Jobs of one year only do not exist: the year must be open.
            let ([months, days] | ["*", months, days]) = fields[..] else {
                return None;
            };
            found.months = Field::parse(months, 1, 12)?;
            found.days = Field::parse(days, 1, 31)?;
            words.next();
        }
        if let Some(time) = words.next() {
            let fields: Vec<&str> = time.split(':').collect();
            (found.hours, found.minutes) = match fields[..] {
                [minutes] => (Field::default(), Field::parse(minutes, 0, 59)?),
                [hours, minutes] | [hours, minutes, "0" | "00"] => {
                    (Field::parse(hours, 0, 23)?, Field::parse(minutes, 0, 59)?)
                }
                _ => return None,
            };
        }
        words.next().is_none().then_some(found)
    }

    fn holds(&self, minute: u64) -> bool {
        let Calendar {
            month,
            day,
            hour,
            minute,
            weekday,
            ..
        } = calendar(minute * 60);
        self.minutes.has(minute)
            && self.hours.has(hour)
            && (self.weekdays.is_empty() || self.weekdays.contains(&weekday))
            && self.days.has(day)
            && self.months.has(month)
    }

    /// The first time after `since`, in seconds since 1970.
    pub(crate) fn next(&self, since: u64) -> Option<u64> {
        let first = since / 60 + 1;
        let found = (first..first + HORIZON).find(|minute| self.holds(*minute));
        found.map(|minute| minute * 60)
    }

    /// Whether the event happened after `since` and not after `now`.
    pub(crate) fn between(&self, since: u64, now: u64) -> bool {
        (since / 60 + 1..=now / 60).any(|minute| self.holds(minute))
    }
}

/// `mon..fri,sun` as days since Sunday.
fn weekdays(text: &str) -> Option<Vec<usize>> {
    let day = |name: &str| {
        let name = name.to_lowercase();
        DAYS.iter()
            .position(|day| name == *day || (name.len() > 3 && name.starts_with(day)))
    };
    let mut days = Vec::new();
    for item in text.split(',') {
        match item.split_once("..") {
            None => days.push(day(item)?),
            Some((first, last)) => {
                let (first, last) = (day(first)?, day(last)?);
                let count = (last + 7 - first) % 7;
                days.extend((0..=count).map(|more| (first + more) % 7));
            }
        }
    }
    Some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sunday, 15 November 2026, 19:39:12.
    const NOW: u64 = 1_794_771_552;

    fn next(text: &str) -> String {
        let time = Schedule::parse(text).unwrap().next(NOW).unwrap();
        crate::clock::http_date(time)
    }

    #[test]
    fn the_next_time_is_the_first_that_fits_every_part() {
        assert_eq!(next("02:00"), "Mon, 16 Nov 2026 02:00:00 GMT");
        assert_eq!(next("*/15"), "Sun, 15 Nov 2026 19:45:00 GMT");
        assert_eq!(next("sat 22:30"), "Sat, 21 Nov 2026 22:30:00 GMT");
        assert_eq!(next("tue..thu 8..17:0/30"), "Tue, 17 Nov 2026 08:00:00 GMT");
        assert_eq!(next("monthly"), "Tue, 01 Dec 2026 00:00:00 GMT");
        assert_eq!(next("*-2-29 12:00"), "Tue, 29 Feb 2028 12:00:00 GMT");
    }

    #[test]
    fn what_is_no_event_is_refused() {
        for bad in [
            "",
            "noonish",
            "25:00",
            "mon 25h",
            "*/0",
            "2030-1-1 0:0",
            "1:2 3:4",
        ] {
            assert_eq!(Schedule::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_event_happens_once() {
        let event = Schedule::parse("20:00").unwrap();
        let at = event.next(NOW).unwrap();
        assert!(!event.between(NOW, at - 1));
        assert!(event.between(at - 1, at));
        assert!(!event.between(at, at + 30));
    }
}
