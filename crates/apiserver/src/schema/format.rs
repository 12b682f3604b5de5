//! The `format`s that Kubernetes checks; all others are ignored, as it does.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;

use super::node::Type;
use crate::names;

/// A known format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Int32,
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
}

impl Format {
    /// The format called `name`, if it means anything for values of type `kind`.
    pub(crate) fn parse(name: &str, kind: Option<Type>) -> Option<Self> {
        match kind {
            Some(Type::Integer) => return (name == "int32").then_some(Self::Int32),
            None | Some(Type::String) => {}
            Some(_) => return None,
        }
        Some(match name.replace('-', "").as_str() {
            "bsonobjectid" => Self::BsonObjectId,
            "uri" => Self::Uri,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "uuid" => Self::Uuid,
            "uuid3" => Self::Uuid3,
            "uuid4" => Self::Uuid4,
            "uuid5" => Self::Uuid5,
            "isbn" => Self::Isbn,
            "isbn10" => Self::Isbn10,
            "isbn13" => Self::Isbn13,
            "creditcard" => Self::CreditCard,
            "ssn" => Self::Ssn,
            "hexcolor" => Self::HexColor,
            "rgbcolor" => Self::RgbColor,
            "byte" => Self::Byte,
            "date" => Self::Date,
            "duration" => Self::Duration,
            "datetime" => Self::DateTime,
            "k8sshortname" => Self::ShortName,
            "k8slongname" => Self::LongName,
            _ => return None,
        })
    }

    /// The name as messages show it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::BsonObjectId => "bsonobjectid",
            Self::Uri => "uri",
            Self::Email => "email",
            Self::Hostname => "hostname",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Cidr => "cidr",
            Self::Mac => "mac",
            Self::Uuid => "uuid",
            Self::Uuid3 => "uuid3",
            Self::Uuid4 => "uuid4",
            Self::Uuid5 => "uuid5",
            Self::Isbn => "isbn",
            Self::Isbn10 => "isbn10",
            Self::Isbn13 => "isbn13",
            Self::CreditCard => "creditcard",
            Self::Ssn => "ssn",
            Self::HexColor => "hexcolor",
            Self::RgbColor => "rgbcolor",
            Self::Byte => "byte",
            Self::Date => "date",
            Self::Duration => "duration",
            Self::DateTime => "date-time",
            Self::ShortName => "k8s-short-name",
            Self::LongName => "k8s-long-name",
        }
    }

    /// Whether `text` has this format.
    pub(crate) fn accepts(self, text: &str) -> bool {
        match self {
            Self::Int32 => true,
            Self::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Self::Uri => is_uri(text),
            Self::Email => EMAIL.is_match(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => text.contains('/') && text.parse::<ipnet::IpNet>().is_ok(),
            Self::Mac => MAC.is_match(text),
            Self::Uuid => is_uuid(text, None),
            Self::Uuid3 => is_uuid(text, Some('3')),
            Self::Uuid4 => is_uuid(text, Some('4')),
            Self::Uuid5 => is_uuid(text, Some('5')),
            Self::Isbn => is_isbn10(text) || is_isbn13(text),
            Self::Isbn10 => is_isbn10(text),
            Self::Isbn13 => is_isbn13(text),
            Self::CreditCard => is_credit_card(text),
            Self::Ssn => SSN.is_match(text),
            Self::HexColor => HEX_COLOR.is_match(text),
            Self::RgbColor => RGB_COLOR.is_match(text),
            Self::Byte => base64::engine::general_purpose::STANDARD
                .decode(text)
                .is_ok(),
            Self::Date => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
            Self::Duration => is_duration(text),
            Self::DateTime => {
                DATE_TIME.is_match(text)
                    && text.replace(' ', "T").parse::<jiff::Timestamp>().is_ok()
            }
            Self::ShortName => names::dns1123_label(text).is_empty(),
            Self::LongName => names::dns1123_subdomain(text).is_empty(),
        }
    }
}

fn pattern(source: &str) -> Regex {
    Regex::new(source).expect("the patterns in this module are valid")
}

static EMAIL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?:[^<>@]*<[^@\s<>]+@[^@\s<>]+>|[^@\s<>]+@[^@\s<>]+)$"));
static MAC: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^(?:[0-9a-f]{2}([:-])[0-9a-f]{2}(?:[:-][0-9a-f]{2}){4}(?:(?:[:-][0-9a-f]{2}){2}|(?:[:-][0-9a-f]{2}){14})?|[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}(?:\.[0-9a-f]{4}(?:(?:\.[0-9a-f]{4}){6})?)?)$",
    )
});
static SSN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static HEX_COLOR: LazyLock<Regex> =
    LazyLock::new(|| pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    pattern(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static UUID: LazyLock<Regex> = LazyLock::new(|| {
    pattern("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$")
});
static DATE_TIME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?(z|[+-]\d{2}:\d{2})$")
});
static GO_DURATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)$"));
static WORD_DURATION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\s*(?:\d+\s*(?:ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)\s*)+$",
    )
});

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    UUID.is_match(text)
        && version.is_none_or(|version| {
            hex.chars().nth(12) == Some(version)
                && (version == '3' || hex.chars().nth(16).is_some_and(|c| "89abAB".contains(c)))
        })
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.chars().count())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
    };
    // A name with dots must end like a domain of the Internet.
    let top = |top: &str| top.chars().count() >= 2 && top.chars().all(char::is_alphabetic);
    text.len() <= 255
        && text.split('.').all(label)
        && text.rsplit_once('.').is_none_or(|(_, last)| top(last))
}

/// An absolute URI or an absolute path, as a request line would have it.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    text.split_once(':').is_some_and(|(scheme, rest)| {
        !rest.is_empty()
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
            && (rest.starts_with('/') || !rest.contains('/') || scheme != "http")
    })
}

fn is_duration(text: &str) -> bool {
    GO_DURATION.is_match(text) || WORD_DURATION.is_match(text)
}

fn digits(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, '-' | ' ')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = digits(text);
    text.len() == 10
        && text[..9].bytes().all(|b| b.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit() || c == 'X')
        && text
            .chars()
            .zip((1..=10).rev())
            .map(|(c, weight)| c.to_digit(10).unwrap_or(10) * weight)
            .sum::<u32>()
            % 11
            == 0
}

fn is_isbn13(text: &str) -> bool {
    let text = digits(text);
    text.len() == 13
        && text.bytes().all(|b| b.is_ascii_digit())
        && text
            .chars()
            .zip([1, 3].into_iter().cycle())
            .map(|(c, weight)| c.to_digit(10).unwrap_or_default() * weight)
            .sum::<u32>()
            % 10
            == 0
}

fn is_credit_card(text: &str) -> bool {
    let number: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let luhn: u32 = number
        .iter()
        .rev()
        .enumerate()
        .map(|(i, d)| match (i % 2, d * 2) {
            (0, _) => *d,
            (_, double) if double > 9 => double - 9,
            (_, double) => double,
        })
        .sum();
    (13..=16).contains(&number.len()) && luhn.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse_what_kubernetes_does() {
        for (name, good, bad) in [
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "fe80::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("mac", "bc:24:11:00:00:01", "bc:24:11"),
            ("uuid", "2f9e7b5a-0c1d-4e8f-9a3b-1c2d3e4f5a6b", "x"),
            (
                "uuid4",
                "2f9e7b5a-0c1d-4e8f-9a3b-1c2d3e4f5a6b",
                "2f9e7b5a-0c1d-3e8f-9a3b-1c2d3e4f5a6b",
            ),
            ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
            ("date", "2026-01-02", "2026-13-02"),
            ("duration", "1h30m", "soon"),
            ("byte", "aGVsbG8=", "hello!"),
            ("uri", "https://example.com/x", "not a uri"),
            ("email", "a@example.com", "a"),
            ("hostname", "node-1.example.com", "-x-"),
            ("hexcolor", "#fff", "#ff"),
            ("rgbcolor", "rgb(1,2,3)", "rgb(1,2)"),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111111111111111", "4111111111111112"),
            ("k8s-short-name", "abc", "Abc"),
        ] {
            let format = Format::parse(name, Some(Type::String)).expect(name);
            assert!(format.accepts(good), "{name} {good}");
            assert!(!format.accepts(bad), "{name} {bad}");
        }
        assert_eq!(Format::parse("color-of-the-day", Some(Type::String)), None);
        assert_eq!(Format::parse("ipv4", Some(Type::Integer)), None);
    }
}
