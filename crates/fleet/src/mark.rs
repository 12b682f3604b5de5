//! The owner's mark in a guest's description.
//!
//! A guest says itself whom it belongs to: the last line of its description is a comment that
//! PVE's page does not show, `<!-- oxmox owner=… -->`. It travels in the very call that makes the
//! guest, so there is no moment at which a guest of ours could be mistaken for somebody else's, and
//! none at which somebody else's could be mistaken for ours.

use crate::Owner;

const OPEN: &str = "<!-- oxmox owner=";
const CLOSE: &str = " -->";

/// The description of a guest: the text for people, then the mark.
pub fn describe(text: &str, owner: &Owner) -> String {
    let text = strip(text);
    if text.is_empty() {
        format!("{OPEN}{owner}{CLOSE}")
    } else {
        format!("{text}\n\n{OPEN}{owner}{CLOSE}")
    }
}

/// Whose mark a description carries. Two different marks are nobody's.
pub fn owner_of(description: &str) -> Option<Owner> {
    let mut marks = description.lines().filter_map(parse);
    let first = marks.next()?;
    marks.all(|other| other == first).then_some(first)
}

/// Whether a description carries any mark, readable or not.
pub fn is_marked(description: &str) -> bool {
    description.contains(OPEN)
}

/// The text for people alone.
pub fn strip(description: &str) -> String {
    let lines: Vec<&str> = description
        .lines()
        .filter(|line| !line.trim().starts_with(OPEN))
        .collect();
    lines.join("\n").trim_end().to_owned()
}

fn parse(line: &str) -> Option<Owner> {
    let owner = line.trim().strip_prefix(OPEN)?.strip_suffix(CLOSE)?;
    Owner::new(owner).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner(text: &str) -> Owner {
        Owner::new(text).unwrap()
    }

    proptest! {
        #[test]
        fn the_mark_is_found_and_the_text_is_kept(
            text in "[^<>\\r]{0,80}",
            key in "[a-z0-9/._-]{1,60}",
        ) {
            let described = describe(&text, &owner(&key));
            prop_assert_eq!(owner_of(&described), Some(owner(&key)));
            prop_assert_eq!(describe(&described, &owner(&key)), described);
        }

        #[test]
        fn reading_never_panics(text in "\\PC{0,200}") {
            let _ = owner_of(&text);
        }
    }

    #[test]
    fn a_description_without_a_mark_belongs_to_nobody() {
        assert_eq!(owner_of("made by hand"), None);
        assert_eq!(owner_of("<!-- oxmox owner= -->"), None);
    }

    #[test]
    fn two_owners_are_nobody() {
        let both = format!(
            "{}\n{}",
            describe("", &owner("a")),
            describe("", &owner("b"))
        );
        assert_eq!(owner_of(&both), None);
        assert!(is_marked(&both));
    }

    #[test]
    fn a_new_owner_replaces_the_old_one() {
        let described = describe(&describe("text", &owner("a")), &owner("b"));
        assert_eq!(described, "text\n\n<!-- oxmox owner=b -->");
    }
}
