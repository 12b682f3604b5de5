//! The names by which callers and clusters are known.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A name that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is empty or too long.
    #[error("{what} must have 1 to {max} characters, this has {len}")]
    Length {
        /// What was being named.
        what: &'static str,
        /// The longest allowed.
        max: usize,
        /// What was given.
        len: usize,
    },
    /// The text holds a character that would not survive a guest's description.
    #[error("{what} may hold letters, digits and any of . _ : / @ + - only, not {bad:?}")]
    Character {
        /// What was being named.
        what: &'static str,
        /// The first offending character.
        bad: char,
    },
}

fn check(what: &'static str, max: usize, text: &str) -> Result<(), Error> {
    let len = text.chars().count();
    if len == 0 || len > max {
        return Err(Error::Length { what, max, len });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:/@+-".contains(c);
    match text.chars().find(|c| !allowed(*c)) {
        Some(bad) => Err(Error::Character { what, bad }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text and makes a name of it.
            pub fn new(text: impl Into<String>) -> Result<Self, Error> {
                let text = text.into();
                check($what, $max, &text)?;
                Ok(Self(text))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

name! {
    /// Who asks for a guest: an opaque key, unique for ever.
    ///
    /// It is written into the guest's description when the guest is made and is the proof of
    /// ownership afterwards, so a caller must never use one key for two things, not even one
    /// after the other. Kubernetes front-ends write `kind/namespace/name/uid`.
    Owner, "an owner key", 200
}

impl Owner {
    /// With whom it shares a turn when there is more to do than a cluster can do at once: its namespace.
    pub fn party(&self) -> &str {
        self.0.split('/').nth(1).unwrap_or_default()
    }
}

name! {
    /// One Proxmox VE cluster, by the name its caller gave it.
    ClusterName, "a cluster name", 253
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_key_that_would_break_the_description_is_refused() {
        for bad in ["", "a b", "a\nb", "a-->b", "ünder"] {
            assert!(Owner::new(bad).is_err(), "{bad:?}");
        }
        assert!(Owner::new("virtualmachine/default/web/2f0c-11").is_ok());
    }

    #[test]
    fn names_survive_serde_and_are_checked_on_the_way_in() {
        let owner = Owner::new("vm/a").unwrap();
        let json = serde_json::to_string(&owner).unwrap();
        assert_eq!(serde_json::from_str::<Owner>(&json).unwrap(), owner);
        assert!(serde_json::from_str::<Owner>("\"a b\"").is_err());
    }
}
