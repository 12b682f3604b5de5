//! How long ago something was, as people say it.

use jiff::Timestamp;
use serde_json::Value;

/// The time since `value`, a timestamp in RFC 3339.
pub(super) fn since(value: &Value, now: Timestamp) -> String {
    match value.as_str().map(str::parse::<Timestamp>) {
        Some(Ok(then)) => human(now.as_second() - then.as_second()),
        Some(Err(_)) => "<invalid>".into(),
        None => "<unknown>".into(),
    }
}

/// A number of seconds with the two units that matter.
pub(super) fn human(seconds: i64) -> String {
    let two = |a: i64, x: &str, b: i64, y: &str| {
        if b == 0 {
            format!("{a}{x}")
        } else {
            format!("{a}{x}{b}{y}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match () {
        () if seconds < -1 => "<invalid>".into(),
        () if seconds < 0 => "0s".into(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => two(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn durations_read_as_kubectl_writes_them() {
        let minute = 60;
        let hour = 60 * minute;
        let day = 24 * hour;
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (9 * minute + 5, "9m5s"),
            (10 * minute + 5, "10m"),
            (3 * hour + 5 * minute, "3h5m"),
            (8 * hour, "8h"),
            (47 * hour, "47h"),
            (2 * day, "2d"),
            (3 * day + 4 * hour, "3d4h"),
            (8 * day, "8d"),
            (729 * day, "729d"),
            (731 * day, "2y1d"),
            (9 * 365 * day, "9y"),
        ] {
            assert_eq!(human(seconds), text);
        }
    }
}
