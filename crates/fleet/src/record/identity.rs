//! Who a guest is, and what tells it apart from any other.

use std::collections::{BTreeMap, BTreeSet};

use pve::{GuestConfig, GuestKind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::is_false;
use crate::{
    ClusterName, NodeName, Owner, Vmid,
    intent::{DiskSlot, Mac, Source},
    mark,
    prop::Prop,
};

/// Who a guest is, chosen before it exists and never changed afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The PVE cluster.
    pub cluster: ClusterName,
    /// The node it was made on. Where it is now, the facts say.
    pub node: NodeName,
    /// Its VMID.
    pub vmid: Vmid,
    /// Its SMBIOS UUID.
    pub uuid: Uuid,
    /// Number and hardware address of each interface, by the caller's name for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nics: BTreeMap<String, NicIdentity>,
    /// The slot of each disk, by the caller's name for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, DiskSlot>,
    /// The number of each file system of a container beside its root, by the caller's name for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mounts: BTreeMap<String, u8>,
    /// The disks and file systems that were there when they got their names: they came with the source, or were found.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub brought: BTreeSet<String>,
    /// What it is made from, which is declared only until it is made: what a source is called may mean something else later.
    /// Early records do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The guest was there before and has been taken over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adopted: bool,
}

/// What a guest is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// Nothing that had a configuration.
    New,
    /// Another guest.
    Copy,
    /// A backup.
    Backup,
}

impl Origin {
    /// What a source makes of a guest.
    pub(crate) fn of(source: &Source) -> Self {
        match source {
            Source::Template { .. } => Self::Copy,
            Source::Backup { .. } => Self::Backup,
            _ => Self::New,
        }
    }
}

impl Identity {
    /// What tells the guest apart from any other when its notes do not.
    pub fn likeness(&self) -> Likeness {
        Likeness {
            uuid: Some(self.uuid).filter(|uuid| !uuid.is_nil()),
            macs: self.nics.values().map(|nic| nic.mac).collect(),
        }
    }
}

/// What tells a guest apart from any other when its notes do not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Likeness {
    /// The UUID of a virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// Hardware addresses, of which a container has at least one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<Mac>,
}

impl Likeness {
    /// Whether a guest of this kind and configuration is the one. `None` if nothing is known to compare.
    pub(crate) fn fits(&self, kind: GuestKind, config: &GuestConfig) -> Option<bool> {
        match kind {
            GuestKind::Qemu => Some(uuid_of(config) == Some(self.uuid?)),
            GuestKind::Lxc if self.macs.is_empty() => None,
            GuestKind::Lxc => Some(macs_of(config).any(|mac| self.macs.contains(&mac))),
        }
    }

    /// Whether a guest is the one that is meant, which has this owner; without one, any without a mark that does not differ, and
    /// that with the mark of its `keeper`, who took it over.
    pub(crate) fn is_meant(
        &self,
        owner: Option<&Owner>,
        keeper: Option<&Owner>,
        kind: GuestKind,
        config: &GuestConfig,
    ) -> bool {
        let notes = config.description().unwrap_or_default();
        let fits = self.fits(kind, config);
        match (owner, mark::owner_of(notes)) {
            (Some(owner), Some(found)) => *owner == found,
            (_, None) if mark::is_marked(notes) => false,
            // The mark of who keeps a guest that was taken over, whatever its UUID is now.
            (None, Some(found)) if Some(&found) == keeper => true,
            // Somebody may have rewritten the notes; or have taken it over since, or got its number.
            (Some(_), None) | (None, Some(_)) => fits == Some(true),
            (None, None) => fits != Some(false),
        }
    }
}

/// The UUID that a virtual machine has.
pub(crate) fn uuid_of(config: &GuestConfig) -> Option<Uuid> {
    let text = config.get("smbios1")?;
    Prop::parse("smbios1", text).get("uuid")?.parse().ok()
}

/// The hardware addresses that a guest has.
pub(crate) fn macs_of(config: &GuestConfig) -> impl Iterator<Item = Mac> {
    let nets = config.indexed("net").into_iter();
    nets.filter_map(|(_, text)| mac_of(text))
}

/// The hardware address of an interface: a container's has a name, a virtual machine's that of its model.
pub(crate) fn mac_of(text: &str) -> Option<Mac> {
    let card = Prop::parse("net0", text);
    card.items().find_map(|(_, value)| value.parse().ok())
}

/// Number and hardware address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NicIdentity {
    /// `net<index>`.
    pub index: u8,
    /// Its hardware address.
    pub mac: Mac,
}
