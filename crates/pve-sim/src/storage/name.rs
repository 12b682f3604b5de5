//! Volume names: what stands after the colon of a volume id, per plugin.
//!
//! A linked clone on a directory names its base too (`100/base-100-disk-0.qcow2/104/vm-104-disk-0.qcow2`),
//! on ZFS and RBD more briefly (`base-100-disk-0/vm-104-disk-0`), on LVM-thin not at all. The file or
//! block device behind the name is the same with or without the base, so a [`Name`] has a [`Name::key`]
//! that identifies it and a [`Name::volname`] that prints it.

use serde::{Deserialize, Serialize};

use super::kind::{Format, Kind};
use super::{Error, ova};

/// What a volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    Images,
    RootDir,
    Iso,
    VzTmpl,
    Backup,
    Snippets,
    Import,
}

/// A parsed volume name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) content: Content,
    pub(crate) vmid: Option<u32>,
    /// File or block device name without directories.
    pub(crate) file: String,
    /// The base this volume was linked from: its owner and file.
    pub(crate) base: Option<(u32, String)>,
    pub(crate) format: Format,
}

impl Content {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Content::Images => "images",
            Content::RootDir => "rootdir",
            Content::Iso => "iso",
            Content::VzTmpl => "vztmpl",
            Content::Backup => "backup",
            Content::Snippets => "snippets",
            Content::Import => "import",
        }
    }

    /// The directory below a file storage's path.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Content::Images | Content::RootDir => "images",
            Content::Iso => "template/iso",
            Content::VzTmpl => "template/cache",
            Content::Backup => "dump",
            Content::Snippets => "snippets",
            Content::Import => "import",
        }
    }

    /// The content types a file can have by its prefix in a volume name.
    fn of_prefix(prefix: &str) -> Option<Content> {
        match prefix {
            "iso" => Some(Content::Iso),
            "vztmpl" => Some(Content::VzTmpl),
            "backup" => Some(Content::Backup),
            "snippets" => Some(Content::Snippets),
            "import" => Some(Content::Import),
            _ => None,
        }
    }
}

/// Splits `STORAGE:VOLNAME`; the storage part must look like a storage id.
pub(crate) fn split_volid(volid: &str) -> Option<(&str, &str)> {
    let (storage, name) = volid.split_once(':')?;
    let mut chars = storage.chars();
    let first = chars.next()?;
    let last = storage.chars().next_back()?;
    let ok = first.is_ascii_alphabetic()
        && last.is_ascii_alphanumeric()
        && storage.len() > 1
        && storage
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && !name.is_empty()
        && !name.chars().any(char::is_whitespace);
    ok.then_some((storage, name))
}

/// Whether a file name has an extension that its content type accepts.
pub(crate) fn extension_fits(content: Content, file: &str) -> bool {
    let lower = file.to_ascii_lowercase();
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| lower.ends_with(suffix));
    match content {
        Content::Iso => ends(&[".iso", ".img"]),
        Content::VzTmpl => ends(&[".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2", ".tar"]),
        Content::Backup => [".tgz", ".tar", ".vma"].iter().any(|stem| {
            ["", ".gz", ".lzo", ".zst", ".bz2"]
                .iter()
                .any(|tail| ends(&[&format!("{stem}{tail}")]))
        }),
        Content::Import => ends(&[".ova", ".ovf", ".qcow2", ".raw", ".vmdk"]),
        Content::Snippets => true,
        Content::Images | Content::RootDir => false,
    }
}

impl Name {
    /// Reads the part of a volume id after the colon.
    pub(crate) fn parse(kind: Kind, text: &str) -> Result<Name, Error> {
        let fail = || Error::VolumeName {
            plugin: kind.parser_word(),
            name: text.to_owned(),
        };
        let parsed = if kind.is_file() {
            parse_file(text)
        } else {
            parse_block(kind, text)
        };
        parsed.ok_or_else(fail)
    }

    /// What identifies the thing on the storage, without the way it was linked.
    pub(crate) fn key(&self) -> String {
        match (self.content, self.vmid) {
            (Content::Images | Content::RootDir, Some(vmid)) => {
                format!("images/{vmid}/{}", self.file)
            }
            _ => format!("{}/{}", self.content.directory(), self.file),
        }
    }

    /// The name as it stands after the colon in a volume id.
    pub(crate) fn volname(&self, kind: Kind) -> String {
        match (self.content, self.vmid) {
            (Content::Images | Content::RootDir, Some(vmid)) => {
                let base = self.base.as_ref();
                if kind.is_file() {
                    match base {
                        Some((owner, file)) => format!("{owner}/{file}/{vmid}/{}", self.file),
                        None => format!("{vmid}/{}", self.file),
                    }
                } else {
                    match base {
                        Some((_, file)) if matches!(kind, Kind::ZfsPool | Kind::Rbd) => {
                            format!("{file}/{}", self.file)
                        }
                        _ => self.file.clone(),
                    }
                }
            }
            (content, _) => format!("{}/{}", content.name(), self.file),
        }
    }

    /// Where the volume is on its node, in the words PVE's logs use.
    pub(crate) fn path(&self, kind: Kind, root: &str) -> String {
        match kind {
            Kind::Dir | Kind::Nfs | Kind::Cifs => format!("{root}/{}", self.key()),
            Kind::Lvm | Kind::LvmThin => format!("/dev/{root}/{}", self.file),
            Kind::ZfsPool if self.format == Format::Subvol => format!("/{root}/{}", self.file),
            Kind::ZfsPool => format!("/dev/zvol/{root}/{}", self.file),
            Kind::Rbd => format!("/dev/rbd-pve/{root}/{}", self.file),
        }
    }

    pub(crate) fn is_base(&self) -> bool {
        self.file.starts_with("base-")
    }
}

/// `vm-100-disk-0.qcow2` → owner and format; any other file keeps only its format.
fn image_file(file: &str) -> Option<(Option<u32>, Format)> {
    let (stem, extension) = file.rsplit_once('.')?;
    let format = Format::parse(extension)?;
    if stem.is_empty() || file.contains('/') {
        return None;
    }
    Some((owner_in_name(stem), format))
}

/// The VM id inside `vm-100-…`, `base-100-…` or `subvol-100-…`.
fn owner_in_name(stem: &str) -> Option<u32> {
    let rest = ["vm-", "base-", "subvol-", "basevol-"]
        .iter()
        .find_map(|p| stem.strip_prefix(p))?;
    let (digits, tail) = rest.split_once('-')?;
    if tail.is_empty() {
        return None;
    }
    digits.parse().ok()
}

fn parse_file(text: &str) -> Option<Name> {
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [owner, base, vmid, file] if owner.parse::<u32>().is_ok() => {
            let (_, format) = image_file(file)?;
            image_file(base)?;
            Name {
                content: Content::Images,
                vmid: Some(vmid.parse().ok()?),
                file: (*file).to_owned(),
                base: Some((owner.parse().ok()?, (*base).to_owned())),
                format,
            }
        }
        [vmid, file] if vmid.parse::<u32>().is_ok() => {
            let (_, format) = image_file(file)?;
            Name {
                content: if format == Format::Subvol {
                    Content::RootDir
                } else {
                    Content::Images
                },
                vmid: Some(vmid.parse().ok()?),
                file: (*file).to_owned(),
                base: None,
                format,
            }
        }
        ["import", archive, file] => {
            let fits = extension_fits(Content::Import, archive)
                && ova::inside(text).is_some()
                && ova::is_disk(file);
            Name {
                content: Content::Import,
                vmid: None,
                file: fits.then(|| format!("{archive}/{file}"))?,
                base: None,
                format: image_file(file)?.1,
            }
        }
        [prefix, file] => {
            let content = Content::of_prefix(prefix)?;
            if file.is_empty() || !extension_fits(content, file) {
                return None;
            }
            let format = match content {
                Content::Import => file
                    .rsplit_once('.')
                    .and_then(|(_, ext)| Format::parse(ext))
                    .unwrap_or(Format::Raw),
                _ => Format::Raw,
            };
            let vmid = (content == Content::Backup)
                .then(|| backup_owner(file))
                .flatten();
            Name {
                content,
                vmid,
                file: (*file).to_owned(),
                base: None,
                format,
            }
        }
        _ => return None,
    };
    Some(name)
}

/// The guest a backup file name speaks of: `vzdump-qemu-100-2026_…`.
fn backup_owner(file: &str) -> Option<u32> {
    let rest = file
        .strip_prefix("vzdump-qemu-")
        .or_else(|| file.strip_prefix("vzdump-lxc-"))?;
    rest.split('-').next()?.parse().ok()
}

fn parse_block(kind: Kind, text: &str) -> Option<Name> {
    let (base, file) = match text.split_once('/') {
        Some((base, file)) if matches!(kind, Kind::ZfsPool | Kind::Rbd) => {
            if !base.starts_with("base-") && !base.starts_with("basevol-") {
                return None;
            }
            (Some((owner_in_name(base)?, base.to_owned())), file)
        }
        Some(_) => return None,
        None => (None, text),
    };
    let vmid = owner_in_name(file)?;
    let subvol = file.starts_with("subvol-") || file.starts_with("basevol-");
    if subvol && kind != Kind::ZfsPool {
        return None;
    }
    let format = if subvol { Format::Subvol } else { Format::Raw };
    let content = if subvol {
        Content::RootDir
    } else {
        Content::Images
    };
    Some(Name {
        content,
        vmid: Some(vmid),
        file: file.to_owned(),
        base,
        format,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(kind: Kind, text: &str) -> Name {
        let name = Name::parse(kind, text).unwrap();
        assert_eq!(name.volname(kind), text);
        name
    }

    #[test]
    fn names_print_as_they_were_read() {
        round(Kind::Dir, "100/vm-100-disk-0.qcow2");
        round(Kind::Dir, "iso/a.iso");
        round(Kind::Dir, "101/bad.raw");
        round(Kind::LvmThin, "vm-104-disk-0");
        round(Kind::ZfsPool, "subvol-200-disk-0");
        let linked = round(
            Kind::Dir,
            "100/base-100-disk-0.qcow2/104/vm-104-disk-0.qcow2",
        );
        assert_eq!(linked.key(), "images/104/vm-104-disk-0.qcow2");
        let linked = round(Kind::Rbd, "base-100-disk-0/vm-104-disk-0");
        assert_eq!(linked.vmid, Some(104));
        assert_eq!(linked.base, Some((100, "base-100-disk-0".to_owned())));
    }

    #[test]
    fn a_bad_name_is_refused_in_the_words_of_its_plugin() {
        let text = |kind, name| Name::parse(kind, name).unwrap_err().to_string();
        assert_eq!(
            text(Kind::Dir, "abc"),
            "unable to parse directory volume name 'abc'"
        );
        assert_eq!(
            text(Kind::Dir, "4M"),
            "unable to parse directory volume name '4M'"
        );
        assert_eq!(
            text(Kind::LvmThin, "x"),
            "unable to parse lvm volume name 'x'"
        );
        assert_eq!(
            text(Kind::ZfsPool, "a/b"),
            "unable to parse zfs volume name 'a/b'"
        );
        assert_eq!(
            text(Kind::Dir, "iso/a.txt"),
            "unable to parse directory volume name 'iso/a.txt'"
        );
    }

    #[test]
    fn volume_ids_need_a_storage_and_a_name() {
        assert_eq!(split_volid("local:iso/a.iso"), Some(("local", "iso/a.iso")));
        assert_eq!(split_volid("local"), None);
        assert_eq!(split_volid("local:"), None);
        assert_eq!(split_volid("/dev/sda"), None);
    }

    #[test]
    fn a_backup_knows_its_guest() {
        let name = Name::parse(
            Kind::Dir,
            "backup/vzdump-qemu-100-2026_11_15-10_00_00.vma.zst",
        )
        .unwrap();
        assert_eq!((name.content, name.vmid), (Content::Backup, Some(100)));
    }
}
