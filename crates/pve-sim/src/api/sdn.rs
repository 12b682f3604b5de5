//! `/cluster/sdn`: zones, virtual networks and subnets, staged and applied.

mod lock;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::latency::Step;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, array, choice, digest, flag, format, int, text};
use crate::sdn::{Options, Staged};

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
            .params(token())
            .params([id("zone"), choice("type", ZONE_KINDS)]),
        get("/cluster/sdn/zones/{zone}", |call| read(call, Kind::Zone))
            .perm(one_zone())
            .params(views()),
        put("/cluster/sdn/zones/{zone}", |call| update(call, Kind::Zone))
            .perm(one_zone())
            .params(zone_options())
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
        get("/nodes/{node}/sdn/zones", node_zones).perm(Perm::User),
        get("/nodes/{node}/sdn/zones/{zone}/content", zone_content)
            .perm(all("/sdn/zones/{zone}", &["SDN.Audit"])),
    ];
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

fn zone_options() -> Vec<Param> {
    vec![
        text("bridge").optional(),
        text("controller").optional(),
        choice("dhcp", &["dnsmasq"]).optional(),
        text("dns").optional(),
        text("dnszone").format(format::DNS_NAME).optional(),
        int("dp-id").optional(),
        text("exitnodes").format(format::NODE_LIST).optional(),
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Zone,
    Vnet,
    Subnet,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Vnet => "vnet",
            Self::Subnet => "subnet",
        }
    }

    fn objects<'a>(self, call: &'a mut Call<'_>) -> &'a mut BTreeMap<String, Staged> {
        match self {
            Self::Zone => &mut call.world.sdn.zones,
            Self::Vnet => &mut call.world.sdn.vnets,
            Self::Subnet => &mut call.world.sdn.subnets,
        }
    }

    fn all<'a>(self, call: &'a Call<'_>) -> &'a BTreeMap<String, Staged> {
        match self {
            Self::Zone => &call.world.sdn.zones,
            Self::Vnet => &call.world.sdn.vnets,
            Self::Subnet => &call.world.sdn.subnets,
        }
    }

    fn missing(self, id: &str) -> Failure {
        Failure::die(format!("sdn {} '{id}' does not exist", self.name()))
    }
}

/// The zone an object belongs to, for its rights.
fn zone_of(kind: Kind, id: &str, call: &Call<'_>) -> String {
    let option = |objects: &BTreeMap<String, Staged>, id: &str, name: &str| {
        let object = objects.get(id)?;
        object
            .wanted
            .as_ref()
            .or(object.running.as_ref())?
            .get(name)
            .cloned()
    };
    let sdn = &call.world.sdn;
    let of_vnet = |vnet: &str| option(&sdn.vnets, vnet, "zone");
    let zone = match kind {
        Kind::Zone => Some(id.to_owned()),
        Kind::Vnet => of_vnet(id),
        Kind::Subnet => option(&sdn.subnets, id, "vnet").and_then(|vnet| of_vnet(&vnet)),
    };
    zone.unwrap_or_default()
}

/// `zone-10.9.0.0-24`, the id PVE gives a subnet.
fn subnet_id(call: &Call<'_>, cidr: &str) -> String {
    let zone = zone_of(Kind::Vnet, call.params.text("vnet"), call);
    format!("{zone}-{}", cidr.replace('/', "-"))
}

fn show(kind: Kind, id: &str, object: &Staged, call: &Call<'_>) -> Option<Map<String, Value>> {
    let pending = call.params.flag("pending");
    let options = if call.params.flag("running") {
        object.running.as_ref()?
    } else if pending {
        object.running.as_ref().or(object.wanted.as_ref())?
    } else {
        object.wanted.as_ref()?
    };
    let mut map = Map::new();
    let number = |value: &str| {
        value
            .parse::<u64>()
            .map_or_else(|_| json!(value), |it| json!(it))
    };
    let new = pending && object.running.is_none();
    if !new {
        for (name, value) in options
            .iter()
            .filter(|(name, _)| name.as_str() != "vnet" || kind == Kind::Subnet)
        {
            let numeric = ["tag", "vlanaware", "mtu", "snat", "isolate-ports"];
            let value = if numeric.contains(&name.as_str()) {
                number(value)
            } else {
                json!(value)
            };
            map.insert(name.clone(), value);
        }
    }
    map.insert(kind.name().into(), json!(id));
    let own = options.get("type").cloned();
    map.insert(
        "type".into(),
        json!(own.unwrap_or_else(|| kind.name().to_owned())),
    );
    map.insert(
        "digest".into(),
        if new {
            Value::Null
        } else {
            json!(crate::digest::of(options))
        },
    );
    if pending && let Some(state) = object.state() {
        map.insert("state".into(), json!(state));
        let empty = Options::new();
        let wanted = object.wanted.as_ref().unwrap_or(&empty);
        let running = object.running.as_ref().unwrap_or(&empty);
        let changed = wanted
            .iter()
            .filter(|(name, value)| name.as_str() != "type" && running.get(*name) != Some(value));
        let changed: Map<String, Value> = changed
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        map.insert("pending".into(), Value::Object(changed));
    }
    Some(map)
}

fn list(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let mut rows = Vec::new();
    for (id, object) in kind.all(call) {
        if kind == Kind::Subnet {
            let options = object.wanted.as_ref().or(object.running.as_ref());
            let vnet = options.and_then(|options| options.get("vnet"));
            if vnet.map(String::as_str) != call.params.get("vnet") {
                continue;
            }
        }
        if let Some(wanted) = call.params.get("type").filter(|_| kind == Kind::Zone) {
            let options = object.wanted.as_ref().or(object.running.as_ref());
            if options
                .and_then(|options| options.get("type"))
                .map(String::as_str)
                != Some(wanted)
            {
                continue;
            }
        }
        let path = format!("/sdn/zones/{}", zone_of(kind, id, call));
        if !call.may(&path, "SDN.Audit") && !call.may(&path, "SDN.Allocate") {
            continue;
        }
        rows.extend(show(kind, id, object, call).map(Value::Object));
    }
    Ok(Value::Array(rows).into())
}

fn read(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let id = call.params.text(kind.name()).to_owned();
    let path = format!("/sdn/zones/{}", zone_of(kind, &id, call));
    if !call.may(&path, "SDN.Audit") {
        call.need(&path, &["SDN.Allocate"])?;
    }
    let object = kind.all(call).get(&id).ok_or_else(|| kind.missing(&id))?;
    let map = show(kind, &id, object, call).ok_or_else(|| kind.missing(&id))?;
    Ok(Value::Object(map).into())
}

fn given(call: &Call<'_>, kind: Kind) -> Options {
    let skip = [
        kind.name(),
        "delete",
        "digest",
        "lock-token",
        "pending",
        "running",
    ];
    let given = call.params.iter().filter(|(name, _)| !skip.contains(name));
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn create(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    lock::check(call, &format!("create sdn {} object failed", kind.name()))?;
    let mut id = call.params.text(kind.name()).to_owned();
    let mut options = given(call, kind);
    match kind {
        Kind::Zone => {
            let needs = match options.get("type").map(String::as_str) {
                Some("vlan" | "qinq") => Some("bridge"),
                Some("vxlan") => Some("peers"),
                Some("evpn") => Some("controller"),
                _ => None,
            };
            if let Some(needs) = needs.filter(|name| !options.contains_key(*name)) {
                let text = "property is missing and it is not optional";
                return Err(Failure::param(needs, text));
            }
        }
        Kind::Vnet => {
            let zone = call.params.text("zone");
            if call
                .world
                .sdn
                .zones
                .get(zone)
                .is_none_or(|it| it.wanted.is_none())
            {
                return Err(Failure::die(format!("zone {zone} doesn't exist")));
            }
        }
        Kind::Subnet => {
            let vnet = call.params.text("vnet");
            if !call.world.sdn.vnets.contains_key(vnet) {
                return Err(Kind::Vnet.missing(vnet));
            }
            let zone = zone_of(Kind::Vnet, vnet, call);
            call.need(&format!("/sdn/zones/{zone}/{vnet}"), &["SDN.Allocate"])?;
            options.insert("cidr".to_owned(), id.clone());
            options.insert("zone".to_owned(), zone);
            id = subnet_id(call, &id);
        }
    }
    let objects = kind.objects(call);
    let object = objects.entry(id.clone()).or_default();
    if object.wanted.is_some() {
        let name = kind.name();
        let text =
            format!("create sdn {name} object failed: sdn {name} object ID '{id}' already defined");
        return Err(Failure::die(text));
    }
    object.wanted = Some(options);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let id = call.params.text(kind.name()).to_owned();
    call.need(
        &format!("/sdn/zones/{}", zone_of(kind, &id, call)),
        &["SDN.Allocate"],
    )?;
    lock::check(call, &format!("update sdn {} object failed", kind.name()))?;
    let given = given(call, kind);
    let gone: Vec<String> = call
        .params
        .list("delete")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let seen = call.params.get("digest").map(str::to_owned);
    let object = kind
        .objects(call)
        .get_mut(&id)
        .ok_or_else(|| kind.missing(&id))?;
    let wanted = object.wanted.as_mut().ok_or_else(|| kind.missing(&id))?;
    crate::digest::check(seen.as_deref(), wanted)?;
    wanted.extend(given);
    wanted.retain(|name, _| !gone.contains(name));
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let id = call.params.text(kind.name()).to_owned();
    call.need(
        &format!("/sdn/zones/{}", zone_of(kind, &id, call)),
        &["SDN.Allocate"],
    )?;
    lock::check(call, &format!("delete sdn {} object failed", kind.name()))?;
    let uses = |objects: &BTreeMap<String, Staged>, name: &str| {
        objects.iter().find_map(|(user, object)| {
            let options = object.wanted.as_ref()?;
            (options.get(name) == Some(&id)).then(|| user.clone())
        })
    };
    let user = match kind {
        Kind::Zone => uses(&call.world.sdn.vnets, "zone")
            .map(|vnet| format!("zone {id} is used by vnet {vnet}")),
        Kind::Vnet => uses(&call.world.sdn.subnets, "vnet")
            .map(|_| "Can't delete vnet if subnets exists".to_owned()),
        Kind::Subnet => None,
    };
    if let Some(text) = user {
        return Err(Failure::die(format!(
            "delete sdn {} object failed: {text}",
            kind.name()
        )));
    }
    let objects = kind.objects(call);
    let object = objects.get_mut(&id).ok_or_else(|| kind.missing(&id))?;
    object.wanted = None;
    if object.running.is_none() {
        objects.remove(&id);
    }
    Ok(Reply::null())
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
