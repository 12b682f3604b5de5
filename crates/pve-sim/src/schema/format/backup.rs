//! Formats of backup jobs.

use std::sync::Arc;

use super::property::Format as Property;
use super::{Format, require};
use crate::schedule::Schedule;
use crate::schema::{choice, flag, int, text};

/// `email-or-username-list`
pub(crate) const RECIPIENTS: Format = Format::List(recipient);
/// `pve-day-of-week-list`
pub(crate) const DAYS: Format = Format::List(day);
/// `pve-calendar-event`
pub(crate) const CALENDAR_EVENT: Format = Format::One(calendar_event);

const DAY_NAMES: &[&str] = &["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// `prune-backups`
pub(crate) fn prune() -> Arc<Property> {
    let mut keys = vec![flag("keep-all")];
    keys.extend(
        [
            "keep-last",
            "keep-hourly",
            "keep-daily",
            "keep-weekly",
            "keep-monthly",
            "keep-yearly",
        ]
        .map(|name| int(name).optional()),
    );
    Property::new(keys).shared()
}

/// `backup-fleecing`
pub(crate) fn fleecing() -> Arc<Property> {
    Property::new([
        flag("enabled"),
        text("storage").format(super::STORAGE).optional(),
    ])
    .default_key("enabled")
    .shared()
}

/// `backup-performance`
pub(crate) fn performance() -> Arc<Property> {
    Property::new([
        int("max-workers").min(1).max(256).optional(),
        int("pbs-entries-max").min(1).optional(),
    ])
    .shared()
}

/// `compress` of a backup.
pub(crate) fn compress() -> crate::schema::Param {
    choice("compress", &["0", "1", "gzip", "lzo", "zstd"]).optional()
}

fn recipient(value: &str) -> Result<(), String> {
    let user = super::name_ok(value);
    require(user || super::email(value).is_ok(), || {
        "value does not look like a valid email address or user name".to_owned()
    })
}

fn day(value: &str) -> Result<(), String> {
    require(DAY_NAMES.contains(&value), || {
        format!("invalid day '{value}'")
    })
}

fn calendar_event(value: &str) -> Result<(), String> {
    require(Schedule::parse(value).is_some(), || {
        format!("invalid calendar event '{value}' - unable to parse calendar event")
    })
}
