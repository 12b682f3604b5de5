//! What guests ask of the rest of the cluster: bridges, resolvers, HA.

use serde_json::{Value, json};

use super::Kind;
use crate::failure::Failure;
use crate::task::Worker;
use crate::world::World;

/// Whether a node has this bridge or virtual network.
pub(crate) fn has_bridge(world: &World, node: &str, bridge: &str) -> bool {
    world.bridge_exists(node, bridge)
}

/// The zone of a virtual network, or `None` for a plain bridge.
pub(crate) fn zone_of<'a>(world: &'a World, bridge: &str) -> Option<&'a str> {
    world.sdn.zone_of_vnet(bridge)
}

/// The name servers and search domain of a node.
pub(crate) fn resolver(world: &World, node: &str) -> (Vec<String>, Option<String>) {
    let node = world.nodes.get(node);
    let search = node
        .map(|node| node.search_domain.clone())
        .filter(|it| !it.is_empty());
    (
        node.map(|node| node.dns.clone()).unwrap_or_default(),
        search,
    )
}

/// Whether the HA manager has this guest.
pub(crate) fn ha_managed(world: &World, vmid: u32) -> bool {
    world.ha.managed(vmid)
}

/// Asks the HA manager to bring a guest into a state.
pub(crate) fn ha_request(worker: &Worker, vmid: u32, state: &str) -> Result<(), Failure> {
    worker.world(|world| world.ha.request(vmid, state));
    Ok(())
}

/// The `ha` object of a guest's status.
pub(crate) fn ha_status(world: &World, vmid: u32) -> Value {
    if world.ha.managed(vmid) {
        json!({ "managed": 1, "state": world.ha.state(vmid) })
    } else {
        json!({ "managed": 0 })
    }
}

/// A clone gets a copy of its source's firewall file.
pub(crate) fn firewall_copied(world: &mut World, from: u32, to: u32) {
    world.firewall.copy_guest(from, to);
}

/// A guest is gone: so are its firewall file and, if asked, its HA entries.
pub(crate) fn forget(world: &mut World, vmid: u32, purge: bool) {
    world.firewall.remove_guest(vmid);
    world.access.forget_guest(vmid);
    if purge {
        world.ha.forget(vmid);
    }
}

/// Asks the HA manager to bring a guest to another node.
pub(crate) fn ha_migrate(worker: &Worker, vmid: u32, target: &str) -> Result<(), Failure> {
    worker.world(|world| world.ha.request_migrate(vmid, target));
    Ok(())
}

/// A new guest is put under the HA manager.
pub(crate) fn ha_add(world: &mut World, kind: Kind, vmid: u32, state: &str) {
    let prefix = if kind == Kind::Qemu { "vm" } else { "ct" };
    world.ha.add(&format!("{prefix}:{vmid}"), state);
}
