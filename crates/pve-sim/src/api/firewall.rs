//! Firewalls: the same endpoints for the datacenter, nodes and guests.

mod addresses;
mod options;
mod rules;
mod verify;

use serde_json::json;

use crate::access::Caller;
use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::firewall::File;
use crate::params::Params;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, get};
use crate::schema::int;
use crate::world::World;

/// The paths below one place that has a firewall.
pub(super) struct Paths {
    base: &'static str,
    log: &'static str,
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
            base: $base,
            log: concat!($base, "/log"),
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
const VNET: Paths = paths!("/cluster/sdn/vnets/{vnet}/firewall");
const LXC: Paths = paths!("/nodes/{node}/lxc/{vmid}/firewall");

pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut routes = rules::group_routes(release);
    for paths in [&CLUSTER, &NODE, &QEMU, &LXC, &VNET] {
        routes.extend(paths.index());
        routes.extend(rules::routes(paths, release));
        routes.extend(options::routes(paths));
    }
    for paths in [&CLUSTER, &QEMU, &LXC] {
        routes.extend(addresses::routes(paths));
    }
    routes
}

impl Paths {
    /// The directory of a firewall, and the log of one that has packets.
    fn index(&self) -> Vec<Route> {
        let mut routes = vec![
            get(self.base, |call| {
                let names: &[&str] = match Place::of(call.world, &call.params) {
                    Place::Cluster => &[
                        "aliases", "rules", "options", "groups", "ipset", "macros", "refs",
                    ],
                    Place::Node(_) => &["rules", "options", "log"],
                    Place::Guest(_) => &["rules", "aliases", "ipset", "refs", "options", "log"],
                    Place::Vnet(..) => &["rules", "options"],
                };
                Ok(index("name", names))
            })
            .perm(Perm::User),
        ];
        if self.base.contains("{vmid}") {
            let count = |name| int(name).min(0).optional();
            routes.push(
                get(self.log, |call| {
                    place(call)?;
                    // Packets are not simulated, so none was logged.
                    Ok(Reply::Counted(json!([{ "n": 1, "t": "no content" }]), 0))
                })
                .perm(all("/vms/{vmid}", &["VM.Console"]))
                .protected()
                .params(["start", "limit", "since", "until"].map(count)),
            );
        }
        routes
    }
}

/// Whose firewall a call is about.
enum Place {
    Cluster,
    Node(String),
    Guest(u32),
    /// A virtual network, with the zone that it is in.
    Vnet(String, String),
}

impl Place {
    fn of(world: &World, params: &Params) -> Self {
        if let Some(vnet) = params.get("vnet") {
            let zone = world.sdn.zone_of_vnet(vnet).unwrap_or_default();
            return Self::Vnet(zone.to_owned(), vnet.to_owned());
        }
        match (params.vmid("vmid"), params.get("node")) {
            (Some(vmid), _) => Self::Guest(vmid),
            (None, Some(node)) => Self::Node(node.to_owned()),
            (None, None) => Self::Cluster,
        }
    }

    /// The paths of places of this kind; those of guests do not differ in what they take.
    fn paths(&self) -> &'static Paths {
        match self {
            Self::Cluster => &CLUSTER,
            Self::Node(_) => &NODE,
            Self::Guest(_) => &QEMU,
            Self::Vnet(..) => &VNET,
        }
    }

    /// Where rights are checked, and which are needed to read and to change.
    fn rights(&self) -> (String, &'static str, &'static str) {
        match self {
            Self::Cluster => ("/".to_owned(), "Sys.Audit", "Sys.Modify"),
            Self::Node(node) => (format!("/nodes/{node}"), "Sys.Audit", "Sys.Modify"),
            Self::Guest(vmid) => (format!("/vms/{vmid}"), "VM.Audit", "VM.Config.Network"),
            Self::Vnet(zone, vnet) => {
                let path = format!("/sdn/zones/{zone}/{vnet}");
                (path, "SDN.Audit", "SDN.Allocate")
            }
        }
    }

    fn file(&self, world: &World) -> File {
        let firewall = &world.firewall;
        match self {
            Self::Cluster => Some(&firewall.cluster),
            Self::Node(node) => firewall.nodes.get(node),
            Self::Guest(vmid) => firewall.guests.get(vmid),
            Self::Vnet(_, vnet) => firewall.vnets.get(vnet),
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
            Self::Vnet(_, vnet) => firewall.vnets.entry(vnet.clone()).or_default(),
        }
    }
}

fn may_read(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    let (path, read, _) = Place::of(world, params).rights();
    world.access.need(caller, &path, &[read])
}

fn may_change(world: &World, caller: &Caller, params: &Params) -> Result<(), Failure> {
    let (path, _, change) = Place::of(world, params).rights();
    world.access.need(caller, &path, &[change])
}

const READ: Perm = Perm::Rule(may_read);
const CHANGE: Perm = Perm::Rule(may_change);

/// The place of a call; a guest must exist on the node.
fn place(call: &Call<'_>) -> Result<Place, Failure> {
    let place = Place::of(call.world, &call.params);
    if let Place::Vnet(zone, vnet) = &place
        && zone.is_empty()
    {
        return Err(Failure::die(format!("sdn vnet '{vnet}' does not exist")));
    }
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
