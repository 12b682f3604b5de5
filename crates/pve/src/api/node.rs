//! Nodes.

use serde::Deserialize;

use crate::client::{Call, Client};
use crate::error::Result;
use crate::id::{NodeName, StorageId, Vmid};
use crate::params::Params;
use crate::{Lxc, Qemu, Storage, scalar};

/// One node, and the way to its guests and storages.
#[derive(Debug, Clone)]
pub struct Node {
    pub(crate) client: Client,
    pub(crate) name: NodeName,
}

/// A node in the list of nodes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct NodeEntry {
    /// Its name.
    pub node: NodeName,
    /// `online`, `offline` or `unknown`.
    pub status: String,
    /// The SHA-256 fingerprint of its certificate.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub ssl_fingerprint: Option<String>,
    /// Used share of its CPUs.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub cpu: Option<f64>,
    /// Number of CPUs.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub maxcpu: Option<u32>,
    /// Used memory in bytes.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub mem: Option<u64>,
    /// Memory in bytes.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub maxmem: Option<u64>,
    /// Seconds since boot.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub uptime: Option<u64>,
}

/// How a node does.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct NodeStatus {
    /// Its processors.
    #[serde(default)]
    pub cpuinfo: CpuInfo,
    /// Its memory.
    #[serde(default)]
    pub memory: Usage,
    /// Its root file system.
    #[serde(default)]
    pub rootfs: Usage,
    /// Used share of its CPUs.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub cpu: Option<f64>,
    /// Load over 1, 5 and 15 minutes.
    #[serde(default)]
    pub loadavg: Vec<String>,
    /// Such as `pve-manager/9.2.11/...`.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub pveversion: Option<String>,
    /// Such as `Linux 6.14.8-2-pve ...`.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub kversion: Option<String>,
    /// Seconds since boot.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub uptime: Option<u64>,
}

/// A node's processors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CpuInfo {
    /// Hardware threads.
    #[serde(deserialize_with = "scalar::optional")]
    pub cpus: Option<u32>,
    /// Cores per socket.
    #[serde(deserialize_with = "scalar::optional")]
    pub cores: Option<u32>,
    /// Sockets.
    #[serde(deserialize_with = "scalar::optional")]
    pub sockets: Option<u32>,
    /// The processor's name.
    #[serde(deserialize_with = "scalar::optional")]
    pub model: Option<String>,
    /// Whether it can virtualise.
    #[serde(deserialize_with = "scalar::flag")]
    pub hvm: bool,
    /// Its features, separated by blanks.
    #[serde(deserialize_with = "scalar::optional")]
    pub flags: Option<String>,
}

/// A total and what is used of it, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// All.
    #[serde(deserialize_with = "scalar::optional")]
    pub total: Option<u64>,
    /// Used.
    #[serde(deserialize_with = "scalar::optional")]
    pub used: Option<u64>,
    /// Free.
    #[serde(deserialize_with = "scalar::optional")]
    pub free: Option<u64>,
}

/// A network interface of a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interface {
    /// Its name.
    pub iface: String,
    /// `bridge`, `bond`, `eth`, `vlan`, `OVSBridge`, ...
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Whether it is up.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub active: bool,
    /// Its address with prefix length.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub cidr: Option<String>,
    /// Its gateway.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub gateway: Option<String>,
    /// The ports of a bridge.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub bridge_ports: Option<String>,
    /// Whether the bridge separates VLANs by itself.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub bridge_vlan_aware: bool,
    /// Its largest packet.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub mtu: Option<u32>,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub comments: Option<String>,
}

/// A node's clock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NodeTime {
    /// Seconds since 1970.
    #[serde(deserialize_with = "scalar::required")]
    pub time: u64,
    /// The same, shifted to the node's time zone.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub localtime: Option<u64>,
    /// The time zone.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub timezone: Option<String>,
}

impl Client {
    /// The nodes of the cluster.
    pub async fn nodes(&self) -> Result<Vec<NodeEntry>> {
        self.call(Call::get("nodes.list", "/nodes")).await
    }

    /// One node.
    pub fn node(&self, name: &NodeName) -> Node {
        Node {
            client: self.clone(),
            name: name.clone(),
        }
    }
}

impl Node {
    /// Its name.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// One of its virtual machines.
    pub fn qemu(&self, vmid: Vmid) -> Qemu {
        Qemu::new(self, vmid)
    }

    /// One of its containers.
    pub fn lxc(&self, vmid: Vmid) -> Lxc {
        Lxc::new(self, vmid)
    }

    /// One of its storages.
    pub fn storage(&self, id: &StorageId) -> Storage {
        Storage::new(self, id)
    }

    /// How it does.
    pub async fn status(&self) -> Result<NodeStatus> {
        self.client
            .call(Call::get("node.status", self.path("/status")))
            .await
    }

    /// Its network interfaces, of one kind (`bridge`, `any_bridge`, ...) or all.
    pub async fn network(&self, kind: Option<&str>) -> Result<Vec<Interface>> {
        let params = Params::new().maybe("type", kind);
        self.client
            .call(Call::get("node.network", self.path("/network")).params(params))
            .await
    }

    /// Its clock.
    pub async fn time(&self) -> Result<NodeTime> {
        self.client
            .call(Call::get("node.time", self.path("/time")))
            .await
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/nodes/{}{rest}", self.name)
    }
}
