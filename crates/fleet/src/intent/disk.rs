//! Disks.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Size, StorageId};

/// The bus a disk sits on.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Bus {
    /// SCSI: up to 31 disks, hot-pluggable.
    #[default]
    Scsi,
    /// VirtIO block: up to 16 disks, hot-pluggable.
    Virtio,
    /// SATA: up to 6 disks.
    Sata,
    /// IDE: up to 4 disks.
    Ide,
}

impl Bus {
    /// The bus in PVE's config keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Bus::Scsi => "scsi",
            Bus::Virtio => "virtio",
            Bus::Sata => "sata",
            Bus::Ide => "ide",
        }
    }

    /// How many devices fit.
    pub fn slots(self) -> u8 {
        match self {
            Bus::Scsi => 31,
            Bus::Virtio => 16,
            Bus::Sata => 6,
            Bus::Ide => 4,
        }
    }
}

/// A place for a disk: a bus and a number on it, written as PVE does (`scsi0`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DiskSlot {
    /// The bus.
    pub bus: Bus,
    /// The number on it.
    pub index: u8,
}

impl fmt::Display for DiskSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.bus.as_str(), self.index)
    }
}

/// A disk slot that PVE does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a disk slot: use scsi0-30, virtio0-15, sata0-5 or ide0-3")]
pub struct BadSlot(String);

impl FromStr for DiskSlot {
    type Err = BadSlot;
    fn from_str(text: &str) -> Result<Self, BadSlot> {
        let bad = || BadSlot(text.to_owned());
        let split = text.find(|c: char| c.is_ascii_digit()).ok_or_else(bad)?;
        let (bus, index) = text.split_at(split);
        let bus = match bus {
            "scsi" => Bus::Scsi,
            "virtio" => Bus::Virtio,
            "sata" => Bus::Sata,
            "ide" => Bus::Ide,
            _ => return Err(bad()),
        };
        let index: u8 = index.parse().map_err(|_| bad())?;
        if index >= bus.slots() || format!("{}{index}", bus.as_str()) != text {
            return Err(bad());
        }
        Ok(Self { bus, index })
    }
}

impl TryFrom<String> for DiskSlot {
    type Error = BadSlot;
    fn try_from(text: String) -> Result<Self, BadSlot> {
        text.parse()
    }
}

impl From<DiskSlot> for String {
    fn from(slot: DiskSlot) -> String {
        slot.to_string()
    }
}

/// What a disk is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskRole {
    /// The disk the guest boots from: the source's own boot disk, or the first one made.
    Root,
    /// Any other disk.
    #[default]
    Data,
}

/// A disk as it shall be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Disk {
    /// The caller's name for it; the slot it gets is remembered under this name.
    pub name: String,
    /// What it is for.
    pub role: DiskRole,
    /// The bus. A disk stays on the one it was made on; if nothing is said, a new one is on the SCSI bus.
    pub bus: Option<Bus>,
    /// A fixed slot, for callers who need to know it.
    pub slot: Option<DiskSlot>,
    /// The storage a new disk is made on. A root disk with a storage makes the copy a full one
    /// when the template lives elsewhere.
    pub storage: Option<StorageId>,
    /// Once it was made it stays where it is: `storage` is only where that is done.
    pub stays: bool,
    /// Its size. Growing is done online; a smaller size than the disk has is refused.
    pub size: Option<Size>,
    /// File format on file storages: `raw`, `qcow2` or `vmdk`. A disk keeps the one it was made with.
    pub format: Option<String>,
    /// Thin (`Some(true)`, and when nothing is said): space is taken as it is written. Thick
    /// (`Some(false)`): the node is chosen so that the whole size is free, and file storages get a
    /// raw image. Thin is refused on storages that can only allocate in full.
    pub thin: Option<bool>,
    /// Cache mode: `none`, `writethrough`, `writeback`, `unsafe`, `directsync`.
    pub cache: Option<String>,
    /// Pass discards on to the storage.
    pub discard: Option<bool>,
    /// Show the disk as an SSD.
    pub ssd: Option<bool>,
    /// An I/O thread of its own (SCSI with `virtio-scsi-single`, or VirtIO).
    pub iothread: Option<bool>,
    /// `native`, `threads` or `io_uring`.
    pub aio: Option<String>,
    /// Include the disk in backups.
    pub backup: Option<bool>,
    /// Include the disk in replication.
    pub replicate: Option<bool>,
    /// Attach it read-only.
    pub read_only: Option<bool>,
    /// A serial number the guest sees.
    pub serial: Option<String>,
    /// Limits on bandwidth and operations.
    pub limits: DiskLimits,
    /// A volume to copy into the new disk.
    pub import_from: Option<String>,
}

impl Disk {
    /// The format it is made in; nothing if the storage or the source decides.
    pub(crate) fn made_as(&self) -> Option<String> {
        let thick = || (self.thin == Some(false)).then(|| "raw".to_owned());
        self.format.clone().or_else(thick)
    }
}

/// Limits of one disk; `None` is unlimited and not owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskLimits {
    /// Read bandwidth, MB/s.
    pub mbps_rd: Option<u32>,
    /// Write bandwidth, MB/s.
    pub mbps_wr: Option<u32>,
    /// Read operations per second.
    pub iops_rd: Option<u32>,
    /// Write operations per second.
    pub iops_wr: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_read_as_pve_writes_them_and_nothing_else() {
        for good in ["scsi0", "scsi30", "virtio15", "sata5", "ide3"] {
            assert_eq!(good.parse::<DiskSlot>().unwrap().to_string(), good);
        }
        for bad in ["scsi31", "scsi", "ide4", "nvme0", "scsi01", "scsi-1", ""] {
            assert!(bad.parse::<DiskSlot>().is_err(), "{bad}");
        }
    }
}
