//! Digests of configurations, by which callers say what they have seen.

use std::fmt::Write as _;

use serde::Serialize;
use sha1::{Digest as _, Sha1};

use crate::failure::Failure;

/// The SHA-1 of a text, in hex.
pub(crate) fn sha1(text: &[u8]) -> String {
    Sha1::digest(text)
        .iter()
        .fold(String::with_capacity(40), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// The digest of a section of configuration; nothing has the digest of an empty file.
pub(crate) fn of<T: Serialize>(section: &T) -> String {
    let text = serde_json::to_vec(section).unwrap_or_default();
    let empty = matches!(text.as_slice(), b"{}" | b"[]" | b"null");
    sha1(if empty { b"" } else { &text })
}

/// Fails if the caller has seen another configuration.
pub(crate) fn check<T: Serialize>(seen: Option<&str>, section: &T) -> Result<(), Failure> {
    unchanged(seen, &of(section))
}

/// Fails if the caller has seen another digest than the one of now.
pub(crate) fn unchanged(seen: Option<&str>, now: &str) -> Result<(), Failure> {
    match seen {
        Some(seen) if !seen.is_empty() && seen != now => Err(Failure::die(
            "detected modified configuration - file changed by other user? Try again.",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_empty_section_has_the_digest_of_an_empty_file() {
        let none = BTreeMap::<String, String>::new();
        assert_eq!(of(&none), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert!(check(Some(&of(&none)), &none).is_ok());
        assert!(check(Some("0"), &none).is_err());
    }
}
