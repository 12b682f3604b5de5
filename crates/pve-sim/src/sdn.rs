//! Software-defined networks: zones, virtual networks and subnets.
//!
//! Changes are staged and have no effect until they are applied to all nodes: every object has
//! the configuration that runs and the one that is wanted.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::world::World;

/// The options of one object.
pub(crate) type Options = BTreeMap<String, String>;

/// An object as it runs and as it is wanted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Staged {
    pub(crate) running: Option<Options>,
    pub(crate) wanted: Option<Options>,
}

impl Staged {
    /// `new`, `changed` or `deleted`, if applying would do something.
    pub(crate) fn state(&self) -> Option<&'static str> {
        match (&self.running, &self.wanted) {
            (None, Some(_)) => Some("new"),
            (Some(_), None) => Some("deleted"),
            (running, wanted) if running != wanted => Some("changed"),
            _ => None,
        }
    }
}

/// An address that was given out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Address {
    pub(crate) zone: String,
    pub(crate) vnet: String,
    pub(crate) subnet: String,
    pub(crate) mac: Option<String>,
    pub(crate) vmid: Option<u32>,
}

/// PVE's own address management, which is always there.
fn own_ipam() -> BTreeMap<String, Options> {
    let own = Options::from([("type".to_owned(), "pve".to_owned())]);
    BTreeMap::from([("pve".to_owned(), own)])
}

impl Default for Sdn {
    fn default() -> Self {
        Self {
            zones: BTreeMap::new(),
            vnets: BTreeMap::new(),
            subnets: BTreeMap::new(),
            controllers: BTreeMap::new(),
            dns: BTreeMap::new(),
            ipams: own_ipam(),
            addresses: BTreeMap::new(),
            lock: None,
        }
    }
}

/// All objects by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sdn {
    pub(crate) zones: BTreeMap<String, Staged>,
    pub(crate) vnets: BTreeMap<String, Staged>,
    /// By id such as `z1-10.9.0.0-24`; the option `vnet` says where it belongs.
    pub(crate) subnets: BTreeMap<String, Staged>,
    #[serde(default)]
    pub(crate) controllers: BTreeMap<String, Staged>,
    /// Name servers that networks are told to.
    #[serde(default)]
    pub(crate) dns: BTreeMap<String, Options>,
    /// Who manages addresses.
    #[serde(default = "own_ipam")]
    pub(crate) ipams: BTreeMap<String, Options>,
    /// Addresses given out by PVE's own management.
    #[serde(default)]
    pub(crate) addresses: BTreeMap<IpAddr, Address>,
    /// The token of whoever may change them alone.
    #[serde(default)]
    pub(crate) lock: Option<String>,
}

impl Sdn {
    fn staged_mut(&mut self) -> [&mut BTreeMap<String, Staged>; 4] {
        [
            &mut self.zones,
            &mut self.vnets,
            &mut self.subnets,
            &mut self.controllers,
        ]
    }

    /// Makes the wanted configuration the running one.
    pub(crate) fn apply(&mut self) {
        for objects in self.staged_mut() {
            objects.retain(|_, object| object.wanted.is_some());
            for object in objects.values_mut() {
                object.running.clone_from(&object.wanted);
            }
        }
    }

    /// Whether anything waits to be applied.
    pub(crate) fn is_pending(&self) -> bool {
        let all = [&self.zones, &self.vnets, &self.subnets, &self.controllers];
        all.iter()
            .any(|objects| objects.values().any(|object| object.state().is_some()))
    }

    /// Gives up what is wanted and does not run yet.
    pub(crate) fn rollback(&mut self) {
        for objects in self.staged_mut() {
            objects.retain(|_, object| object.running.is_some());
            for object in objects.values_mut() {
                object.wanted.clone_from(&object.running);
            }
        }
    }

    /// The zone of a virtual network that runs.
    pub(crate) fn zone_of_vnet(&self, vnet: &str) -> Option<&str> {
        self.vnets
            .get(vnet)?
            .running
            .as_ref()?
            .get("zone")
            .map(String::as_str)
    }

    /// Virtual networks that run, with their zones.
    pub(crate) fn applied_vnets(&self) -> impl Iterator<Item = (&str, &str)> {
        self.vnets.iter().filter_map(|(vnet, object)| {
            let zone = object.running.as_ref()?.get("zone")?;
            Some((vnet.as_str(), zone.as_str()))
        })
    }
}

impl World {
    /// The rows about networks in the list of resources.
    pub(crate) fn sdn_rows(&self, seen: &dyn Fn(&str) -> bool) -> Vec<Value> {
        let mut rows = Vec::new();
        let zones = std::iter::once("localnetwork").chain(
            self.sdn
                .zones
                .iter()
                .filter(|(_, it)| it.running.is_some())
                .map(|(id, _)| id.as_str()),
        );
        for zone in zones.filter(|zone| seen(zone)) {
            for (node, host) in &self.nodes {
                let status = if host.up { "ok" } else { "unknown" };
                rows.push(if self.release.is_9() {
                    json!({
                        "id": format!("network/{node}/zone/{zone}"), "node": node,
                        "type": "network", "network": zone, "network-type": "zone",
                        "status": status,
                    })
                } else {
                    json!({
                        "id": format!("sdn/{node}/{zone}"), "node": node, "type": "sdn",
                        "sdn": zone, "status": status,
                    })
                });
            }
        }
        rows
    }
}
