//! What is known about guests and clusters.

use std::{collections::BTreeMap, net::IpAddr};

use pve::privilege::Feature;
use uuid::Uuid;

use crate::{NodeName, Size, StorageId, Vmid, intent::Mac};

/// The power state PVE shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PowerFact {
    /// Not known: the node is down, or PVE has not looked yet.
    #[default]
    Unknown,
    /// Running.
    Running,
    /// Off.
    Stopped,
    /// On, with processors standing still.
    Paused,
    /// Suspended to disk.
    Suspended,
}

impl PowerFact {
    /// Whether it has processors and memory of its host, moving or not.
    pub fn is_on(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

/// What is known about a guest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GuestFacts {
    /// Its VMID.
    pub vmid: Option<Vmid>,
    /// Its SMBIOS UUID.
    pub uuid: Option<Uuid>,
    /// The node it is on now.
    pub node: Option<NodeName>,
    /// Its name in PVE.
    pub name: Option<String>,
    /// Its power state.
    pub power: PowerFact,
    /// Seconds since it was started.
    pub uptime: Option<u64>,
    /// Processors it has.
    pub cpus: Option<f64>,
    /// Memory it has.
    pub memory: Option<Size>,
    /// Memory it uses.
    pub memory_used: Option<Size>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The lock it carries.
    pub lock: Option<String>,
    /// Its pool.
    pub pool: Option<String>,
    /// Its state in PVE's HA manager.
    pub ha: Option<String>,
    /// Its interfaces, with the addresses its agent reports.
    pub nics: Vec<NicFacts>,
    /// Whether its agent has answered since it was started.
    pub agent: bool,
    /// Its host name, as its agent reports it.
    pub hostname: Option<String>,
    /// Owned fields that differ from what was declared.
    pub drift: Vec<Drift>,
    /// Configuration keys that wait for a restart.
    pub pending: Vec<String>,
    /// Its disks.
    pub disks: Vec<DiskFacts>,
    /// Disks that came larger from their source than they are declared.
    pub larger: Vec<Larger>,
    /// Why it is on its node, when this fleet placed it.
    pub placement: Option<String>,
    /// First-boot data was changed after the guest had read it: it has no effect on this guest.
    pub stale_first_boot: bool,
}

impl GuestFacts {
    /// All addresses, link-local ones left out, in the order of the interfaces.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.nics
            .iter()
            .flat_map(|nic| nic.addresses.iter().copied())
            .collect()
    }
}

/// What is known about an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicFacts {
    /// The caller's name for it; the guest's own for interfaces that are not declared.
    pub name: String,
    /// The name the guest gives it.
    pub device: Option<String>,
    /// Its hardware address.
    pub mac: Mac,
    /// Its addresses, link-local ones left out.
    pub addresses: Vec<IpAddr>,
}

/// What is known about a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// The caller's name for it, if declared.
    pub name: Option<String>,
    /// Its key in PVE's configuration.
    pub slot: String,
    /// Its volume.
    pub volume: String,
    /// Its size.
    pub size: Option<Size>,
}

/// A disk that is as large as its source, which is more than was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Larger {
    /// The caller's name for it.
    pub disk: String,
    /// Its size.
    pub has: Size,
    /// The size that was declared.
    pub declared: Size,
}

/// An owned field that differs from what was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// The configuration key.
    pub key: String,
    /// What was declared.
    pub declared: Option<String>,
    /// What is there.
    pub found: Option<String>,
}

/// What is known about a PVE cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterFacts {
    /// Whether it answers.
    pub reachable: bool,
    /// Why it does not, in PVE's or the network's words.
    pub problem: Option<String>,
    /// Whether the problem is that it answers and does not accept the credentials.
    pub refused: bool,
    /// Whether the problem is that another cluster answers.
    pub stranger: bool,
    /// Its version, such as `9.2.11`.
    pub version: Option<String>,
    /// Whether changes are possible. `None` where it could not be read.
    pub quorate: Option<bool>,
    /// Its nodes.
    pub nodes: BTreeMap<NodeName, NodeFacts>,
    /// Its storages.
    pub storages: BTreeMap<StorageId, StorageFacts>,
    /// Its templates.
    pub templates: Vec<TemplateFacts>,
    /// Bridges and VNets, by node.
    pub bridges: BTreeMap<NodeName, Vec<String>>,
    /// Devices that guests can be given.
    pub devices: DeviceFacts,
    /// Privileges that are held nowhere, as `path: privilege`, by what does not work without them.
    pub missing_privileges: BTreeMap<Feature, Vec<String>>,
    /// Guests in the cluster, ours or not.
    pub guests: usize,
}

/// Devices of nodes under names of the cluster, as far as these credentials may use them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceFacts {
    /// PCI devices: the mapping's name, and how many there are on each node.
    pub pci: Mappings,
    /// USB devices, likewise.
    pub usb: Mappings,
}

/// How many devices each node has under each name.
pub type Mappings = BTreeMap<String, BTreeMap<NodeName, usize>>;

/// What is known about a node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeFacts {
    /// Whether it is part of the cluster just now.
    pub online: bool,
    /// Its processors.
    pub cpus: f64,
    /// The part of them in use.
    pub cpu_used: f64,
    /// Its memory.
    pub memory: Size,
    /// Its memory in use.
    pub memory_used: Size,
    /// Guests on it.
    pub guests: usize,
    /// State in PVE's HA manager, such as `maintenance`.
    pub ha: Option<String>,
}

/// What is known about a storage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StorageFacts {
    /// The plugin, such as `lvmthin`.
    pub kind: String,
    /// All nodes see the same contents.
    pub shared: bool,
    /// What may be kept on it.
    pub content: Vec<String>,
    /// Size and use on each node where it is available.
    pub nodes: BTreeMap<NodeName, Space>,
}

/// Room on a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// All of it.
    pub total: Size,
    /// The part in use.
    pub used: Size,
}

impl Space {
    /// What is free.
    pub fn free(self) -> Size {
        self.total - self.used
    }
}

/// What is known about a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateFacts {
    /// Its VMID.
    pub vmid: Vmid,
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: NodeName,
    /// Its tags.
    pub tags: Vec<String>,
    /// Processors a copy of it has.
    pub cpus: u32,
    /// Memory a copy of it has.
    pub memory: Size,
}
