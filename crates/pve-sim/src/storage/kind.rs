//! What each storage type can do: formats, naming family, features, thin or thick.
//!
//! PVE asks its storage plugins "do you have feature F for a volume in state S"; the answers below are
//! the whole difference between a snapshot that works on `qcow2` and one that is refused on `raw`.

use serde::{Deserialize, Serialize};

/// A storage plugin this simulator implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Dir,
    Nfs,
    Cifs,
    Lvm,
    LvmThin,
    ZfsPool,
    Rbd,
}

/// An image format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Raw,
    Qcow2,
    Vmdk,
    Subvol,
}

/// A capability a plugin is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    Snapshot,
    Clone,
    Template,
    Copy,
}

/// What the question is asked about: the live volume, a base volume, or a snapshot of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Current,
    Base,
    Snap,
}

impl Kind {
    pub(crate) const ALL: [Kind; 7] = [
        Kind::Dir,
        Kind::Nfs,
        Kind::Cifs,
        Kind::Lvm,
        Kind::LvmThin,
        Kind::ZfsPool,
        Kind::Rbd,
    ];

    pub(crate) fn parse(text: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == text)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Dir => "dir",
            Kind::Nfs => "nfs",
            Kind::Cifs => "cifs",
            Kind::Lvm => "lvm",
            Kind::LvmThin => "lvmthin",
            Kind::ZfsPool => "zfspool",
            Kind::Rbd => "rbd",
        }
    }

    /// Files in directories, as opposed to block volumes with flat names.
    pub(crate) fn is_file(self) -> bool {
        matches!(self, Kind::Dir | Kind::Nfs | Kind::Cifs)
    }

    /// Whether every node sees the same volumes without being told so.
    pub(crate) fn shared_by_nature(self) -> bool {
        matches!(self, Kind::Nfs | Kind::Cifs | Kind::Rbd)
    }

    /// The word PVE uses in "unable to parse … volume name".
    pub(crate) fn parser_word(self) -> &'static str {
        match self {
            Kind::Dir | Kind::Nfs | Kind::Cifs => "directory",
            Kind::Lvm | Kind::LvmThin => "lvm",
            Kind::ZfsPool => "zfs",
            Kind::Rbd => "rbd",
        }
    }

    /// Supported formats and the default one.
    pub(crate) fn formats(self) -> (&'static [Format], Format) {
        match self {
            Kind::Dir => (
                &[Format::Qcow2, Format::Raw, Format::Subvol, Format::Vmdk],
                Format::Raw,
            ),
            Kind::Nfs | Kind::Cifs => (&[Format::Qcow2, Format::Raw, Format::Vmdk], Format::Raw),
            Kind::ZfsPool => (&[Format::Raw, Format::Subvol], Format::Raw),
            Kind::Lvm | Kind::LvmThin | Kind::Rbd => (&[Format::Raw], Format::Raw),
        }
    }

    /// Content types the plugin may carry, in PVE's spelling.
    pub(crate) fn contents(self) -> &'static [&'static str] {
        match self {
            Kind::Dir | Kind::Nfs | Kind::Cifs => &[
                "images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none",
            ],
            Kind::Lvm | Kind::LvmThin | Kind::ZfsPool | Kind::Rbd => &["images", "rootdir", "none"],
        }
    }

    /// Whether the plugin offers `feature` for a volume of `format` in `state`.
    pub(crate) fn has(self, feature: Feature, state: State, format: Format) -> bool {
        use Format::{Qcow2, Raw, Subvol, Vmdk};
        let image = matches!(format, Raw | Qcow2 | Vmdk);
        let block = match self {
            Kind::Dir | Kind::Nfs | Kind::Cifs => {
                return match (feature, state) {
                    (Feature::Snapshot, State::Current | State::Snap)
                    | (Feature::Copy, State::Snap) => format == Qcow2,
                    (Feature::Clone, State::Base)
                    | (Feature::Copy, State::Base | State::Current) => image,
                    (Feature::Template, State::Current) => image || format == Subvol,
                    _ => false,
                };
            }
            Kind::Lvm => return feature == Feature::Copy && state != State::Snap,
            block => block,
        };
        match feature {
            Feature::Snapshot | Feature::Template => state == State::Current,
            Feature::Clone if block == Kind::ZfsPool => state == State::Base,
            Feature::Clone => state != State::Current,
            Feature::Copy => block != Kind::ZfsPool || state != State::Snap,
        }
    }
}

impl Format {
    pub(crate) fn parse(text: &str) -> Option<Format> {
        match text {
            "raw" => Some(Format::Raw),
            "qcow2" => Some(Format::Qcow2),
            "vmdk" => Some(Format::Vmdk),
            "subvol" => Some(Format::Subvol),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
            Format::Vmdk => "vmdk",
            Format::Subvol => "subvol",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_files_copy_but_do_not_snapshot() {
        assert!(Kind::Dir.has(Feature::Copy, State::Current, Format::Raw));
        assert!(!Kind::Dir.has(Feature::Snapshot, State::Current, Format::Raw));
        assert!(Kind::Dir.has(Feature::Snapshot, State::Current, Format::Qcow2));
    }

    #[test]
    fn plain_lvm_neither_links_nor_becomes_a_template() {
        assert!(!Kind::Lvm.has(Feature::Clone, State::Base, Format::Raw));
        assert!(!Kind::Lvm.has(Feature::Template, State::Current, Format::Raw));
    }

    #[test]
    fn zfs_links_only_from_a_base() {
        assert!(Kind::ZfsPool.has(Feature::Clone, State::Base, Format::Raw));
        assert!(!Kind::ZfsPool.has(Feature::Clone, State::Snap, Format::Raw));
        assert!(Kind::Rbd.has(Feature::Clone, State::Snap, Format::Raw));
    }
}
