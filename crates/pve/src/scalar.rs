//! Reads Perl's scalars.
//!
//! Proxmox VE is written in Perl, where a scalar has no firm type: the same field is a JSON number on one call, a
//! text on the next, and a truth is `1`, `"1"`, `true` or just absent. These functions are used as
//! `#[serde(deserialize_with = "scalar::required")]` and `#[serde(default, deserialize_with = "scalar::optional")]`,
//! and read whatever form arrives.

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

/// A type that can be read from any JSON scalar.
pub trait FromScalar: Sized {
    /// Reads the value, or says what was expected instead.
    fn from_scalar(value: &Value) -> Result<Self, &'static str>;
}

/// Reads a field that must be there.
pub fn required<'de, D: Deserializer<'de>, T: FromScalar>(deserializer: D) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    T::from_scalar(&value)
        .map_err(|expected| D::Error::custom(format_args!("expected {expected}, got {value}")))
}

/// Reads a field that may be absent, null or an empty text.
pub fn optional<'de, D: Deserializer<'de>, T: FromScalar>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    match &value {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(T::from_scalar(&value).ok()),
        _ => T::from_scalar(&value)
            .map(Some)
            .map_err(|expected| D::Error::custom(format_args!("expected {expected}, got {value}"))),
    }
}

/// Reads a truth that is false when absent.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(optional(deserializer)?.unwrap_or(false))
}

/// Reads a text of names separated by commas, semicolons or blanks, or a JSON array of names.
pub fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => Vec::new(),
        Value::Array(items) => items
            .iter()
            .filter_map(|item| String::from_scalar(item).ok())
            .collect(),
        value => split(&String::from_scalar(&value).map_err(D::Error::custom)?)
            .map(str::to_owned)
            .collect(),
    })
}

/// Splits a list the way Proxmox VE does.
pub fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == ',' || c == ';' || c == '\0' || c.is_whitespace())
        .filter(|part| !part.is_empty())
}

/// Reads the words Proxmox VE takes for a truth.
pub fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

impl FromScalar for String {
    fn from_scalar(value: &Value) -> Result<Self, &'static str> {
        match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(truth) => Ok(if *truth { "1" } else { "0" }.to_owned()),
            _ => Err("a text"),
        }
    }
}

impl FromScalar for bool {
    fn from_scalar(value: &Value) -> Result<Self, &'static str> {
        match value {
            Value::Bool(truth) => Ok(*truth),
            Value::Number(number) => Ok(number.as_f64().is_some_and(|number| number != 0.0)),
            Value::String(text) if text.is_empty() => Ok(false),
            Value::String(text) => truth(text).ok_or("a truth"),
            _ => Err("a truth"),
        }
    }
}

impl FromScalar for f64 {
    fn from_scalar(value: &Value) -> Result<Self, &'static str> {
        match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text
                .trim()
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite()),
            _ => None,
        }
        .ok_or("a number")
    }
}

impl FromScalar for i64 {
    fn from_scalar(value: &Value) -> Result<Self, &'static str> {
        match value {
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(whole)),
            Value::String(text) => {
                let text = text.trim();
                text.parse()
                    .ok()
                    .or_else(|| text.parse().ok().and_then(whole))
            }
            Value::Bool(truth) => Some(i64::from(*truth)),
            _ => None,
        }
        .ok_or("a whole number")
    }
}

impl FromScalar for u64 {
    fn from_scalar(value: &Value) -> Result<Self, &'static str> {
        if let Some(number) = value.as_u64() {
            return Ok(number);
        }
        if let Value::String(text) = value
            && let Ok(number) = text.trim().parse()
        {
            return Ok(number);
        }
        i64::from_scalar(value)?
            .try_into()
            .map_err(|_| "a number not below zero")
    }
}

impl FromScalar for u32 {
    fn from_scalar(value: &Value) -> Result<Self, &'static str> {
        u64::from_scalar(value)?
            .try_into()
            .map_err(|_| "a number below 2^32")
    }
}

impl FromScalar for u16 {
    fn from_scalar(value: &Value) -> Result<Self, &'static str> {
        u64::from_scalar(value)?
            .try_into()
            .map_err(|_| "a number below 65536")
    }
}

/// Perl prints large counters as floats (`1.5e+15`): the fraction is dropped, numbers outside of i64 are refused.
fn whole(number: f64) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the bounds are checked just before"
    )]
    (number.is_finite() && number.abs() < 9.2e18).then_some(number as i64)
}

macro_rules! parsed_scalars {
    ($($name:ty => $what:literal),* $(,)?) => {$(
        impl FromScalar for $name {
            fn from_scalar(value: &Value) -> Result<Self, &'static str> {
                String::from_scalar(value)?.parse().map_err(|_| $what)
            }
        }
    )*};
}

parsed_scalars! {
    crate::id::Vmid => "a VM ID",
    crate::id::NodeName => "a node name",
    crate::id::StorageId => "a storage ID",
    crate::id::VolumeId => "a volume ID",
    crate::id::PoolId => "a pool ID",
    crate::id::MacAddress => "a MAC address",
    crate::upid::Upid => "a task ID",
    std::net::IpAddr => "an IP address",
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize)]
    struct Sample {
        #[serde(default, deserialize_with = "optional")]
        count: Option<u64>,
        #[serde(default, deserialize_with = "flag")]
        on: bool,
        #[serde(default, deserialize_with = "list")]
        tags: Vec<String>,
    }

    #[test]
    fn one_field_reads_from_every_form_perl_gives_it() {
        for count in [json!(4), json!("4"), json!(4.0), json!("4.0"), json!("4e0")] {
            let sample: Sample = serde_json::from_value(json!({ "count": count })).unwrap();
            assert_eq!(sample.count, Some(4), "{count}");
        }
        for on in [json!(1), json!("1"), json!(true), json!("on")] {
            assert!(
                serde_json::from_value::<Sample>(json!({ "on": on }))
                    .unwrap()
                    .on,
                "{on}"
            );
        }
        for on in [json!(0), json!("0"), json!(false), json!(""), json!(null)] {
            assert!(
                !serde_json::from_value::<Sample>(json!({ "on": on }))
                    .unwrap()
                    .on,
                "{on}"
            );
        }
        let sample: Sample =
            serde_json::from_value(json!({ "count": null, "tags": "a;b c,,d" })).unwrap();
        assert_eq!(sample.count, None);
        assert_eq!(sample.tags, ["a", "b", "c", "d"]);
    }

    proptest! {
        #[test]
        fn numbers_survive_either_form(number: u64) {
            prop_assert_eq!(u64::from_scalar(&json!(number)), Ok(number));
            prop_assert_eq!(u64::from_scalar(&json!(number.to_string())), Ok(number));
        }

        #[test]
        fn any_text_reads_or_is_refused_without_a_panic(text: String) {
            let value = Value::String(text);
            let _ = u64::from_scalar(&value);
            let _ = i64::from_scalar(&value);
            let _ = f64::from_scalar(&value);
            let _ = bool::from_scalar(&value);
        }
    }
}
