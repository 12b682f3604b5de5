//! `/nodes/{node}/network`: bridges and other interfaces, changed at once and applied at once.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::node_mut;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::format::network;
use crate::schema::{Param, choice, flag, format, int, one_of, text};

const KINDS: &[&str] = &[
    "bridge",
    "bond",
    "eth",
    "alias",
    "vlan",
    "fabric",
    "OVSBridge",
    "OVSBond",
    "OVSPort",
    "OVSIntPort",
    "vnet",
];

const BOND_MODES: &[&str] = &[
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
    "balance-slb",
    "lacp-balance-slb",
    "lacp-balance-tcp",
];

/// The kinds a release knows, and what a call may name beside them.
fn kinds(release: Release, more: &[&'static str]) -> Vec<String> {
    let known = KINDS
        .iter()
        .filter(|kind| release.is_9() || **kind != "fabric");
    known.chain(more).map(|kind| (*kind).to_owned()).collect()
}

pub(super) fn routes(release: Release) -> Vec<Route> {
    let modify = || all("/nodes/{node}", &["Sys.Modify"]);
    vec![
        get("/nodes/{node}/network", list)
            .perm(Perm::User)
            .params([one_of("type", kinds(release, filters(release))).optional()]),
        post("/nodes/{node}/network", create)
            .perm(modify())
            .params(options(release)),
        put("/nodes/{node}/network", |call| {
            Ok(call.task("srvreload", "networking", |worker| async move {
                worker.take(Step::ReloadNetwork).await
            }))
        })
        .perm(modify())
        .params(release.is_9().then(|| flag("regenerate-frr"))),
        // Changes are made at once, so there are none to give up.
        delete("/nodes/{node}/network", |_| Ok(Reply::null())).perm(modify()),
        get("/nodes/{node}/network/{iface}", read).perm(all("/nodes/{node}", &["Sys.Audit"])),
        put("/nodes/{node}/network/{iface}", update)
            .perm(modify())
            .params(options(release))
            .params([text("delete").format(format::CONFIG_ID_LIST).optional()]),
        delete("/nodes/{node}/network/{iface}", remove).perm(modify()),
    ]
}

/// What a list may be narrowed to beside kinds.
fn filters(release: Release) -> &'static [&'static str] {
    let all = &["any_bridge", "any_local_bridge", "include_sdn"];
    if release.is_9() { all } else { &all[..2] }
}

fn options(release: Release) -> Vec<Param> {
    let iface = |name| text(name).format(network::IFACE).optional();
    let ifaces = |name| text(name).format(network::IFACE_LIST).optional();
    vec![
        text("iface").format(network::IFACE).min_len(2).max_len(20),
        one_of("type", kinds(release, &["unknown"])),
        flag("autostart"),
        flag("bridge_vlan_aware"),
        ifaces("bridge_ports"),
        text("bridge_vids").format(network::VLAN_LIST).optional(),
        text("address")
            .format(format::IPV4)
            .requires("netmask")
            .optional(),
        text("netmask")
            .format(network::IPV4_MASK)
            .requires("address")
            .optional(),
        text("address6")
            .format(format::IPV6)
            .requires("netmask6")
            .optional(),
        int("netmask6")
            .min(0)
            .max(128)
            .requires("address6")
            .optional(),
        text("cidr").format(format::CIDR).optional(),
        text("cidr6").format(format::CIDR).optional(),
        text("gateway").format(format::IPV4).optional(),
        text("gateway6").format(format::IPV6).optional(),
        text("comments").optional(),
        text("comments6").optional(),
        ifaces("slaves"),
        choice("bond_mode", BOND_MODES).optional(),
        iface("bond-primary"),
        choice("bond_xmit_hash_policy", &["layer2", "layer2+3", "layer3+4"]).optional(),
        iface("vlan-raw-device"),
        ifaces("ovs_bonds"),
        iface("ovs_bridge"),
        ifaces("ovs_ports"),
        text("ovs_options").max_len(1024).optional(),
        int("ovs_tag").min(1).max(4094).optional(),
        int("vlan-id").min(1).max(4094).optional(),
        int("mtu").min(1280).max(65_520).optional(),
    ]
}

fn show(name: &str, iface: &BTreeMap<String, String>) -> Map<String, Value> {
    let mut map = Map::new();
    for (key, value) in iface {
        let number = matches!(key.as_str(), "autostart" | "active" | "priority" | "exists");
        let value = match value.parse::<u64>() {
            Ok(value) if number => json!(value),
            _ => json!(value),
        };
        map.insert(key.clone(), value);
    }
    map.insert("iface".into(), json!(name));
    map.insert("families".into(), json!(["inet"]));
    map
}

fn list(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let world = &*call.world;
    let node = world.node(call.params.text("node"))?;
    let kind = call.params.get("type");
    let audit = call.may(&format!("/nodes/{}", call.params.text("node")), "Sys.Audit");
    let mut rows = Vec::new();
    for (name, iface) in &node.network {
        let own = iface.get("type").map_or("", String::as_str);
        let is_bridge = own == "bridge" || own == "OVSBridge";
        let wanted = match kind {
            None | Some("include_sdn") => true,
            Some("any_bridge" | "any_local_bridge") => is_bridge,
            Some(kind) => own == kind,
        };
        let seen = audit
            || is_bridge && call.may(&world.bridge_acl_path(name), "SDN.Use")
            || is_bridge && call.may(&world.bridge_acl_path(name), "SDN.Audit");
        if wanted && seen {
            rows.push(Value::Object(show(name, iface)));
        }
    }
    if matches!(kind, Some("any_bridge" | "include_sdn" | "vnet")) {
        for (vnet, zone) in world.sdn.applied_vnets() {
            if audit || call.may(&format!("/sdn/zones/{zone}/{vnet}"), "SDN.Use") {
                rows.push(json!({ "iface": vnet, "type": "vnet", "active": 1 }));
            }
        }
    }
    Ok(Value::Array(rows).into())
}

fn read(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.world.node(call.params.text("node"))?;
    let name = call.params.text("iface");
    match node.network.get(name) {
        Some(iface) => Ok(Value::Object(show(name, iface)).into()),
        None => Err(Failure::param("iface", "interface does not exist")),
    }
}

fn given(call: &Call<'_>) -> BTreeMap<String, String> {
    let skip = ["node", "iface", "delete"];
    let given = call.params.iter().filter(|(name, _)| !skip.contains(name));
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn create(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("iface").to_owned();
    let given = given(call);
    let node = node_mut(call)?;
    if node.network.contains_key(&name) {
        return Err(Failure::param("iface", "interface already exists"));
    }
    let mut iface = crate::node::bridge("");
    if given.get("type").is_some_and(|kind| kind != "bridge") {
        iface.retain(|key, _| !key.starts_with("bridge_"));
    }
    iface.extend(given);
    node.network.insert(name, iface);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("iface").to_owned();
    let given = given(call);
    let gone: Vec<String> = call
        .params
        .list("delete")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let node = node_mut(call)?;
    let Some(iface) = node.network.get_mut(&name) else {
        return Err(Failure::param("iface", "interface does not exist"));
    };
    iface.extend(given);
    iface.retain(|key, _| !gone.contains(key));
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("iface").to_owned();
    match node_mut(call)?.network.remove(&name) {
        Some(_) => Ok(Reply::null()),
        None => Err(Failure::param("iface", "interface does not exist")),
    }
}
