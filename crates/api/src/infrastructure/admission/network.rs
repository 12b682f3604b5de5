//! Is this a network that a guest can configure?

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::findings::{Findings, Path};
use crate::infrastructure::v1beta1::{Device, Network, Route, RoutingPolicy, Vrf};

/// IPv6 needs packets of this size; older providers ask it of every interface.
const SMALLEST_MTU: i32 = 1280;
/// So many interfaces fit into a guest.
const INTERFACES: u32 = 32;
/// Proxmox VE's limit.
const QUEUES: i32 = 64;
/// Linux' limit for the name of an interface, without the end mark.
const NAME_LENGTH: usize = 15;

pub(super) fn check(network: &Network, at: &Path, out: &mut Findings) {
    let devices = at.field("networkDevices");
    names(&network.network_devices, &devices, out);
    let mut defaults: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, device) in network.network_devices.iter().enumerate() {
        let at = devices.index(number);
        for (field, set) in [
            ("defaultIPv4", device.default_ipv4),
            ("defaultIPv6", device.default_ipv6),
        ] {
            if set != Some(true) {
                continue;
            }
            if let Some(first) = defaults.insert(field, number) {
                let text = format!(
                    "networkDevices[{first}] has it already: a machine has one default address of each family"
                );
                out.error(&at.field(field), text);
            }
        }
        check_device(device, &at, out);
    }
    let known: BTreeSet<&str> = network
        .network_devices
        .iter()
        .map(|device| device.name.as_str())
        .collect();
    let mut members = BTreeSet::new();
    for (number, vrf) in network.vrfs.iter().enumerate() {
        check_vrf(
            vrf,
            &known,
            &mut members,
            &at.field("vrfs").index(number),
            out,
        );
    }
}

/// Interfaces are numbered from `net0` without a gap, so that what is declared is what the guest has.
fn names(devices: &[Device], at: &Path, out: &mut Findings) {
    let mut numbers: Vec<u32> = Vec::new();
    for (place, device) in devices.iter().enumerate() {
        match device.name.strip_prefix("net").and_then(|n| n.parse().ok()) {
            Some(number) if number < INTERFACES => numbers.push(number),
            _ => out.error(
                &at.index(place).field("name"),
                format!("must be net0 to net{}", INTERFACES - 1),
            ),
        }
    }
    numbers.sort_unstable();
    let expected = 0..u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    if let Some((number, _)) = expected.zip(&numbers).find(|(number, is)| number != *is) {
        out.error(
            at,
            format!("name the interfaces net0, net1, … without a gap: there is no net{number}"),
        );
    }
}

fn check_device(device: &Device, at: &Path, out: &mut Findings) {
    if device.mtu.is_some_and(|mtu| mtu != 1 && mtu < SMALLEST_MTU) {
        out.error(
            &at.field("mtu"),
            format!("must be at least {SMALLEST_MTU}, or 1 to take the bridge's"),
        );
    }
    if device.link_mtu.is_some_and(|mtu| mtu < SMALLEST_MTU) {
        out.error(
            &at.field("linkMtu"),
            format!("must be at least {SMALLEST_MTU}"),
        );
    }
    if device.queues.is_some_and(|queues| queues > QUEUES) {
        out.error(
            &at.field("queues"),
            format!("Proxmox VE allows {QUEUES} at most"),
        );
    }
    for (number, server) in device.dns_servers.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            out.error(
                &at.field("dnsServers").index(number),
                format!("{server:?} is not an address"),
            );
        }
    }
    routes(&device.routes, &at.field("routes"), out);
    for (number, policy) in device.routing_policy.iter().enumerate() {
        let at = at.field("routingPolicy").index(number);
        if policy.table.is_none() {
            out.error(
                &at.field("table"),
                "say which routing table the rule leads to",
            );
        }
        check_policy(policy, &at, out);
    }
}

fn check_vrf<'a>(
    vrf: &'a Vrf,
    known: &BTreeSet<&str>,
    members: &mut BTreeSet<&'a str>,
    at: &Path,
    out: &mut Findings,
) {
    if vrf.name.len() > NAME_LENGTH {
        out.error(
            &at.field("name"),
            format!("Linux allows {NAME_LENGTH} characters at most"),
        );
    }
    if (253..=255).contains(&vrf.table) {
        out.error(
            &at.field("table"),
            "253, 254 and 255 are Linux' own tables: choose another",
        );
    }
    for (number, name) in vrf.interfaces.iter().enumerate() {
        let at = at.field("interfaces").index(number);
        if !known.contains(name.as_str()) {
            out.error(&at, format!("{name:?} is not one of networkDevices"));
        } else if !members.insert(name) {
            out.error(
                &at,
                format!("{name:?} is in another VRF: an interface can be in one only"),
            );
        }
    }
    routes(&vrf.routes, &at.field("routes"), out);
    for (number, policy) in vrf.routing_policy.iter().enumerate() {
        let at = at.field("routingPolicy").index(number);
        if policy
            .table
            .is_some_and(|table| i64::from(table) != vrf.table)
        {
            out.error(
                &at.field("table"),
                format!("must be the VRF's own, {}, or left out", vrf.table),
            );
        }
        check_policy(policy, &at, out);
    }
}

fn routes(routes: &[Route], at: &Path, out: &mut Findings) {
    for (number, route) in routes.iter().enumerate() {
        let at = at.index(number);
        if route.to.is_none() && route.via.is_none() {
            out.error(&at, "says neither where to (`to`) nor how (`via`)");
        }
        let via = route
            .via
            .as_deref()
            .map(|text| (text, text.parse::<IpAddr>()));
        let via6 = match via {
            Some((text, Err(_))) => {
                out.error(&at.field("via"), format!("{text:?} is not an address"));
                None
            }
            Some((_, Ok(address))) => Some(address.is_ipv6()),
            None => None,
        };
        let to6 = route
            .to
            .as_deref()
            .and_then(|to| network(to, route.is6.or(via6), &at.field("to"), out));
        if let (Some(to6), Some(via6)) = (to6, via6)
            && to6 != via6
        {
            out.error(&at, "`to` and `via` are of different families");
        }
    }
}

fn check_policy(policy: &RoutingPolicy, at: &Path, out: &mut Findings) {
    if policy.to.is_none() && policy.from.is_none() {
        out.error(
            at,
            "says neither `to` nor `from`: it would match everything",
        );
    }
    if let Some(priority) = policy.priority
        && (priority <= 0 || (32765..=32766).contains(&priority))
    {
        out.error(
            &at.field("priority"),
            "0, 32765 and 32766 are Linux' own rules: choose another",
        );
    }
    let mut families = Vec::new();
    for (field, text) in [("to", &policy.to), ("from", &policy.from)] {
        if let Some(text) = text {
            families.extend(network(text, policy.is6, &at.field(field), out));
        }
    }
    if families.contains(&true) && families.contains(&false) {
        out.error(at, "`to` and `from` are of different families");
    }
}

/// Whether a destination is IPv6; a placeholder does not show it.
fn network(text: &str, hint: Option<bool>, at: &Path, out: &mut Findings) -> Option<bool> {
    if ["default", "all"].contains(&text) {
        if hint.is_none() {
            out.error(at, format!("{text:?} does not show its family: set is6"));
        }
        return hint;
    }
    let family = text
        .parse::<IpNet>()
        .map(|network| network.addr().is_ipv6())
        .or_else(|_| text.parse::<IpAddr>().map(|address| address.is_ipv6()));
    if family.is_err() {
        out.error(
            at,
            format!(
                "{text:?} is neither a network (address/prefix), nor an address, nor `default`"
            ),
        );
    }
    family.ok()
}
