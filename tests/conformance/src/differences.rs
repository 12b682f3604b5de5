//! Where our server differs from kube-apiserver: on purpose, or not yet the same.

/// One deliberate difference.
#[derive(Debug)]
pub struct Difference {
    /// The case, or the beginning of its name up to a `*`.
    pub case: &'static str,
    /// The place in a step, `*` standing for one member or, at the end, for everything below.
    pub path: &'static str,
    /// Why ours is right for what it is.
    pub reason: &'static str,
}

/// All deliberate differences.
pub const DIFFERENCES: &[Difference] = &[];

/// Whether this is a case in which ours still differs without meaning to (`not-yet.txt`).
///
/// A case on this list may differ, which `CONFORMANCE_STRICT=1` shows in full; one that has come to
/// agree says so, and is to be taken off.
pub fn is_not_yet(case: &str) -> bool {
    include_str!("../not-yet.txt")
        .lines()
        .any(|line| line == case)
}

impl Difference {
    pub(crate) fn covers(&self, case: &str, path: &str) -> bool {
        let case_fits = match self.case.strip_suffix('*') {
            Some(start) => case.starts_with(start),
            None => case == self.case,
        };
        case_fits && fits(self.path, path)
    }
}

fn fits(pattern: &str, path: &str) -> bool {
    let mut members = path.split('/');
    let mut patterns = pattern.split('/').peekable();
    while let Some(pattern) = patterns.next() {
        let Some(member) = members.next() else {
            return false;
        };
        if pattern == "*" && patterns.peek().is_none() {
            return true;
        }
        if pattern != "*" && pattern != member {
            return false;
        }
    }
    members.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_member_or_for_the_rest() {
        assert!(fits("/body/*/a", "/body/0/a"));
        assert!(!fits("/body/*/a", "/body/0/1/a"));
        assert!(fits("/body/*", "/body/0/1/a"));
        assert!(!fits("/body", "/body/a"));
    }
}
