//! What networks use beside themselves: name servers, address management, and addresses given out.
//!
//! Unlike the networks, these have effect at once. Of the kinds of address management only PVE's own
//! works here; others are kept as configuration, since a simulation reaches no other servers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::lock;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::{Perm, all};
use crate::release::Release;
use crate::route::{Route, delete, get, post, put};
use crate::schema::{Param, choice, digest, format, int, text, vmid};
use crate::sdn::{Address, Options};

const DNS: &[&str] = &["powerdns"];
const IPAMS: &[&str] = &["netbox", "phpipam", "pve"];
/// What lets somebody in at another server is not shown.
const SECRETS: &[&str] = &["key", "token"];

pub(super) fn routes(release: Release) -> Vec<Route> {
    let token = || lock::token(release);
    let change = || {
        [
            text("delete")
                .format(format::CONFIG_ID_LIST)
                .max_len(4096)
                .optional(),
            digest(),
        ]
    };
    let dns = || all("/sdn/dns", &["SDN.Allocate"]);
    let ipams = || all("/sdn/ipams", &["SDN.Allocate"]);
    let on_vnet = || all("/sdn/zones/{zone}/{vnet}", &["SDN.Allocate"]);
    let address = || {
        [
            text("zone").min_len(2).max_len(8).pattern(is_zone),
            text("ip").format(format::IP),
            text("mac").format(format::MAC).optional(),
        ]
    };
    vec![
        get("/cluster/sdn/dns", |call| Ok(list(call, Kind::Dns)))
            .perm(Perm::User)
            .params([choice("type", DNS).optional()]),
        post("/cluster/sdn/dns", |call| create(call, Kind::Dns))
            .perm(dns())
            .params(dns_options())
            .params(token())
            .params([
                name("dns"),
                choice("type", DNS),
                text("key"),
                text("url"),
                int("reversev6mask").optional(),
            ]),
        get("/cluster/sdn/dns/{dns}", |call| read(call, Kind::Dns))
            .perm(all("/sdn/dns/{dns}", &["SDN.Allocate"])),
        put("/cluster/sdn/dns/{dns}", |call| update(call, Kind::Dns))
            .perm(dns())
            .params(dns_options())
            .params([text("key").optional(), text("url").optional()])
            .params(token())
            .params(change()),
        delete("/cluster/sdn/dns/{dns}", |call| remove(call, Kind::Dns))
            .perm(dns())
            .params(token()),
        get("/cluster/sdn/ipams", |call| Ok(list(call, Kind::Ipam)))
            .perm(Perm::User)
            .params([choice("type", IPAMS).optional()]),
        post("/cluster/sdn/ipams", |call| create(call, Kind::Ipam))
            .perm(ipams())
            .params(ipam_options())
            .params(token())
            .params([name("ipam"), choice("type", IPAMS)]),
        get("/cluster/sdn/ipams/{ipam}", |call| read(call, Kind::Ipam))
            .perm(all("/sdn/ipams/{ipam}", &["SDN.Allocate"])),
        put("/cluster/sdn/ipams/{ipam}", |call| update(call, Kind::Ipam))
            .perm(ipams())
            .params(ipam_options())
            .params(token())
            .params(change()),
        delete("/cluster/sdn/ipams/{ipam}", |call| remove(call, Kind::Ipam))
            .perm(ipams())
            .params(token()),
        get("/cluster/sdn/ipams/{ipam}/status", addresses)
            .perm(Perm::User)
            .protected(),
        post("/cluster/sdn/vnets/{vnet}/ips", give)
            .perm(on_vnet())
            .params(address()),
        put("/cluster/sdn/vnets/{vnet}/ips", give_again)
            .perm(on_vnet())
            .params(address())
            .params([vmid("vmid").optional()]),
        delete("/cluster/sdn/vnets/{vnet}/ips", take)
            .perm(on_vnet())
            .params(address()),
    ]
}

/// `[a-zA-Z][a-zA-Z0-9]*[a-zA-Z0-9]`
fn is_zone(value: &str) -> bool {
    value.len() > 1
        && value.starts_with(|c: char| c.is_ascii_alphabetic())
        && value.chars().all(|c| c.is_ascii_alphanumeric())
}

fn name(name: &'static str) -> Param {
    text(name).min_len(2).pattern(|value| {
        format::word(
            value,
            |c| c.is_ascii_alphabetic(),
            |c| c.is_ascii_alphanumeric(),
        )
    })
}

fn fingerprint() -> Param {
    text("fingerprint").pattern(is_fingerprint).optional()
}

fn is_fingerprint(value: &str) -> bool {
    let byte = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    value.split(':').count() == 32 && value.split(':').all(byte)
}

fn dns_options() -> [Param; 3] {
    [
        fingerprint(),
        int("reversemaskv6").optional(),
        int("ttl").optional(),
    ]
}

fn ipam_options() -> [Param; 4] {
    [
        fingerprint(),
        int("section").optional(),
        text("token").optional(),
        text("url").optional(),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dns,
    Ipam,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Ipam => "ipam",
        }
    }

    fn all<'a>(self, call: &'a Call<'_>) -> &'a BTreeMap<String, Options> {
        match self {
            Self::Dns => &call.world.sdn.dns,
            Self::Ipam => &call.world.sdn.ipams,
        }
    }

    fn all_mut<'a>(self, call: &'a mut Call<'_>) -> &'a mut BTreeMap<String, Options> {
        match self {
            Self::Dns => &mut call.world.sdn.dns,
            Self::Ipam => &mut call.world.sdn.ipams,
        }
    }
}

fn missing(id: &str) -> Failure {
    Failure::die(format!("sdn '{id}' does not exist"))
}

fn show(kind: Kind, id: &str, options: &Options) -> Map<String, Value> {
    let shown = options
        .iter()
        .filter(|(name, _)| !SECRETS.contains(&name.as_str()));
    let mut map: Map<String, Value> = shown
        .map(|(name, value)| match value.parse::<u64>() {
            Ok(number) => (name.clone(), json!(number)),
            Err(_) => (name.clone(), json!(value)),
        })
        .collect();
    map.insert(kind.name().into(), json!(id));
    map
}

fn list(call: &Call<'_>, kind: Kind) -> Reply {
    let wanted = call.params.get("type");
    let seen = kind.all(call).iter().filter(|(id, options)| {
        let path = format!("/sdn/{}s/{id}", kind.name()).replace("/dnss/", "/dns/");
        let fits = wanted.is_none_or(|it| options.get("type").is_some_and(|own| own == it));
        fits && (call.may(&path, "SDN.Audit") || call.may(&path, "SDN.Allocate"))
    });
    let rows = seen.map(|(id, options)| Value::Object(show(kind, id, options)));
    rows.collect::<Value>().into()
}

fn read(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let id = call.params.text(kind.name());
    let options = kind.all(call).get(id).ok_or_else(|| missing(id))?;
    let mut map = show(kind, id, options);
    map.insert("digest".into(), json!(crate::digest::of(options)));
    Ok(Value::Object(map).into())
}

fn given(call: &Call<'_>, kind: Kind) -> Options {
    let skip = [kind.name(), "delete", "digest", "lock-token"];
    let given = call.params.iter().filter(|(name, _)| !skip.contains(name));
    given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn create(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let word = kind.name();
    lock::check(call, &format!("create sdn {word} object failed"))?;
    let (id, options) = (call.params.text(word).to_owned(), given(call, kind));
    let needs: &[&str] = match options.get("type").map(String::as_str) {
        Some("netbox") => &["url", "token"],
        Some("phpipam") => &["url", "token", "section"],
        _ => &[],
    };
    if let Some(missing) = needs.iter().find(|name| !options.contains_key(**name)) {
        let text = "property is missing and it is not optional";
        return Err(Failure::param(*missing, text));
    }
    let all = kind.all_mut(call);
    if all.contains_key(&id) {
        let text =
            format!("create sdn {word} object failed: sdn {word} object ID '{id}' already defined");
        return Err(Failure::die(text));
    }
    all.insert(id, options);
    Ok(Reply::null())
}

fn update(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    lock::check(call, &format!("update sdn {} object failed", kind.name()))?;
    let params = call.params.clone();
    let (id, given) = (params.text(kind.name()), given(call, kind));
    let options = kind.all_mut(call).get_mut(id);
    let options = options.ok_or_else(|| missing(id))?;
    crate::digest::check(params.get("digest"), options)?;
    options.extend(given);
    for name in params.list("delete") {
        options.remove(name);
    }
    Ok(Reply::null())
}

fn remove(call: &mut Call<'_>, kind: Kind) -> Result<Reply, Failure> {
    let word = kind.name();
    lock::check(call, &format!("delete sdn {word} object failed"))?;
    let id = call.params.text(word).to_owned();
    if !kind.all(call).contains_key(&id) {
        return Err(missing(&id));
    }
    let zones = call.world.sdn.zones.iter();
    let mut users = zones.filter_map(|(zone, object)| {
        let options = object.wanted.as_ref()?;
        (options.get(word) == Some(&id)).then_some(zone)
    });
    if let Some(zone) = users.next() {
        let text = format!("delete sdn {word} object failed: {word} {id} is used by {zone}");
        return Err(Failure::die(text));
    }
    kind.all_mut(call).remove(&id);
    Ok(Reply::null())
}

/// The subnet of a network that an address lies in; it must be applied.
fn subnet(call: &Call<'_>, vnet: &str, ip: IpAddr) -> Result<String, Failure> {
    let subnets = call.world.sdn.subnets.values();
    let mut cidrs = subnets.filter_map(|object| {
        let options = object.running.as_ref()?;
        (options.get("vnet").map(String::as_str) == Some(vnet)).then(|| options.get("cidr"))?
    });
    let found = cidrs.find(|cidr| contains(cidr, ip));
    found
        .cloned()
        .ok_or_else(|| Failure::die(format!("can't find any subnet for ip {ip}")))
}

/// Whether an address lies in a network such as `10.9.0.0/24`.
fn contains(cidr: &str, ip: IpAddr) -> bool {
    let Some((network, length)) = cidr.split_once('/') else {
        return false;
    };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    // The high bits of both, for either family.
    let high = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (32_u32, u128::from(ip.to_bits())),
        IpAddr::V6(ip) => (128, ip.to_bits()),
    };
    let ((width, network), (own, ip)) = (high(network), high(ip));
    let shift = width.checked_sub(length);
    width == own && shift.is_some_and(|shift| shift == 128 || (network ^ ip) >> shift == 0)
}

fn parts(call: &Call<'_>) -> Result<(IpAddr, Address), Failure> {
    let params = &call.params;
    let vnet = params.text("vnet");
    if call.world.sdn.zone_of_vnet(vnet) != Some(params.text("zone")) {
        let text = format!(
            "could not find vnet '{vnet}' in zone '{}'",
            params.text("zone")
        );
        return Err(Failure::die(text));
    }
    let ip: Result<IpAddr, _> = params.text("ip").parse();
    let ip = ip.map_err(|_| Failure::param("ip", "not an address"))?;
    let address = Address {
        zone: params.text("zone").to_owned(),
        vnet: vnet.to_owned(),
        subnet: subnet(call, vnet, ip)?,
        mac: params.get("mac").map(str::to_owned),
        vmid: params.vmid("vmid"),
    };
    Ok((ip, address))
}

fn give(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (ip, address) = parts(call)?;
    if call.world.sdn.addresses.contains_key(&ip) {
        return Err(Failure::die(format!("IP '{ip}' already exists")));
    }
    call.world.sdn.addresses.insert(ip, address);
    Ok(Reply::null())
}

/// The address of a card changes: whatever the card had is free again.
fn give_again(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (ip, address) = parts(call)?;
    let all = &mut call.world.sdn.addresses;
    if all.get(&ip).is_some_and(|known| known.mac != address.mac) {
        return Err(Failure::die(format!("IP '{ip}' already exists")));
    }
    all.retain(|_, known| {
        known.mac.is_none() || known.mac != address.mac || known.vnet != address.vnet
    });
    all.insert(ip, address);
    Ok(Reply::null())
}

fn take(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let (ip, address) = parts(call)?;
    let all = &mut call.world.sdn.addresses;
    let own = all.get(&ip).is_some_and(|known| known.vnet == address.vnet);
    if !own {
        return Err(Failure::die(format!("IP '{ip}' does not exist in IPAM DB")));
    }
    all.remove(&ip);
    Ok(Reply::null())
}

fn addresses(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let id = call.params.text("ipam");
    let options = call.world.sdn.ipams.get(id);
    let options = options.ok_or_else(|| missing(id))?;
    if options.get("type").map(String::as_str) != Some("pve") {
        return Err(Failure::die("Currently only PVE IPAM is supported!"));
    }
    let sdn = &call.world.sdn;
    let mut rows = Vec::new();
    for object in sdn.subnets.values() {
        let Some(options) = &object.running else {
            continue;
        };
        let of = |name: &str| options.get(name).cloned().unwrap_or_default();
        let path = format!("/sdn/zones/{}/{}", of("zone"), of("vnet"));
        if let Some(gateway) = options
            .get("gateway")
            .filter(|_| call.may(&path, "SDN.Audit"))
        {
            rows.push(json!({
                "zone": of("zone"), "vnet": of("vnet"), "subnet": of("cidr"), "ip": gateway,
                "gateway": 1,
            }));
        }
    }
    for (ip, address) in &sdn.addresses {
        let path = format!("/sdn/zones/{}/{}", address.zone, address.vnet);
        if !call.may(&path, "SDN.Audit") {
            continue;
        }
        let mut row = json!({
            "zone": address.zone, "vnet": address.vnet, "subnet": address.subnet,
            "ip": ip.to_string(),
        });
        if let Some(mac) = &address.mac {
            row["mac"] = json!(mac);
        }
        if let Some(vmid) = address.vmid {
            row["vmid"] = json!(vmid);
            let name = call.world.guests.get(vmid).map(crate::guest::Guest::name);
            row["hostname"] = json!(name);
        }
        rows.push(row);
    }
    Ok(Value::Array(rows).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_its_network_only() {
        let lies = |ip: &str, cidr: &str| contains(cidr, ip.parse().unwrap());
        assert!(lies("10.9.0.7", "10.9.0.0/24") && !lies("10.9.1.7", "10.9.0.0/24"));
        assert!(lies("fd00::7", "fd00::/64") && !lies("fd00::7", "10.0.0.0/8"));
        assert!(lies("1.2.3.4", "0.0.0.0/0") && lies("::1", "::/0"));
        assert!(!lies("1.2.3.4", "1.2.3.4/33") && !lies("1.2.3.4", "x"));
    }
}
