//! Request parameters, in order, and their encoding.

use std::borrow::Cow;
use std::fmt::{self, Display};

/// The parameters of one call.
///
/// A key may repeat, which Proxmox VE reads as an array. `Debug` shows the keys only, since values may be passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Params(Vec<(Cow<'static, str>, String)>);

impl Params {
    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, key: impl Into<Cow<'static, str>>, value: impl Display) -> Self {
        self.push(key, value);
        self
    }

    /// Adds a value if there is one.
    #[must_use]
    pub fn maybe(mut self, key: impl Into<Cow<'static, str>>, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            self.push(key, value);
        }
        self
    }

    /// Adds a truth as `1`; what is false is left out, since that is the default of every flag it is used for.
    #[must_use]
    pub fn flag(self, key: impl Into<Cow<'static, str>>, on: bool) -> Self {
        if on { self.with(key, 1) } else { self }
    }

    /// Adds a truth as `1` or `0` if it is decided.
    #[must_use]
    pub fn choice(self, key: impl Into<Cow<'static, str>>, on: Option<bool>) -> Self {
        self.maybe(key, on.map(u8::from))
    }

    /// Adds a comma list, unless it is empty.
    #[must_use]
    pub fn list<I>(self, key: impl Into<Cow<'static, str>>, items: I) -> Self
    where
        I: IntoIterator,
        I::Item: Display,
    {
        let joined = items
            .into_iter()
            .map(|item| item.to_string())
            .collect::<Vec<_>>()
            .join(",");
        if joined.is_empty() {
            self
        } else {
            self.with(key, joined)
        }
    }

    /// Adds a value in place.
    pub fn push(&mut self, key: impl Into<Cow<'static, str>>, value: impl Display) {
        self.0.push((key.into(), value.to_string()));
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_str()))
    }

    /// The form encoding, for bodies and query strings alike.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.iter() {
            if !text.is_empty() {
                text.push('&');
            }
            escape_into(&mut text, key);
            text.push('=');
            escape_into(&mut text, value);
        }
        text
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(key, _)| key))
            .finish()
    }
}

impl Extend<(String, String)> for Params {
    fn extend<T: IntoIterator<Item = (String, String)>>(&mut self, pairs: T) {
        self.0.extend(
            pairs
                .into_iter()
                .map(|(key, value)| (Cow::Owned(key), value)),
        );
    }
}

/// Escapes a text for one segment of a path, a query or a form: everything but RFC 3986's unreserved characters.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape_into(&mut out, text);
    out
}

fn escape_into(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// Undoes [`escape`]; what is not a valid escape stays as it is.
pub fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = |offset: usize| {
            bytes
                .get(at + offset)
                .and_then(|b| char::from(*b).to_digit(16))
        };
        if byte == b'%'
            && let (Some(high), Some(low)) = (hex(1), hex(2))
            && let Ok(value) = u8::try_from(high * 16 + low)
        {
            out.push(value);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_repeat_and_values_are_escaped() {
        let params = Params::new()
            .with("command", "ls")
            .with("command", "-l /tmp")
            .flag("force", false);
        assert_eq!(params.encode(), "command=ls&command=-l%20%2Ftmp");
    }

    #[test]
    fn debug_shows_no_values() {
        let shown = format!("{:?}", Params::new().with("password", "geheim"));
        assert!(
            shown.contains("password") && !shown.contains("geheim"),
            "{shown}"
        );
    }

    proptest! {
        #[test]
        fn escaping_is_undone(text: String) {
            prop_assert_eq!(unescape(&escape(&text)), text);
        }
    }
}
