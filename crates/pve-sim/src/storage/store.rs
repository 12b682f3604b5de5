//! What is on one storage: its volumes, their snapshots, and how much space they take.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::kind::{Format, Kind};
use super::name::{Content, Name};
use super::{Definition, Error};
use crate::guest::seed::Seed;

/// A wish for a new image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alloc<'a> {
    pub(crate) vmid: u32,
    pub(crate) format: Format,
    /// A file name, or the next free `vm-<id>-disk-<n>`.
    pub(crate) name: Option<&'a str>,
    pub(crate) size: u64,
    pub(crate) now: u64,
}

/// One volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) name: Name,
    pub(crate) size: u64,
    /// Bytes really written; what a thin storage accounts.
    pub(crate) used: u64,
    pub(crate) ctime: u64,
    /// Key of the volume this one is a copy-on-write child of.
    pub(crate) parent: Option<String>,
    /// Oldest first.
    pub(crate) snapshots: Vec<Snapshot>,
    /// The bytes themselves, for files small enough to be kept.
    #[serde(default, with = "bytes_as_text")]
    pub(crate) data: Option<Bytes>,
    /// What a guest booted from this disk would find on it; travels with copies and links.
    pub(crate) image: Option<String>,
    /// The files of a cloud-init drive, once it was written.
    pub(crate) seed: Option<Seed>,
    /// What a backup holds.
    #[serde(default)]
    pub(crate) archive: Option<Archive>,
    pub(crate) notes: Option<String>,
    pub(crate) protected: bool,
}

/// A guest as a backup keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Archive {
    /// `qemu` or `lxc`.
    pub(crate) kind: String,
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) disks: Vec<ArchivedDisk>,
}

/// One disk of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ArchivedDisk {
    pub(crate) option: String,
    pub(crate) storage: String,
    pub(crate) size: u64,
    pub(crate) used: u64,
    pub(crate) image: Option<String>,
}

/// A point in time of one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) used: u64,
}

/// The volumes of one storage (of one node, if it is local).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Store {
    volumes: BTreeMap<String, Volume>,
}

/// Bytes a fresh image takes on a thin storage, as measured on real `qcow2` and `raw` files.
fn fresh_use(format: Format, size: u64) -> u64 {
    match format {
        Format::Qcow2 => (200_704 + size / 8192).min(size),
        Format::Raw | Format::Vmdk | Format::Subvol => 4096.min(size),
    }
}

impl Volume {
    pub(crate) fn file(content: Content, file: &str, size: u64, now: u64) -> Volume {
        let name = Name {
            content,
            vmid: None,
            file: file.to_owned(),
            base: None,
            format: Format::Raw,
        };
        Volume::new(name, size, size, now)
    }

    fn new(name: Name, size: u64, used: u64, now: u64) -> Volume {
        Volume {
            name,
            size,
            used,
            ctime: now,
            parent: None,
            snapshots: Vec::new(),
            data: None,
            image: None,
            seed: None,
            archive: None,
            notes: None,
            protected: false,
        }
    }

    /// The same content under another name: it stands alone and has no past.
    pub(crate) fn named(self, name: Name, now: u64) -> Volume {
        Volume {
            name,
            ctime: now,
            parent: None,
            snapshots: Vec::new(),
            ..self
        }
    }

    pub(crate) fn snapshot(&mut self, name: &str) {
        self.snapshots.push(Snapshot {
            name: name.to_owned(),
            size: self.size,
            used: self.used,
        });
    }

    pub(crate) fn delete_snapshot(&mut self, name: &str) {
        self.snapshots.retain(|snapshot| snapshot.name != name);
    }

    /// Refuses what the plugin could not roll back to.
    pub(crate) fn rollback_possible(
        &self,
        kind: Kind,
        volid: &str,
        snap: &str,
    ) -> Result<(), Error> {
        let position = self
            .snapshots
            .iter()
            .position(|s| s.name == snap)
            .ok_or_else(|| Error::NoSnapshot {
                snap: snap.to_owned(),
                volid: volid.to_owned(),
            })?;
        if kind == Kind::ZfsPool && position + 1 != self.snapshots.len() {
            return Err(Error::NotNewest {
                snap: snap.to_owned(),
                volid: volid.to_owned(),
            });
        }
        Ok(())
    }

    /// Puts size and content back to a snapshot's.
    pub(crate) fn rollback(&mut self, snap: &str) {
        if let Some(found) = self.snapshots.iter().find(|s| s.name == snap) {
            self.size = found.size;
            self.used = found.used;
        }
    }

    /// Bytes this volume takes away from the storage.
    fn taken(&self, thick: bool) -> u64 {
        let image = matches!(self.name.content, Content::Images | Content::RootDir);
        if thick && image && self.parent.is_none() {
            self.size.max(self.used)
        } else {
            self.used
        }
    }
}

impl Store {
    pub(crate) fn get(&self, key: &str) -> Option<&Volume> {
        self.volumes.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Volume> {
        self.volumes.get_mut(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Volume)> {
        self.volumes
            .iter()
            .map(|(key, volume)| (key.as_str(), volume))
    }

    pub(crate) fn used(&self, def: &Definition) -> u64 {
        let thick = def.thick();
        self.volumes
            .values()
            .map(|volume| volume.taken(thick))
            .sum()
    }

    pub(crate) fn alloc(&mut self, def: &Definition, alloc: Alloc<'_>) -> Result<String, Error> {
        let kind = def.kind;
        if !kind.formats().0.contains(&alloc.format) {
            return Err(Error::Format(alloc.format.name()));
        }
        let file = match alloc.name {
            Some(name) => {
                if !kind.is_file() && !name.starts_with(&format!("vm-{}-", alloc.vmid)) {
                    let prefix = format!("subvol-{}-", alloc.vmid);
                    if alloc.format != Format::Subvol || !name.starts_with(&prefix) {
                        return Err(Error::IllegalName {
                            name: name.to_owned(),
                            vmid: alloc.vmid,
                        });
                    }
                }
                name.to_owned()
            }
            None => self.free_name(def, alloc.vmid, alloc.format)?,
        };
        let content = if alloc.format == Format::Subvol {
            Content::RootDir
        } else {
            Content::Images
        };
        let name = Name {
            content,
            vmid: Some(alloc.vmid),
            file,
            base: None,
            format: alloc.format,
        };
        let key = name.key();
        if self.volumes.contains_key(&key) {
            return Err(Error::Exists(name.path(kind, &def.root())));
        }
        let mut volume = Volume::new(name, alloc.size, 0, alloc.now);
        volume.used = if def.thick() {
            alloc.size
        } else {
            fresh_use(alloc.format, alloc.size)
        };
        self.reserve(def, &volume)?;
        let volname = volume.name.volname(kind);
        self.volumes.insert(key, volume);
        Ok(format!("{}:{volname}", def.id))
    }

    /// Refuses a volume that a thick storage has no room for.
    fn reserve(&self, def: &Definition, volume: &Volume) -> Result<(), Error> {
        self.room_for(def, &volume.name.file, volume.taken(def.thick()))
    }

    /// Refuses to take `bytes` more than there are, in the words of the tool that would fail.
    pub(crate) fn room_for(&self, def: &Definition, file: &str, bytes: u64) -> Result<(), Error> {
        let free = def.capacity.saturating_sub(self.used(def));
        if bytes <= free {
            return Ok(());
        }
        let extent = 4 << 20;
        let root = def.root();
        Err(Error::NoSpace(match def.kind {
            Kind::Lvm | Kind::LvmThin => format!(
                "lvcreate '{root}/{file}' error:   Volume group \"{root}\" has insufficient free space ({} extents): {} required.",
                free / extent,
                bytes.div_ceil(extent),
            ),
            Kind::ZfsPool => {
                format!("zfs error: cannot create '{root}/{file}': out of space")
            }
            Kind::Rbd => format!("rbd create '{file}' error: (28) No space left on device"),
            Kind::Dir | Kind::Nfs | Kind::Cifs => {
                format!("unable to create image '{root}/{file}': No space left on device")
            }
        }))
    }

    /// The lowest `disk-<n>` of a guest that no file, whatever its extension, already uses.
    fn free_name(&self, def: &Definition, vmid: u32, format: Format) -> Result<String, Error> {
        let taken: Vec<u32> = self
            .volumes
            .values()
            .filter(|volume| volume.name.vmid == Some(vmid))
            .filter_map(|volume| {
                let stem = volume.name.file.split('.').next()?;
                stem.rsplit_once("-disk-")?.1.parse().ok()
            })
            .collect();
        let number = (0..1000)
            .find(|n| !taken.contains(n))
            .ok_or_else(|| Error::NoFreeName(def.root()))?;
        let prefix = if format == Format::Subvol {
            "subvol"
        } else {
            "vm"
        };
        let stem = format!("{prefix}-{vmid}-disk-{number}");
        Ok(if def.kind.is_file() {
            format!("{stem}.{}", format.name())
        } else {
            stem
        })
    }

    /// Puts a volume here, over one of the same name.
    pub(crate) fn put(&mut self, def: &Definition, volume: Volume) -> Result<(), Error> {
        let key = volume.name.key();
        let before = self
            .volumes
            .get(&key)
            .map_or(0, |old| old.taken(def.thick()));
        let more = volume.taken(def.thick()).saturating_sub(before);
        self.room_for(def, &volume.name.file, more)?;
        self.volumes.insert(key, volume);
        Ok(())
    }

    pub(crate) fn put_file(
        &mut self,
        def: &Definition,
        content: Content,
        file: &str,
        mut volume: Volume,
    ) -> Result<String, Error> {
        if !def.kind.is_file() || !def.holds(content.name()) {
            return Err(Error::Content {
                storage: def.id.clone(),
                content: content.name(),
            });
        }
        let name = Name::parse(def.kind, &format!("{}/{file}", content.name()))?;
        let key = name.key();
        let before = self.volumes.get(&key).map_or(0, |old| old.used);
        self.room_for(def, file, volume.used.saturating_sub(before))?;
        let volname = name.volname(def.kind);
        volume.name = name;
        self.volumes.insert(key, volume);
        Ok(format!("{}:{volname}", def.id))
    }

    pub(crate) fn free(&mut self, def: &Definition, name: &Name) -> Result<bool, Error> {
        let key = name.key();
        if name.is_base()
            && self
                .volumes
                .values()
                .any(|v| v.parent.as_deref() == Some(&key))
        {
            return Err(Error::BaseInUse(format!(
                "{}:{}",
                def.id,
                name.volname(def.kind)
            )));
        }
        Ok(self.volumes.remove(&key).is_some())
    }

    pub(crate) fn make_base(&mut self, def: &Definition, name: &Name) -> Option<String> {
        let mut volume = self.volumes.remove(&name.key())?;
        let old = &volume.name.file;
        volume.name.file = old
            .strip_prefix("vm-")
            .map(|rest| format!("base-{rest}"))
            .or_else(|| {
                old.strip_prefix("subvol-")
                    .map(|rest| format!("basevol-{rest}"))
            })
            .unwrap_or_else(|| format!("base-{old}"));
        let volid = format!("{}:{}", def.id, volume.name.volname(def.kind));
        self.volumes.insert(volume.name.key(), volume);
        Some(volid)
    }

    pub(crate) fn link(
        &mut self,
        def: &Definition,
        base: &Name,
        vmid: u32,
        now: u64,
    ) -> Result<String, Error> {
        let missing = || Error::NoVolume(format!("{}:{}", def.id, base.volname(def.kind)));
        let origin = self.volumes.get(&base.key()).ok_or_else(missing)?;
        let (size, image) = (origin.size, origin.image.clone());
        // A linked clone of a raw file is still a qcow2 file: only that format has a backing file.
        let format = match base.format {
            Format::Raw | Format::Vmdk if def.kind.is_file() => Format::Qcow2,
            other => other,
        };
        let file = self.free_name(def, vmid, format)?;
        let owner = base.vmid.ok_or_else(missing)?;
        let name = Name {
            content: base.content,
            vmid: Some(vmid),
            file,
            base: Some((owner, base.file.clone())),
            format,
        };
        let mut volume = Volume::new(name, size, fresh_use(format, size), now);
        volume.parent = Some(base.key());
        volume.image = image;
        if def.kind == Kind::LvmThin {
            // Thin volumes forget where they came from, so the base can be removed under them.
            volume.parent = None;
            volume.name.base = None;
        }
        let volid = format!("{}:{}", def.id, volume.name.volname(def.kind));
        self.volumes.insert(volume.name.key(), volume);
        Ok(volid)
    }

    pub(crate) fn rename(
        &mut self,
        def: &Definition,
        name: &Name,
        vmid: u32,
    ) -> Result<String, Error> {
        let file = self.free_name(def, vmid, name.format)?;
        let missing = || Error::NoVolume(format!("{}:{}", def.id, name.volname(def.kind)));
        let mut volume = self.volumes.remove(&name.key()).ok_or_else(missing)?;
        volume.name.file = file;
        volume.name.vmid = Some(vmid);
        let volid = format!("{}:{}", def.id, volume.name.volname(def.kind));
        self.volumes.insert(volume.name.key(), volume);
        Ok(volid)
    }
}

mod bytes_as_text {
    //! Keeps file contents as base64 in a state file.

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature serde's `with` asks for")]
    pub(super) fn serialize<S: Serializer>(
        data: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        data.as_ref()
            .map(|bytes| STANDARD.encode(bytes))
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let decode = |text: String| STANDARD.decode(text).map_err(serde::de::Error::custom);
        Ok(text.map(decode).transpose()?.map(Bytes::from))
    }
}
