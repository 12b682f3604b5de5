//! Network configuration, version 2, with interfaces found by their hardware address.

use std::{collections::BTreeMap, net::IpAddr};

use serde_json::{Map, Value, json};

use super::yaml;
use crate::{
    intent::{Dynamic, Init, Nic},
    record::NicIdentity,
};

/// The `network-config` file for these interfaces.
///
/// Interfaces are matched by hardware address and keep the names the guest's kernel gives them, so
/// files a user writes for `ens18` still mean the same interface.
pub fn network_config(nics: &[Nic], init: &Init, known: &BTreeMap<String, NicIdentity>) -> String {
    let mut ethernets = Map::new();
    for (position, nic) in nics.iter().enumerate() {
        let Some(NicIdentity { index, mac }) = known.get(&nic.name) else {
            continue;
        };
        let mut entry = Map::new();
        entry.insert("match".to_owned(), json!({"macaddress": mac.lower()}));
        addresses(&mut entry, nic);
        let mut dns: Vec<IpAddr> = nic.addressing.dns.clone();
        let mut search = nic.addressing.search.clone();
        if position == 0 {
            dns.extend(&init.dns);
            search.extend(init.search.iter().cloned());
        }
        if !dns.is_empty() || !search.is_empty() {
            let mut servers = Map::new();
            if !dns.is_empty() {
                servers.insert("addresses".to_owned(), json!(dns));
            }
            if !search.is_empty() {
                servers.insert("search".to_owned(), json!(search));
            }
            entry.insert("nameservers".to_owned(), Value::Object(servers));
        }
        // MTU 1 is PVE's word for "the bridge's"; the guest then has nothing to set.
        if let Some(mtu) = nic.mtu.filter(|mtu| *mtu > 1) {
            entry.insert("mtu".to_owned(), json!(mtu));
        }
        ethernets.insert(format!("nic{index}"), Value::Object(entry));
    }
    yaml::document(&json!({"version": 2, "ethernets": ethernets}))
}

fn addresses(entry: &mut Map<String, Value>, nic: &Nic) {
    let addressing = &nic.addressing;
    let dhcp4 = addressing.ipv4 == Dynamic::Dhcp || addressing.is_default();
    entry.insert("dhcp4".to_owned(), json!(dhcp4));
    match addressing.ipv6 {
        Dynamic::Dhcp => {
            entry.insert("dhcp6".to_owned(), json!(true));
        }
        Dynamic::Auto => {
            entry.insert("accept-ra".to_owned(), json!(true));
        }
        Dynamic::No => {}
    }
    if !addressing.addresses.is_empty() {
        entry.insert("addresses".to_owned(), json!(addressing.addresses));
    }
    let mut routes = Vec::new();
    for (gateway, to) in [
        (addressing.gateway4, "0.0.0.0/0"),
        (addressing.gateway6, "::/0"),
    ] {
        let Some(via) = gateway else { continue };
        let mut route = Map::new();
        route.insert("to".to_owned(), json!(to));
        route.insert("via".to_owned(), json!(via));
        if let Some(metric) = addressing.metric {
            route.insert("metric".to_owned(), json!(metric));
        }
        // A gateway outside of every subnet is reachable all the same: it is on the wire.
        if via.is_ipv4() && !addressing.addresses.iter().any(|net| net.contains(&via)) {
            route.insert("on-link".to_owned(), json!(true));
        }
        routes.push(Value::Object(route));
    }
    for wanted in &addressing.routes {
        let mut route = Map::new();
        route.insert("to".to_owned(), json!(wanted.to));
        route.insert("via".to_owned(), json!(wanted.via));
        if let Some(metric) = wanted.metric {
            route.insert("metric".to_owned(), json!(metric));
        }
        routes.push(Value::Object(route));
    }
    if !routes.is_empty() {
        entry.insert("routes".to_owned(), Value::Array(routes));
    }
}
