//! What each storage type lets `storage.cfg` say about it.
//!
//! The call's schema knows the options of all types together. Which of them a type has, which it
//! needs and which stay as they were made is checked here, in the words of PVE's section files.

use super::Kind;
use crate::failure::Failure;
use crate::release::Release;

/// How a type treats one of its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Must be given, and stays.
    Required,
    /// May be given when the storage is made, and stays.
    Fixed,
    /// May be given and changed.
    Free,
}

const EVERY: &[&str] = &["nodes", "disable", "content", "bwlimit"];
const FILES: &[&str] = &[
    "content-dirs",
    "prune-backups",
    "max-protected-backups",
    "format",
    "mkdir",
    "create-base-path",
    "create-subdirs",
    "preallocation",
];

/// Options that are kept apart from the file: every type that does not know them ignores them.
const SECRETS: &[&str] = &["password", "keyring", "encryption-key", "master-pubkey"];

fn required(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Dir => &["path"],
        Kind::Nfs => &["server", "export"],
        Kind::Cifs => &["server", "share"],
        Kind::Lvm => &["vgname"],
        Kind::LvmThin => &["thinpool", "vgname"],
        Kind::ZfsPool => &["pool"],
        Kind::Rbd => &[],
    }
}

fn free(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Dir => &["shared", "is_mountpoint"],
        Kind::Nfs => &["options"],
        Kind::Cifs => &[
            "subdir",
            "username",
            "password",
            "domain",
            "smbversion",
            "options",
        ],
        Kind::Lvm => &[
            "shared",
            "saferemove",
            "saferemove-stepsize",
            "saferemove_throughput",
            "tagged_only",
        ],
        Kind::LvmThin => &[],
        Kind::ZfsPool => &["blocksize", "sparse", "mountpoint"],
        Kind::Rbd => &[
            "monhost",
            "pool",
            "data-pool",
            "namespace",
            "username",
            "krbd",
            "keyring",
        ],
    }
}

fn rule(kind: Kind, option: &str, release: Release) -> Option<Rule> {
    if required(kind).contains(&option) {
        return Some(Rule::Required);
    }
    let fixed = match option {
        // Mounted where nobody asked for another place.
        "path" => matches!(kind, Kind::Nfs | Kind::Cifs),
        "base" => kind == Kind::Lvm,
        "snapshot-as-volume-chain" => kind.is_file() || kind == Kind::Lvm,
        _ => false,
    };
    if fixed {
        return Some(Rule::Fixed);
    }
    let known = EVERY.contains(&option)
        || free(kind).contains(&option)
        || kind.is_file() && FILES.contains(&option)
        || kind.is_file() && option == "maxfiles" && !release.is_9();
    known.then_some(Rule::Free)
}

/// Checks the options a storage is made with.
pub(super) fn check_new(kind: Kind, given: &[&str], release: Release) -> Result<(), Failure> {
    check_known(kind, given, release)?;
    let missing = required(kind).iter().find(|option| !given.contains(option));
    match missing {
        None => Ok(()),
        Some(option) => Err(Failure::die(format!(
            "missing value for required option '{option}'"
        ))),
    }
}

fn check_known(kind: Kind, given: &[&str], release: Release) -> Result<(), Failure> {
    let unknown = given
        .iter()
        .find(|option| !SECRETS.contains(option) && rule(kind, option, release).is_none());
    match unknown {
        None => Ok(()),
        Some(option) => Err(Failure::die(format!("unexpected property '{option}'"))),
    }
}

/// Checks the options that change, and those that go.
pub(super) fn check_change(
    kind: Kind,
    given: &[&str],
    removed: &[&str],
    release: Release,
) -> Result<(), Failure> {
    for option in given {
        if matches!(
            rule(kind, option, release),
            Some(Rule::Required | Rule::Fixed)
        ) {
            return Err(Failure::die(format!(
                "can't change value of fixed parameter '{option}'"
            )));
        }
    }
    check_known(kind, given, release)?;
    for option in removed {
        let text = match rule(kind, option, release) {
            None => format!("no such option '{option}'"),
            Some(Rule::Required) => format!("unable to delete required option '{option}'"),
            Some(Rule::Fixed) => format!("unable to delete fixed option '{option}'"),
            Some(Rule::Free) if given.contains(option) => {
                format!("cannot set and delete property '{option}' at the same time!")
            }
            Some(Rule::Free) => continue,
        };
        return Err(Failure::die(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Release = Release::V9_2;

    fn text(result: Result<(), Failure>) -> String {
        result.map_or_else(|failure| failure.message, |()| "fine".to_owned())
    }

    #[test]
    fn a_type_is_made_with_its_own_options() {
        let make = |kind, given: &[&str]| text(check_new(kind, given, NOW));
        assert_eq!(make(Kind::Dir, &["path", "content"]), "fine");
        assert_eq!(
            make(Kind::Dir, &["content"]),
            "missing value for required option 'path'"
        );
        assert_eq!(
            make(Kind::Lvm, &["vgname", "path"]),
            "unexpected property 'path'"
        );
    }

    #[test]
    fn what_a_storage_was_made_of_stays() {
        let change =
            |kind, given: &[&str], removed: &[&str]| text(check_change(kind, given, removed, NOW));
        assert_eq!(
            change(Kind::Nfs, &["server"], &[]),
            "can't change value of fixed parameter 'server'"
        );
        assert_eq!(
            change(Kind::Dir, &[], &["path"]),
            "unable to delete required option 'path'"
        );
        assert_eq!(
            change(Kind::Dir, &["content"], &["content"]),
            "cannot set and delete property 'content' at the same time!"
        );
        assert_eq!(change(Kind::Dir, &[], &["krbd"]), "no such option 'krbd'");
        assert_eq!(change(Kind::Rbd, &["krbd"], &["monhost"]), "fine");
    }
}
