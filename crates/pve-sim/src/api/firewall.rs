//! Firewalls: the same endpoints for the datacenter, nodes and guests.

mod addresses;
mod options;
mod rules;

use crate::access::Caller;
use crate::call::Call;
use crate::failure::Failure;
use crate::firewall::File;
use crate::params::Params;
use crate::permission::Perm;
use crate::release::Release;
use crate::route::Route;
use crate::world::World;

/// The paths below one place that has a firewall.
pub(super) struct Paths {
    rules: &'static str,
    rule: &'static str,
    options: &'static str,
    aliases: &'static str,
    alias: &'static str,
    ipsets: &'static str,
    ipset: &'static str,
    entry: &'static str,
    refs: &'static str,
}

macro_rules! paths {
    ($base:literal) => {
        Paths {
            rules: concat!($base, "/rules"),
            rule: concat!($base, "/rules/{pos}"),
            options: concat!($base, "/options"),
            aliases: concat!($base, "/aliases"),
            alias: concat!($base, "/aliases/{name}"),
            ipsets: concat!($base, "/ipset"),
            ipset: concat!($base, "/ipset/{name}"),
            entry: concat!($base, "/ipset/{name}/{cidr*}"),
            refs: concat!($base, "/refs"),
        }
    };
}

const CLUSTER: Paths = paths!("/cluster/firewall");
const NODE: Paths = paths!("/nodes/{node}/firewall");
const QEMU: Paths = paths!("/nodes/{node}/qemu/{vmid}/firewall");
const LXC: Paths = paths!("/nodes/{node}/lxc/{vmid}/firewall");

pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut routes = rules::group_routes(release);
    for paths in [&CLUSTER, &NODE, &QEMU, &LXC] {
        routes.extend(rules::routes(paths, release));
        routes.extend(options::routes(paths));
    }
    for paths in [&CLUSTER, &QEMU, &LXC] {
        routes.extend(addresses::routes(paths));
    }
    routes
}

/// Whose firewall a call is about.
enum Place {
    Cluster,
    Node(String),
    Guest(u32),
}

impl Place {
    fn of(params: &Params) -> Self {
        match (params.vmid("vmid"), params.get("node")) {
            (Some(vmid), _) => Self::Guest(vmid),
            (None, Some(node)) => Self::Node(node.to_owned()),
            (None, None) => Self::Cluster,
        }
    }

    /// Where rights are checked, and which are needed to read and to change.
    fn rights(&self) -> (String, &'static str, &'static str) {
        match self {
            Self::Cluster => ("/".to_owned(), "Sys.Audit", "Sys.Modify"),
            Self::Node(node) => (format!("/nodes/{node}"), "Sys.Audit", "Sys.Modify"),
            Self::Guest(vmid) => (format!("/vms/{vmid}"), "VM.Audit", "VM.Config.Network"),
        }
    }

    fn file(&self, world: &World) -> File {
        let firewall = &world.firewall;
        match self {
            Self::Cluster => Some(&firewall.cluster),
            Self::Node(node) => firewall.nodes.get(node),
            Self::Guest(vmid) => firewall.guests.get(vmid),
        }
        .cloned()
        .unwrap_or_default()
    }

    fn file_mut<'a>(&self, world: &'a mut World) -> &'a mut File {
        let firewall = &mut world.firewall;
        match self {
            Self::Cluster => &mut firewall.cluster,
            Self::Node(node) => firewall.nodes.entry(node.clone()).or_default(),
            Self::Guest(vmid) => firewall.guests.entry(*vmid).or_default(),
        }
    }
}

fn may_read(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    let (path, read, _) = Place::of(params).rights();
    world.access.need(caller, &path, &[read])
}

fn may_change(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    let (path, _, change) = Place::of(params).rights();
    world.access.need(caller, &path, &[change])
}

const READ: Perm = Perm::Rule(may_read);
const CHANGE: Perm = Perm::Rule(may_change);

/// The place of a call; a guest must exist on the node.
fn place(call: &Call<'_>) -> Result<Place, Failure> {
    let place = Place::of(&call.params);
    if let Place::Guest(vmid) = place {
        let node = call.params.text("node");
        let on_node = call
            .world
            .guests
            .get(vmid)
            .is_some_and(|guest| guest.node == node);
        if !on_node {
            let text =
                format!("Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist");
            return Err(Failure::die(text));
        }
    }
    Ok(place)
}
