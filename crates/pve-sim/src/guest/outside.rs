//! What guests ask of the rest of the cluster: bridges, resolvers, HA.

use serde_json::{Value, json};

use super::Kind;
use crate::failure::Failure;
use crate::task::Worker;
use crate::world::World;

/// Whether a node has this bridge or virtual network.
pub(crate) fn has_bridge(world: &World, node: &str, bridge: &str) -> bool {
    let _ = (world, node);
    bridge.starts_with("vmbr")
}

/// The zone of a virtual network, or `None` for a plain bridge.
pub(crate) fn zone_of<'a>(world: &'a World, bridge: &str) -> Option<&'a str> {
    let _ = (world, bridge);
    None
}

/// The name servers and search domain of a node.
pub(crate) fn resolver(world: &World, node: &str) -> (Vec<String>, Option<String>) {
    let _ = (world, node);
    (vec!["10.255.255.53".to_owned()], None)
}

/// Whether the HA manager has this guest.
pub(crate) fn ha_managed(world: &World, vmid: u32) -> bool {
    let _ = (world, vmid);
    false
}

/// Asks the HA manager to bring a guest into a state.
pub(crate) fn ha_request(worker: &Worker, vmid: u32, state: &str) -> Result<(), Failure> {
    let _ = (worker, vmid, state);
    Ok(())
}

/// The `ha` object of a guest's status.
pub(crate) fn ha_status(world: &World, vmid: u32) -> Value {
    let _ = (world, vmid);
    json!({ "managed": 0 })
}

/// A clone gets a copy of its source's firewall file.
pub(crate) fn firewall_copied(world: &mut World, from: u32, to: u32) {
    let _ = (world, from, to);
}

/// A guest is gone: so are its firewall file and, if asked, its HA entries.
pub(crate) fn forget(world: &mut World, vmid: u32, purge: bool) {
    let _ = (world, vmid, purge);
}

/// Asks the HA manager to bring a guest to another node.
pub(crate) fn ha_migrate(worker: &Worker, vmid: u32, target: &str) -> Result<(), Failure> {
    let _ = (worker, vmid, target);
    Ok(())
}

/// A new guest is put under the HA manager.
pub(crate) fn ha_add(world: &mut World, kind: Kind, vmid: u32, state: &str) {
    let _ = (world, kind, vmid, state);
}
