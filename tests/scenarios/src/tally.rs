//! What lives were made of: a simulation in which nothing happens proves nothing.

use std::{collections::BTreeMap, fmt};

/// How often something happened, by what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn add(&mut self, what: impl Into<String>, many: u64) {
        *self.0.entry(what.into()).or_default() += many;
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (what, many) in &other.0 {
            self.add(what, *many);
        }
    }

    /// How often it happened.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, many) in &self.0 {
            writeln!(f, "{many:>8} {what}")?;
        }
        Ok(())
    }
}
