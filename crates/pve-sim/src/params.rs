//! The parameters of one call, as decoded from path, query and body.
//!
//! Everything is text, as in PVE's Perl: numbers and booleans of JSON bodies become the text
//! Perl would make of them. After validation against the route's declaration the typed
//! accessors cannot fail for declared types.

use std::collections::BTreeMap;

/// One decoded value: PVE makes an array of a repeated key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A single value.
    One(String),
    /// A repeated key, or an array in JSON.
    Many(Vec<String>),
}

/// The parameters of one call by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Params(BTreeMap<String, Raw>);

impl Params {
    /// No parameters.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets `name`, replacing what was there.
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), Raw::One(value.into()));
    }

    /// Sets `name` to an array.
    pub(crate) fn set_many(&mut self, name: impl Into<String>, values: Vec<String>) {
        self.0.insert(name.into(), Raw::Many(values));
    }

    /// Adds a pair as a form would: a repeated key becomes an array.
    pub(crate) fn push(&mut self, name: String, value: String) {
        match self.0.get_mut(&name) {
            None => {
                self.0.insert(name, Raw::One(value));
            }
            Some(Raw::Many(values)) => values.push(value),
            Some(one) => {
                let Raw::One(first) = std::mem::replace(one, Raw::Many(Vec::new())) else {
                    return;
                };
                *one = Raw::Many(vec![first, value]);
            }
        }
    }

    /// The value of `name`; of an array its first item.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        match self.0.get(name)? {
            Raw::One(value) => Some(value),
            Raw::Many(values) => values.first().map(String::as_str),
        }
    }

    /// Whether `name` was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Removes and returns `name`.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let value = self.get(name).map(str::to_owned);
        self.0.remove(name);
        value
    }

    /// A required text: empty if the route did not declare it required and it is absent.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// A non-negative integer, if given.
    pub(crate) fn uint(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// The guest id in `name`, if given and in range.
    pub(crate) fn vmid(&self, name: &str) -> Option<u32> {
        self.get(name)?.parse().ok()
    }

    /// Whether the boolean `name` is given and true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.bool(name).unwrap_or(false)
    }

    /// A boolean, if given.
    pub(crate) fn bool(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value == "1")
    }

    /// The items of a list parameter (separated by comma, semicolon, blank or NUL).
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        self.get(name).map(split_list).unwrap_or_default()
    }

    /// The items of an array parameter.
    pub(crate) fn array(&self, name: &str) -> Vec<&str> {
        match self.0.get(name) {
            None => Vec::new(),
            Some(Raw::One(value)) => vec![value],
            Some(Raw::Many(values)) => values.iter().map(String::as_str).collect(),
        }
    }

    /// All single-valued parameters in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, raw)| match raw {
            Raw::One(value) => Some((name.as_str(), value.as_str())),
            Raw::Many(values) => values.first().map(|value| (name.as_str(), value.as_str())),
        })
    }

    pub(crate) fn raws(&self) -> impl Iterator<Item = (&str, &Raw)> {
        self.0.iter().map(|(name, raw)| (name.as_str(), raw))
    }

    /// Takes over all of `other`, which wins.
    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// Splits a list as PVE does: commas, semicolons, blanks and NULs, empty items dropped.
pub(crate) fn split_list(text: &str) -> Vec<&str> {
    text.split([',', ';', ' ', '\0', '\t', '\n'])
        .filter(|item| !item.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_key_becomes_an_array() {
        let mut params = Params::new();
        params.push("command".into(), "ls".into());
        assert_eq!(params.array("command"), ["ls"]);
        params.push("command".into(), "-l".into());
        params.push("command".into(), "/".into());
        assert_eq!(params.array("command"), ["ls", "-l", "/"]);
    }

    #[test]
    fn lists_split_at_every_separator_pve_knows() {
        assert_eq!(split_list("a,b; c  d,,"), ["a", "b", "c", "d"]);
    }
}
