//! Bytes that must not be shown.

use std::fmt;

use bytes::Bytes;

/// User data, passwords and keys: anything a log must not repeat.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Payload(Bytes);

impl Payload {
    /// Wraps bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The bytes themselves.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The payload as text, if it is UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_the_secret() {
        let shown = format!("{:?}", Payload::from("hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
