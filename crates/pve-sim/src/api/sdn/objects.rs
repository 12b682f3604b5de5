//! Zones, virtual networks, subnets and controllers: objects that are staged until they are applied.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::lock;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::sdn::{Options, Staged};

/// Options that are lists, kept with an item on each line.
const ARRAYS: &[&str] = &["dhcp-range", "secondary-controllers"];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Zone,
    Vnet,
    Subnet,
    Controller,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Vnet => "vnet",
            Self::Subnet => "subnet",
            Self::Controller => "controller",
        }
    }

    fn objects<'a>(self, call: &'a mut Call<'_>) -> &'a mut BTreeMap<String, Staged> {
        match self {
            Self::Zone => &mut call.world.sdn.zones,
            Self::Vnet => &mut call.world.sdn.vnets,
            Self::Subnet => &mut call.world.sdn.subnets,
            Self::Controller => &mut call.world.sdn.controllers,
        }
    }

    fn all<'a>(self, call: &'a Call<'_>) -> &'a BTreeMap<String, Staged> {
        match self {
            Self::Zone => &call.world.sdn.zones,
            Self::Vnet => &call.world.sdn.vnets,
            Self::Subnet => &call.world.sdn.subnets,
            Self::Controller => &call.world.sdn.controllers,
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
        Kind::Controller => None,
    };
    zone.unwrap_or_default()
}

/// Where rights on an object are kept.
fn acl_path(kind: Kind, id: &str, call: &Call<'_>) -> String {
    match kind {
        Kind::Controller => format!("/sdn/controllers/{id}"),
        Kind::Zone | Kind::Vnet | Kind::Subnet => {
            format!("/sdn/zones/{}", zone_of(kind, id, call))
        }
    }
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
            let numeric = [
                "tag",
                "vlanaware",
                "mtu",
                "snat",
                "isolate-ports",
                "asn",
                "ebgp",
                "ebgp-multihop",
            ];
            let value = if numeric.contains(&name.as_str()) {
                number(value)
            } else if ARRAYS.contains(&name.as_str()) {
                json!(value.split('\n').collect::<Vec<_>>())
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

pub(super) fn list(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let mut rows = Vec::new();
    for (id, object) in kind.all(call) {
        if kind == Kind::Subnet {
            let options = object.wanted.as_ref().or(object.running.as_ref());
            let vnet = options.and_then(|options| options.get("vnet"));
            if vnet.map(String::as_str) != call.params.get("vnet") {
                continue;
            }
        }
        if let Some(wanted) = call
            .params
            .get("type")
            .filter(|_| matches!(kind, Kind::Zone | Kind::Controller))
        {
            let options = object.wanted.as_ref().or(object.running.as_ref());
            if options
                .and_then(|options| options.get("type"))
                .map(String::as_str)
                != Some(wanted)
            {
                continue;
            }
        }
        let path = acl_path(kind, id, call);
        if !call.may(&path, "SDN.Audit") && !call.may(&path, "SDN.Allocate") {
            continue;
        }
        rows.extend(show(kind, id, object, call).map(Value::Object));
    }
    Ok(Value::Array(rows).into())
}

pub(super) fn read(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let id = call.params.text(kind.name()).to_owned();
    let path = acl_path(kind, &id, call);
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
        .map(|(name, value)| {
            let value = if ARRAYS.contains(&name) {
                call.params.array(name).join("\n")
            } else {
                value.to_owned()
            };
            (name.to_owned(), value)
        })
        .collect()
}

/// What each type of controller must be told.
fn controller_is_whole(options: &Options) -> Result<(), Failure> {
    let needs: &[&str] = match options.get("type").map(String::as_str) {
        Some("evpn") => &["asn"],
        Some("bgp") => &["asn", "node"],
        Some("isis") => &["isis-domain", "isis-ifaces", "isis-net", "node"],
        _ => &[],
    };
    match needs.iter().find(|name| !options.contains_key(**name)) {
        None => Ok(()),
        Some(name) => {
            let text = "property is missing and it is not optional";
            Err(Failure::param(*name, text))
        }
    }
}

pub(super) fn create(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
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
        Kind::Controller => controller_is_whole(&options)?,
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

pub(super) fn update(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let id = call.params.text(kind.name()).to_owned();
    call.need(&acl_path(kind, &id, call), &["SDN.Allocate"])?;
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

pub(super) fn remove(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let id = call.params.text(kind.name()).to_owned();
    call.need(&acl_path(kind, &id, call), &["SDN.Allocate"])?;
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
        Kind::Controller => uses(&call.world.sdn.zones, "controller")
            .map(|zone| format!("controller {id} is used by {zone}")),
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
