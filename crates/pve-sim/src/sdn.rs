//! Software-defined networks: zones, virtual networks and subnets.
//!
//! Changes are staged and have no effect until they are applied to all nodes: every object has
//! the configuration that runs and the one that is wanted.

use std::collections::BTreeMap;

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

/// All objects by id.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sdn {
    pub(crate) zones: BTreeMap<String, Staged>,
    pub(crate) vnets: BTreeMap<String, Staged>,
    /// By id such as `z1-10.9.0.0-24`; the option `vnet` says where it belongs.
    pub(crate) subnets: BTreeMap<String, Staged>,
    /// The token of whoever may change them alone.
    #[serde(default)]
    pub(crate) lock: Option<String>,
}

impl Sdn {
    /// Makes the wanted configuration the running one.
    pub(crate) fn apply(&mut self) {
        for objects in [&mut self.zones, &mut self.vnets, &mut self.subnets] {
            objects.retain(|_, object| object.wanted.is_some());
            for object in objects.values_mut() {
                object.running.clone_from(&object.wanted);
            }
        }
    }

    /// Whether anything waits to be applied.
    pub(crate) fn is_pending(&self) -> bool {
        let all = [&self.zones, &self.vnets, &self.subnets];
        all.iter()
            .any(|objects| objects.values().any(|object| object.state().is_some()))
    }

    /// Gives up what is wanted and does not run yet.
    pub(crate) fn rollback(&mut self) {
        for objects in [&mut self.zones, &mut self.vnets, &mut self.subnets] {
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
