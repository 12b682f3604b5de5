//! What a caller wants: one guest, described completely.
//!
//! An intent is a value without history. Two intents that are equal ask for the same thing, and
//! asking again changes nothing. `None` always means "not mine": a field that is not set is
//! neither changed nor reported as drift, so a guest made by hand can be taken over field by field.

mod action;
mod disk;
mod hardware;
mod image;
mod init;
mod network;
mod options;
mod placement;
mod policy;
mod secret;
mod source;

pub use action::{
    BackupIntent, BackupMode, Compression, MigrationIntent, SnapshotIntent, SnapshotWish,
};
pub use disk::{Bus, Disk, DiskLimits, DiskRole, DiskSlot};
pub use hardware::{
    Agent, Bios, Cpu, EfiDisk, Hardware, Hotplug, Hugepages, Memory, NumaNode, PciDevice, Rng, Tpm,
    TpmVersion, UsbDevice,
};
pub use image::{Checksum, ChecksumKind, ImageIntent, image_tag};
pub use init::{Init, InitMode};
pub use network::{Addressing, Dynamic, Mac, Nic, NicModel, Route};
pub use options::{
    Container, FirewallDirection, FirewallIntent, FirewallRule, Ha, HaState, MountPoint, Options,
    Startup,
};
pub use placement::{AntiAffinity, Placement};
pub use policy::{Deletion, Loss, Management, Policy, Readiness, Update};
pub use secret::Payload;
pub use source::{CloneMode, Source, TemplateRef};

use std::{collections::BTreeSet, ops::RangeInclusive};

use uuid::Uuid;

use crate::{ClusterName, Owner, PowerFact, StorageId, Vmid};

/// Whether the guest shall run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Power {
    /// It shall run.
    #[default]
    On,
    /// It shall be off: asked to shut down first, switched off after the graceful timeout.
    Off,
    /// It shall be off at once, like pulling the plug.
    HardOff,
    /// It shall be on, but its processors stand still.
    Paused,
    /// It shall be suspended to disk.
    Suspended,
    /// Its power belongs to somebody else; it is started once after it was made, if `started`.
    Unmanaged {
        /// Start it once after creation.
        started: bool,
    },
}

impl Power {
    /// Whether a guest is as wanted. PVE's list shows paused guests as running.
    pub fn is_met(self, by: PowerFact) -> bool {
        let off = matches!(by, PowerFact::Stopped | PowerFact::Suspended);
        match self {
            Self::On => by == PowerFact::Running,
            Self::Off | Self::HardOff | Self::Suspended => off,
            Self::Paused => !off,
            Self::Unmanaged { .. } => true,
        }
    }
}

/// The range of VMIDs a guest may get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmidRange(RangeInclusive<u32>);

impl VmidRange {
    /// The range from `first` to `last`, both included; nothing if it is empty or below 100.
    pub fn new(first: u32, last: u32) -> Option<Self> {
        (first >= 100 && last <= 999_999_999 && first <= last).then_some(Self(first..=last))
    }

    /// Whether a VMID lies in the range.
    pub fn contains(&self, vmid: Vmid) -> bool {
        self.0.contains(&vmid.get())
    }

    /// First and last VMID.
    pub fn bounds(&self) -> (u32, u32) {
        (*self.0.start(), *self.0.end())
    }
}

impl Default for VmidRange {
    /// PVE's own default range.
    fn default() -> Self {
        Self(100..=999_999)
    }
}

/// One guest as it shall be.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestIntent {
    /// Who asks. Written into the guest; never reuse one.
    pub owner: Owner,
    /// The PVE cluster it shall live on.
    pub cluster: ClusterName,
    /// Its name in PVE: a DNS name.
    pub name: String,
    /// What it is made from. Read once, when the guest is made.
    pub source: Source,
    /// Processor, memory and devices.
    pub hardware: Hardware,
    /// Its disks. The first with role [`DiskRole::Root`] is the one it boots from.
    pub disks: Vec<Disk>,
    /// Its network interfaces, in order.
    pub nics: Vec<Nic>,
    /// What the guest is told at its first boot.
    pub init: Option<Init>,
    /// Everything PVE keeps beside the hardware: tags, pool, start order, HA, firewall.
    pub options: Options,
    /// What only a container has. Required when the source makes one.
    pub container: Option<Container>,
    /// Whether it shall run.
    pub power: Power,
    /// Raising this number restarts a running guest once.
    pub restarts: u64,
    /// Where it may live.
    pub placement: Placement,
    /// How changes, deletion and losses are handled.
    pub policy: Policy,
    /// The VMIDs it may get.
    pub vmids: VmidRange,
    /// Take over this existing guest instead of making one.
    pub adopt: Option<Vmid>,
    /// How the guest to take over proves to be the one that is meant.
    pub proof: Option<Proof>,
}

/// How a guest proves to be the one that is meant, when nothing but its VMID is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The SMBIOS UUID it must have: a VMID may have been given to another guest meanwhile. Where none is known, it must have
    /// the intent's name.
    pub uuid: Option<Uuid>,
    /// A mark that begins like this is the same owner's, from before its object was moved to another API server.
    pub former: String,
}

impl GuestIntent {
    /// An intent with nothing set beside what every guest has.
    pub fn new(
        owner: Owner,
        cluster: ClusterName,
        name: impl Into<String>,
        source: Source,
    ) -> Self {
        Self {
            owner,
            cluster,
            name: name.into(),
            source,
            hardware: Hardware::default(),
            disks: Vec::new(),
            nics: Vec::new(),
            init: None,
            options: Options::default(),
            container: None,
            power: Power::default(),
            restarts: 0,
            placement: Placement::default(),
            policy: Policy::default(),
            vmids: VmidRange::default(),
            adopt: None,
            proof: None,
        }
    }

    /// The storages that its disks are declared on, and moved to where they are elsewhere.
    pub fn storages(&self) -> BTreeSet<StorageId> {
        let disks = self.disks.iter().filter(|disk| !disk.stays);
        let disks = disks.filter_map(|disk| disk.storage.clone());
        let mounts = self
            .container
            .iter()
            .flat_map(|container| &container.mounts);
        let mounts = mounts.filter(|mount| !mount.stays);
        disks
            .chain(mounts.filter_map(|mount| mount.storage.clone()))
            .collect()
    }

    /// Whether this asks for a container rather than a virtual machine.
    pub fn is_container(&self) -> bool {
        self.container.is_some() || matches!(self.source, Source::ContainerTemplate { .. })
    }
}
