//! Disks.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{class::Provisioning, quantity::Bytes};

/// One disk. The first one listed, or the one named `root`, is the disk the image brings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Name of the disk, unique in the machine.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Size. May grow while the guest runs; never shrinks.
    pub size: Bytes,
    /// PVE storage, instead of the class's or the Provider's.
    #[schemars(length(min = 1, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// The same as `storage`, as classes spell it.
    #[schemars(length(min = 1, max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Take space as it is used, or all at once.
    #[serde(rename = "type")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<Provisioning>,
    /// Bus the disk is on, `scsi` unless told otherwise. A disk stays on the bus it was made on, and a copied one on its
    /// source's: where another is declared, the condition `Drifted` says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// File format, on storages that have a choice. A disk keeps the format it was made with: where another is declared,
    /// the condition `Drifted` says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<DiskFormat>,
    /// Host cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<DiskCache>,
    /// Pass discards through, so that freed space is given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discard: Option<bool>,
    /// Tell the guest it is an SSD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssd: Option<bool>,
    /// An I/O thread of its own, on `virtio`, or on `scsi` behind `virtio-scsi-single`, which takes the place of `virtio-scsi-pci`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread: Option<bool>,
    /// How the host does the I/O.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aio: Option<AsyncIo>,
    /// Include in backups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// Include in replication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicate: Option<bool>,
    /// The guest cannot write to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Serial number the guest sees.
    #[schemars(length(max = 20))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<DiskLimits>,
}

/// A bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskBus {
    /// SCSI through virtio.
    #[default]
    Scsi,
    /// virtio block.
    Virtio,
    /// SATA.
    Sata,
    /// IDE.
    Ide,
}

/// A disk file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// Plain bytes.
    Raw,
    /// QEMU's, with snapshots.
    Qcow2,
    /// VMware's.
    Vmdk,
}

/// A cache mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskCache {
    /// No host cache.
    None,
    /// Reads cached, writes through.
    Writethrough,
    /// Reads and writes cached.
    Writeback,
    /// Cached, flushes ignored: data is lost with the host.
    Unsafe,
    /// No host cache, every write synced.
    Directsync,
}

/// An I/O engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AsyncIo {
    /// io_uring.
    #[serde(rename = "io_uring")]
    IoUring,
    /// Linux native.
    #[serde(rename = "native")]
    Native,
    /// Threads.
    #[serde(rename = "threads")]
    Threads,
}

/// Limits of one disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskLimits {
    /// Reads per second.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<u32>,
    /// Writes per second.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<u32>,
    /// Read megabytes per second.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(rename = "readMBps")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_mbps: Option<u32>,
    /// Written megabytes per second.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(rename = "writeMBps")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_mbps: Option<u32>,
}
