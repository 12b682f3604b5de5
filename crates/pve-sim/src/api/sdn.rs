//! `/cluster/sdn`: zones, virtual networks and subnets, staged and applied.

mod lock;
mod objects;
mod services;

use serde_json::{Value, json};

use objects::{Kind, create, list, read, remove, update};

use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, array, choice, digest, flag, format, int, text};

const ZONE_KINDS: &[&str] = &["evpn", "faucet", "qinq", "simple", "vlan", "vxlan"];

pub(super) fn routes(release: Release) -> Vec<Route> {
    let token = || lock::token(release);
    let views = || [flag("pending"), flag("running")];
    let change = || {
        [
            text("delete").format(format::CONFIG_ID_LIST).optional(),
            digest(),
        ]
    };
    let one_zone = || all("/sdn/zones/{zone}", &["SDN.Allocate"]);
    let mut routes = vec![
        get("/cluster/sdn", |_| {
            let names = ["vnets", "zones", "controllers", "ipams", "dns", "fabrics"];
            Ok(names
                .map(|name| json!({ "id": name }))
                .into_iter()
                .collect::<Value>()
                .into())
        })
        .perm(all("/sdn", &["SDN.Audit"])),
        put("/cluster/sdn", apply)
            .perm(all("/sdn", &["SDN.Allocate"]))
            .params(token())
            .params(release.is_9().then(|| flag("release-lock"))),
        get("/cluster/sdn/zones", |call| list(call, Kind::Zone))
            .perm(Perm::User)
            .params(views())
            .params([choice("type", ZONE_KINDS).optional()]),
        post("/cluster/sdn/zones", |call| create(call, Kind::Zone))
            .perm(all("/sdn/zones", &["SDN.Allocate"]))
            .params(zone_options())
            .params(zone_options_9(release))
            .params(token())
            .params([id("zone"), choice("type", ZONE_KINDS)]),
        get("/cluster/sdn/zones/{zone}", |call| read(call, Kind::Zone))
            .perm(one_zone())
            .params(views()),
        put("/cluster/sdn/zones/{zone}", |call| update(call, Kind::Zone))
            .perm(one_zone())
            .params(zone_options())
            .params(zone_options_9(release))
            .params(token())
            .params(change()),
        delete("/cluster/sdn/zones/{zone}", |call| remove(call, Kind::Zone))
            .perm(one_zone())
            .params(token()),
        get("/cluster/sdn/vnets", |call| list(call, Kind::Vnet))
            .perm(Perm::User)
            .params(views()),
        post("/cluster/sdn/vnets", |call| create(call, Kind::Vnet))
            .perm(one_zone())
            .params(vnet_options())
            .params(token())
            .params([
                id("vnet"),
                text("zone"),
                choice("type", &["vnet"]).optional(),
            ]),
        get("/cluster/sdn/vnets/{vnet}", |call| read(call, Kind::Vnet))
            .perm(Perm::User)
            .params(views()),
        put("/cluster/sdn/vnets/{vnet}", |call| update(call, Kind::Vnet))
            .perm(Perm::User)
            .params(vnet_options())
            .params(token())
            .params(change())
            .params([text("zone").optional()]),
        delete("/cluster/sdn/vnets/{vnet}", |call| remove(call, Kind::Vnet))
            .perm(Perm::User)
            .params(token()),
        get("/cluster/sdn/vnets/{vnet}/subnets", |call| {
            list(call, Kind::Subnet)
        })
        .perm(Perm::User)
        .params(views()),
        post("/cluster/sdn/vnets/{vnet}/subnets", |call| {
            create(call, Kind::Subnet)
        })
        .perm(Perm::User)
        .params(subnet_options())
        .params(token())
        .params([
            text("subnet").format(format::CIDR),
            choice("type", &["subnet"]),
        ]),
        get("/cluster/sdn/vnets/{vnet}/subnets/{subnet}", |call| {
            read(call, Kind::Subnet)
        })
        .perm(Perm::User)
        .params(views()),
        put("/cluster/sdn/vnets/{vnet}/subnets/{subnet}", |call| {
            update(call, Kind::Subnet)
        })
        .perm(Perm::User)
        .params(subnet_options())
        .params(token())
        .params(change()),
        delete("/cluster/sdn/vnets/{vnet}/subnets/{subnet}", |call| {
            remove(call, Kind::Subnet)
        })
        .perm(Perm::User)
        .params(token()),
        get("/nodes/{node}/sdn", |_| {
            Ok(index("name", &["fabrics", "vnets", "zones"]))
        })
        .perm(Perm::User),
        get("/nodes/{node}/sdn/zones", node_zones).perm(Perm::User),
        get("/nodes/{node}/sdn/zones/{zone}", |_| {
            Ok(index("subdir", &["content"]))
        })
        .perm(all("/sdn/zones/{zone}", &["SDN.Audit"])),
        get("/nodes/{node}/sdn/zones/{zone}/content", zone_content)
            .perm(all("/sdn/zones/{zone}", &["SDN.Audit"])),
    ];
    routes.extend(controllers(release));
    routes.extend(services::routes(release));
    routes.extend(lock::routes(release));
    routes
}

fn id(name: &'static str) -> Param {
    text(name).min_len(2).max_len(8).pattern(|value| {
        format::word(
            value,
            |c| c.is_ascii_alphabetic(),
            |c| c.is_ascii_alphanumeric(),
        )
    })
}

/// The routes of controllers, which tell zones apart from each other and from the world.
fn controllers(release: Release) -> Vec<Route> {
    let all_of_them = || all("/sdn/controllers", &["SDN.Allocate"]);
    let types = &["bgp", "evpn", "faucet", "isis"];
    let views = || [flag("pending"), flag("running")];
    vec![
        get("/cluster/sdn/controllers", |call| {
            list(call, Kind::Controller)
        })
        .perm(Perm::User)
        .params(views())
        .params([choice("type", types).optional()]),
        post("/cluster/sdn/controllers", |call| {
            create(call, Kind::Controller)
        })
        .perm(all_of_them())
        .params(controller_options(release))
        .params(lock::token(release))
        .params([controller_id(), choice("type", types)]),
        get("/cluster/sdn/controllers/{controller}", |call| {
            read(call, Kind::Controller)
        })
        .perm(all("/sdn/controllers/{controller}", &["SDN.Allocate"]))
        .params(views())
        .params([controller_id()]),
        put("/cluster/sdn/controllers/{controller}", |call| {
            update(call, Kind::Controller)
        })
        .perm(all_of_them())
        .params(controller_options(release))
        .params(lock::token(release))
        .params([
            controller_id(),
            text("delete").format(format::CONFIG_ID_LIST).optional(),
            digest(),
        ]),
        delete("/cluster/sdn/controllers/{controller}", |call| {
            remove(call, Kind::Controller)
        })
        .perm(all_of_them())
        .params(lock::token(release))
        .params([controller_id()]),
    ]
}

fn controller_id() -> Param {
    text("controller").min_len(2).max_len(64).pattern(|value| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        format::word(value, |c| c.is_ascii_alphabetic(), inner)
            && value.ends_with(|c: char| c.is_ascii_alphanumeric())
    })
}

fn controller_options(release: Release) -> Vec<Param> {
    let largest = if release.is_9() {
        4_294_967_295.0
    } else {
        4_294_967_296.0
    };
    let mut all = vec![
        int("asn").min(0).max(largest).optional(),
        flag("bgp-multipath-as-path-relax"),
        flag("ebgp"),
        int("ebgp-multihop").optional(),
        text("isis-domain").optional(),
        text("isis-ifaces")
            .format(format::network::IFACE_LIST)
            .optional(),
        text("isis-net").min_len(20).max_len(50).optional(),
        text("loopback").optional(),
        text("node").format(format::NODE).optional(),
        text("peers").format(format::network::IP_LIST).optional(),
    ];
    if release.is_9() {
        all.extend([
            text("fabric").optional(),
            choice("bgp-mode", &["auto", "external", "internal"]).optional(),
            text("nodes").format(format::NODE_LIST).optional(),
            text("peer-group-name").format(format::CONFIG_ID).optional(),
            text("route-map-in").optional(),
            text("route-map-out").optional(),
        ]);
    }
    all
}

/// What zones can be told since 9.
fn zone_options_9(release: Release) -> Vec<Param> {
    if !release.is_9() {
        return Vec::new();
    }
    vec![
        text("fabric").optional(),
        array("secondary-controllers").optional(),
    ]
}

fn zone_options() -> Vec<Param> {
    vec![
        text("bridge").optional(),
        text("controller").optional(),
        choice("dhcp", &["dnsmasq"]).optional(),
        text("dns").optional(),
        text("dnszone").format(format::DNS_NAME).optional(),
        int("dp-id").optional(),
        text("exitnodes").format(format::NODE_LIST).optional(),
        text("exitnodes-primary").format(format::NODE).optional(),
        text("rt-import").optional(),
        text("ipam").optional(),
        text("mac").format(format::MAC).optional(),
        int("mtu").optional(),
        text("nodes").format(format::NODE_LIST).optional(),
        text("peers").format(format::network::IP_LIST).optional(),
        text("reversedns").optional(),
        int("tag").min(0).optional(),
        choice("vlan-protocol", &["802.1q", "802.1ad"]).optional(),
        int("vrf-vxlan").min(1).max(16_777_215).optional(),
        int("vxlan-port").min(1).max(65_536).optional(),
        flag("advertise-subnets"),
        flag("bridge-disable-mac-learning"),
        flag("exitnodes-local-routing"),
        flag("disable-arp-nd-suppression"),
    ]
}

fn is_alias(value: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c.is_whitespace() || (')'..='_').contains(&c);
    value.chars().all(|c| part(c) || c == '(')
}

fn vnet_options() -> Vec<Param> {
    vec![
        text("alias").max_len(256).pattern(is_alias).optional(),
        flag("isolate-ports"),
        int("tag").min(1).max(16_777_215).optional(),
        flag("vlanaware"),
    ]
}

fn subnet_options() -> Vec<Param> {
    vec![
        text("gateway").format(format::IP).optional(),
        flag("snat"),
        text("dhcp-dns-server").format(format::IP).optional(),
        array("dhcp-range").optional(),
        text("dnszoneprefix").format(format::DNS_NAME).optional(),
    ]
}

fn apply(call: &mut Call<'_>) -> Result<Reply, Failure> {
    lock::check(call, "could not commit SDN config")?;
    lock::release_if_asked(call);
    Ok(call.task("reloadnetworkall", "", |worker| async move {
        let _lock = worker.lock_cfs("domain-sdn").await?;
        let nodes: Vec<String> = worker.world(|world| world.nodes.keys().cloned().collect());
        for node in nodes {
            worker.log(format!("{node}: reloading network config"));
        }
        worker.take(Step::ReloadNetwork).await?;
        worker.world(|world| world.sdn.apply());
        Ok(())
    }))
}

fn node_zones(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let zones = call
        .world
        .sdn
        .zones
        .iter()
        .filter(|(_, zone)| zone.running.is_some());
    let names = std::iter::once("localnetwork").chain(zones.map(|(id, _)| id.as_str()));
    let seen = names.filter(|zone| call.may(&format!("/sdn/zones/{zone}"), "SDN.Audit"));
    Ok(seen
        .map(|zone| json!({ "zone": zone, "status": "available" }))
        .collect::<Value>()
        .into())
}

fn zone_content(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let zone = call.params.text("zone");
    let rows: Vec<Value> = if zone == "localnetwork" {
        let node = call.world.node(call.params.text("node"))?;
        let bridges = node.network.keys().filter(|name| node.has_bridge(name));
        bridges
            .map(|name| json!({ "vnet": name, "status": "available" }))
            .collect()
    } else {
        let vnets = call.world.sdn.applied_vnets().filter(|(_, of)| *of == zone);
        vnets
            .map(|(vnet, _)| json!({ "vnet": vnet, "status": "available" }))
            .collect()
    };
    Ok(Value::Array(rows).into())
}
