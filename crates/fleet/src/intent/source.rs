//! What a guest is made from.

use std::collections::BTreeMap;

use crate::{Vmid, record::Subject};

/// What a guest is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A copy of a template, or of an ordinary guest.
    Template {
        /// Which one.
        from: TemplateRef,
        /// Linked or full.
        mode: CloneMode,
        /// Copy this snapshot of it instead of its present state.
        snapshot: Option<String>,
    },
    /// Empty disks and an installer in the CD drive, which it boots from until the disk boots.
    Iso {
        /// The volume, such as `local:iso/debian.iso`.
        volume: String,
    },
    /// A root disk copied from an image volume such as `local:import/noble.qcow2`.
    Volume {
        /// The volume to import.
        volume: String,
    },
    /// A backup archive, such as `local:backup/vzdump-qemu-100-….vma.zst`.
    Backup {
        /// The archive's volume.
        volume: String,
    },
    /// A container template, such as `local:vztmpl/debian-12.tar.zst`.
    ContainerTemplate {
        /// The template's volume.
        volume: String,
    },
    /// Nothing: empty disks, as declared.
    Empty,
}

impl Source {
    /// The volume it is read from, where that is a file and not a guest.
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            Self::Iso { volume }
            | Self::Volume { volume }
            | Self::Backup { volume }
            | Self::ContainerTemplate { volume } => Some(volume),
            Self::Template { .. } | Self::Empty => None,
        }
    }
}

/// Which template to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplateRef {
    /// By VMID.
    Vmid(Vmid),
    /// This very guest: one that has got its VMID since is not copied.
    Guest(Subject),
    /// Any one of these templates: replicas of the same thing, the nearest is taken.
    AnyOf(Vec<Vmid>),
    /// Any one of these templates of an image, each with the tag it must have ([`super::image_tag`]): a guest that has got a VMID
    /// since is not copied.
    Image(BTreeMap<Vmid, String>),
    /// By its name in PVE, on any node; several with one name are replicas.
    Name(String),
    /// By tags: all of them must be there; several that match are replicas.
    Tags(Vec<String>),
    /// None any more, and why: a guest that exists needs it no longer, and one that does not is made from nothing else.
    Gone(String),
}

impl std::fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TemplateRef::Vmid(vmid) => write!(f, "VMID {vmid}"),
            TemplateRef::Guest(subject) => write!(f, "VMID {}", subject.guest),
            TemplateRef::AnyOf(vmids) => any_of(f, vmids),
            TemplateRef::Image(templates) => any_of(f, templates.keys()),
            TemplateRef::Name(name) => write!(f, "name '{name}'"),
            TemplateRef::Tags(tags) => write!(f, "tags {}", tags.join(", ")),
            TemplateRef::Gone(why) => f.write_str(why),
        }
    }
}

fn any_of<'a>(
    f: &mut std::fmt::Formatter<'_>,
    vmids: impl IntoIterator<Item = &'a Vmid>,
) -> std::fmt::Result {
    let ids: Vec<String> = vmids.into_iter().map(ToString::to_string).collect();
    write!(f, "any of VMIDs {}", ids.join(", "))
}

/// How a template is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CloneMode {
    /// Linked where PVE can and the disks may stay on the template's storage, full otherwise.
    #[default]
    Auto,
    /// Linked, or not at all.
    Linked,
    /// A full copy.
    Full,
}
