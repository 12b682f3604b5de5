//! What is wrong with an object, by field.

use std::fmt;

/// Everything there is to say about an object.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Why it is refused.
    pub(super) errors: Vec<String>,
    /// What its author should know.
    pub(super) warnings: Vec<String>,
}

impl Findings {
    pub(super) fn error(&mut self, at: &Path, problem: impl fmt::Display) {
        self.errors.push(format!("{at}: {problem}"));
    }

    pub(super) fn warn(&mut self, at: &Path, problem: impl fmt::Display) {
        self.warnings.push(format!("{at}: {problem}"));
    }
}

/// Where a field is, as people write it: `spec.network.networkDevices[0].mtu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(String);

impl Path {
    pub(super) fn root(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub(super) fn field(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    pub(super) fn index(&self, number: usize) -> Self {
        Self(format!("{}[{number}]", self.0))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
