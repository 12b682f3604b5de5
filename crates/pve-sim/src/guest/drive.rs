//! One drive of a VM: what stands behind `scsi0: local:100/vm-100-disk-0.qcow2,size=1G`.

use super::config::Options;
use super::formats::DRIVE;
use super::{create, options, size};
use crate::failure::Failure;
use crate::schema::property::Values;
use crate::storage::{Content, split_volid};
use crate::world::World;

/// A parsed drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drive {
    values: Values,
}

/// What a caller asks for behind a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// An empty CD drive, or the host's.
    None,
    /// A new disk: storage (if named) and bytes.
    New { storage: Option<String>, bytes: u64 },
    /// A new cloud-init drive.
    CloudInit { storage: String },
    /// A volume that exists.
    Volume(String),
    /// A path on the host.
    Path(String),
}

impl Drive {
    pub(crate) fn parse(text: &str) -> Drive {
        Drive {
            values: DRIVE.parse(text),
        }
    }

    pub(crate) fn of_volume(volid: &str) -> Drive {
        Drive {
            values: Values::from([("file".to_owned(), volid.to_owned())]),
        }
    }

    pub(crate) fn print(&self) -> String {
        DRIVE.print(&self.values)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>) {
        self.values.insert(key.to_owned(), value.into());
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.values.remove(key);
    }

    pub(crate) fn file(&self) -> &str {
        self.get("file").unwrap_or_default()
    }

    pub(crate) fn is_cdrom(&self) -> bool {
        self.get("media") == Some("cdrom")
    }

    pub(crate) fn is_cloudinit(&self) -> bool {
        self.volume().is_some_and(|volid| {
            let file = volid.rsplit(['/', ':']).next().unwrap_or_default();
            file.split('.')
                .next()
                .is_some_and(|stem| stem.ends_with("-cloudinit"))
        }) || matches!(self.source(), Source::CloudInit { .. })
    }

    /// A CD drive that is not the cloud-init drive.
    pub(crate) fn is_plain_cdrom(&self) -> bool {
        self.is_cdrom() && !self.is_cloudinit()
    }

    /// The volume behind the drive, if it is one.
    pub(crate) fn volume(&self) -> Option<&str> {
        let file = self.file();
        split_volid(file).map(|_| file)
    }

    pub(crate) fn storage(&self) -> Option<&str> {
        split_volid(self.file()).map(|(storage, _)| storage)
    }

    pub(crate) fn size(&self) -> Option<u64> {
        self.get("size").and_then(size::parse)
    }

    pub(crate) fn set_size(&mut self, bytes: u64) {
        self.set("size", size::print(bytes));
    }

    /// What the caller asks for.
    pub(crate) fn source(&self) -> Source {
        let file = self.file();
        if file == "none" || file == "cdrom" || file.is_empty() {
            return Source::None;
        }
        if file.starts_with('/') {
            return Source::Path(file.to_owned());
        }
        let (storage, name) = match split_volid(file) {
            Some((storage, name)) => (Some(storage.to_owned()), name),
            None => (None, file),
        };
        if name == "cloudinit" {
            return match storage {
                Some(storage) => Source::CloudInit { storage },
                None => Source::Volume(file.to_owned()),
            };
        }
        if !self.is_cdrom()
            && let Some(bytes) = size::scaled(name, 1 << 30)
        {
            return Source::New { storage, bytes };
        }
        Source::Volume(file.to_owned())
    }
}

/// Checks what drives say about themselves, whoever sends them.
pub(crate) fn check_all(world: &World, options: &Options) -> Result<(), Failure> {
    for (name, drive) in create::drives(options) {
        if drive.get("import-from").is_some() {
            check_import(name, &drive)?;
        }
        if let Source::Volume(volid) = drive.source() {
            let (_, parsed) = world.storages.parse(&volid)?;
            if parsed.content == Content::Iso && !drive.is_cdrom() {
                let text = "explicit 'media=cdrom' is required for iso images";
                return Err(Failure::param(name, text));
            }
        }
    }
    Ok(())
}

/// An import takes its size from its source, and must name what cannot be read from it.
fn check_import(name: &str, drive: &Drive) -> Result<(), Failure> {
    if !matches!(drive.source(), Source::New { bytes: 0, .. }) {
        let text =
            "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>";
        return Err(Failure::param(name, text));
    }
    let needed: &[&str] = match name {
        "efidisk0" => &["efitype", "pre-enrolled-keys"],
        "tpmstate0" => &["version"],
        _ => &[],
    };
    match needed.iter().find(|key| drive.get(key).is_none()) {
        None => Ok(()),
        Some(key) => Err(Failure::param(
            name,
            format!("need to specify '{key}' when using 'import-from'"),
        )),
    }
}

/// A guest has at most one cloud-init drive: refuses a second one beside those of `config`.
pub(crate) fn one_cloudinit(config: &Options, name: &str, drive: &Drive) -> Result<(), Failure> {
    if !drive.is_cloudinit() {
        return Ok(());
    }
    let other = create::drives(config).find(|(other, it)| {
        *other != name
            && options::is_disk(other)
            && it.volume().is_some()
            && it.is_cloudinit()
            && !matches!(it.source(), Source::CloudInit { .. })
    });
    match other {
        None => Ok(()),
        Some((other, _)) => Err(Failure::die(format!(
            "{name} - cloud-init drive is already attached at '{other}'"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_after_the_colon_is_a_new_disk() {
        let new = |text: &str| Drive::parse(text).source();
        assert_eq!(
            new("local:1,format=qcow2"),
            Source::New {
                storage: Some("local".into()),
                bytes: 1 << 30
            }
        );
        assert_eq!(
            new("local:0.5"),
            Source::New {
                storage: Some("local".into()),
                bytes: 1 << 29
            }
        );
        assert_eq!(new("local:4M"), Source::Volume("local:4M".into()));
        assert_eq!(
            new("local:cloudinit"),
            Source::CloudInit {
                storage: "local".into()
            }
        );
        assert_eq!(new("none,media=cdrom"), Source::None);
        assert_eq!(new("/dev/sdb"), Source::Path("/dev/sdb".into()));
    }

    #[test]
    fn drives_print_with_the_volume_first_and_options_sorted() {
        let mut drive = Drive::parse("file=dir2:100/vm-100-disk-0.qcow2,ssd=1,discard=on");
        drive.set_size(1 << 30);
        assert_eq!(
            drive.print(),
            "dir2:100/vm-100-disk-0.qcow2,discard=on,size=1G,ssd=1"
        );
    }

    #[test]
    fn the_cloud_init_drive_is_known_by_its_name() {
        assert!(Drive::parse("dir2:100/vm-100-cloudinit.qcow2,media=cdrom").is_cloudinit());
        assert!(Drive::parse("thin:vm-100-cloudinit,media=cdrom").is_cloudinit());
        assert!(!Drive::parse("dir2:iso/x.iso,media=cdrom").is_cloudinit());
    }
}
