//! The hosts of a cluster: their hardware, their network, whether they are up.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::world::World;

const GIB: u64 = 1 << 30;

/// One host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Its number in the cluster.
    pub(crate) id: u32,
    /// Its address in the cluster network.
    pub(crate) ip: String,
    pub(crate) sockets: u32,
    /// Cores of all sockets together.
    pub(crate) cores: u32,
    /// Threads of all cores together: what guests can use.
    pub(crate) cpus: u32,
    pub(crate) numa_cells: u32,
    /// Bytes.
    pub(crate) memory: u64,
    /// Bytes of the root file system.
    pub(crate) disk: u64,
    /// Whether the host has power and its services run.
    pub(crate) up: bool,
    /// When it was started, in seconds since 1970.
    pub(crate) started: u64,
    /// The tasks that ran when it lost its power: until it is up again, that is the last it has told the others of them.
    #[serde(default)]
    pub(crate) cut: BTreeSet<String>,
    /// Network interfaces by name, with the options PVE shows of them.
    pub(crate) network: BTreeMap<String, BTreeMap<String, String>>,
    /// Name servers.
    pub(crate) dns: Vec<String>,
    pub(crate) search_domain: String,
    pub(crate) pci: Vec<Pci>,
    pub(crate) usb: Vec<Usb>,
    /// What `config` of the node says.
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
    /// The file of names, once somebody wrote it.
    #[serde(default)]
    pub(crate) hosts: Option<String>,
    #[serde(default)]
    pub(crate) timezone: Option<String>,
    /// The key of a subscription.
    #[serde(default)]
    pub(crate) subscription: Option<String>,
    /// Services that were stopped.
    #[serde(default)]
    pub(crate) stopped: BTreeSet<String>,
    /// Package repositories of the vendor that are switched on.
    #[serde(default)]
    pub(crate) repositories: BTreeMap<String, bool>,
}

/// A PCI device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Pci {
    /// `0000:01:00.0`
    pub(crate) id: String,
    pub(crate) class: String,
    pub(crate) vendor: String,
    pub(crate) device: String,
    pub(crate) iommugroup: i32,
    #[serde(default)]
    pub(crate) vendor_name: Option<String>,
    #[serde(default)]
    pub(crate) device_name: Option<String>,
    /// Whether it can be divided into virtual devices.
    #[serde(default)]
    pub(crate) mdev: bool,
}

/// A USB device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Usb {
    pub(crate) busnum: u32,
    pub(crate) devnum: u32,
    pub(crate) vendid: String,
    pub(crate) prodid: String,
    #[serde(default)]
    pub(crate) product: Option<String>,
}

/// How busy a host is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Share of all its processors.
    pub(crate) cpu: f64,
    /// Bytes.
    pub(crate) mem: u64,
}

impl Node {
    /// A host with two sockets, two NUMA cells, 32 threads, 128 GiB and three bridges.
    pub(crate) fn new(id: u32, started: u64) -> Self {
        let ip = format!("10.0.0.{}", id + 10);
        let mut network = BTreeMap::new();
        let nic = |name: &str| options(&[("type", "eth"), ("exists", "1"), ("iface", name)]);
        network.insert("eno1".to_owned(), nic("eno1"));
        network.insert("eno2".to_owned(), nic("eno2"));
        for (number, port) in [(0, "eno1"), (1, "eno2"), (2, "")] {
            network.insert(format!("vmbr{number}"), bridge(port));
        }
        if let Some(first) = network.get_mut("vmbr0") {
            first.extend(options(&[
                ("method", "static"),
                ("address", &ip),
                ("netmask", "24"),
                ("cidr", &format!("{ip}/24")),
                ("gateway", "10.0.0.1"),
            ]));
        }
        Self {
            id,
            ip,
            sockets: 2,
            cores: 16,
            cpus: 32,
            numa_cells: 2,
            memory: 128 * GIB,
            disk: 100 * GIB,
            up: true,
            started,
            cut: BTreeSet::new(),
            network,
            dns: vec!["10.0.0.53".to_owned()],
            search_domain: "sim.local".to_owned(),
            pci: Vec::new(),
            usb: Vec::new(),
            options: BTreeMap::new(),
            hosts: None,
            timezone: None,
            subscription: None,
            stopped: BTreeSet::new(),
            repositories: BTreeMap::new(),
        }
    }

    /// Whether there is a bridge of this name.
    pub(crate) fn has_bridge(&self, name: &str) -> bool {
        self.network.get(name).is_some_and(|iface| {
            iface
                .get("type")
                .is_some_and(|kind| kind == "bridge" || kind == "OVSBridge")
        })
    }
}

fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// A bridge with this port, or none.
pub(crate) fn bridge(port: &str) -> BTreeMap<String, String> {
    options(&[
        ("type", "bridge"),
        ("method", "manual"),
        ("method6", "manual"),
        ("bridge_ports", port),
        ("bridge_stp", "off"),
        ("bridge_fd", "0"),
        ("autostart", "1"),
        ("active", "1"),
        ("priority", "3"),
    ])
}

impl World {
    /// How busy a host is with its guests.
    pub(crate) fn node_usage(&self, name: &str) -> Usage {
        let Some(node) = self.nodes.get(name).filter(|node| node.up) else {
            return Usage::default();
        };
        let mut usage = Usage {
            cpu: 0.005,
            mem: 2 * GIB,
        };
        for guest in self.guests.on_node(name) {
            let of_guest = crate::guest::view::usage(self, guest);
            usage.mem += of_guest.memhost;
            #[expect(clippy::cast_precision_loss, reason = "a count of processors")]
            let share = of_guest.cpu * of_guest.maxcpu as f64 / f64::from(node.cpus.max(1));
            usage.cpu += share;
        }
        usage
    }

    /// Whether guests on `node` can be attached to `bridge`: a bridge of the host, or an applied
    /// virtual network.
    pub(crate) fn bridge_exists(&self, node: &str, bridge: &str) -> bool {
        self.nodes.get(node).is_some_and(|it| it.has_bridge(bridge))
            || self.sdn.zone_of_vnet(bridge).is_some()
    }

    /// The path whose rights decide who may use a bridge.
    pub(crate) fn bridge_acl_path(&self, bridge: &str) -> String {
        let zone = self.sdn.zone_of_vnet(bridge).unwrap_or("localnetwork");
        format!("/sdn/zones/{zone}/{bridge}")
    }
}
