//! Network interfaces.

use std::{fmt::Display, net::IpAddr, str::FromStr};

use api::vm::{
    ContainerNetwork, Network, NicModel as Written, Provider, StaticIp, VirtualMachineSpec,
    default_bridge,
};
use fleet::intent::{Addressing, Dynamic, Nic, NicModel, Route};

use super::Invalid;

pub(super) fn nics(spec: &VirtualMachineSpec, provider: &Provider) -> Result<Vec<Nic>, Invalid> {
    let named = spec.networks.iter().enumerate();
    named
        .map(|(at, network)| nic(&format!("spec.networks[{at}]"), network, provider))
        .collect()
}

fn nic(field: &str, network: &Network, provider: &Provider) -> Result<Nic, Invalid> {
    let (bridge, vlan) = bridge_of(field, &network.name, network.bridge.as_deref(), provider)?;
    Ok(Nic {
        name: network.name.clone(),
        bridge,
        model: network.model.map(|model| match model {
            Written::Virtio => NicModel::Virtio,
            Written::E1000 => NicModel::E1000,
            Written::E1000e => NicModel::E1000e,
            Written::Rtl8139 => NicModel::Rtl8139,
            Written::Vmxnet3 => NicModel::Vmxnet3,
        }),
        vlan: network.vlan.or(vlan),
        trunks: network.trunks.clone(),
        mac: network
            .mac
            .as_deref()
            .map(|text| parse(&format!("{field}.mac"), text))
            .transpose()?,
        mtu: network.mtu.and_then(|mtu| u16::try_from(mtu).ok()),
        queues: network.queues.and_then(|queues| u8::try_from(queues).ok()),
        rate: network.rate_limit.map(f64::from),
        firewall: network.firewall,
        link_down: network.link_down,
        addressing: addressing(field, network)?,
    })
}

/// A container's interface.
pub(crate) fn container_nic(
    field: &str,
    network: &ContainerNetwork,
    provider: &Provider,
) -> Result<Nic, Invalid> {
    let (bridge, vlan) = bridge_of(field, &network.name, network.bridge.as_deref(), provider)?;
    let mut addressing = Addressing::default();
    match network.address.as_deref() {
        None | Some("dhcp") => addressing.ipv4 = Dynamic::Dhcp,
        Some(text) => addressing
            .addresses
            .push(parse(&format!("{field}.address"), text)?),
    }
    match network.address6.as_deref() {
        None => {}
        Some("dhcp") => addressing.ipv6 = Dynamic::Dhcp,
        Some("auto") => addressing.ipv6 = Dynamic::Auto,
        Some(text) => addressing
            .addresses
            .push(parse(&format!("{field}.address6"), text)?),
    }
    addressing.gateway4 = optional_ip(&format!("{field}.gateway"), network.gateway.as_deref())?;
    addressing.gateway6 = optional_ip(&format!("{field}.gateway6"), network.gateway6.as_deref())?;
    Ok(Nic {
        name: network.name.clone(),
        bridge,
        vlan: network.vlan.or(vlan),
        mac: network
            .mac
            .as_deref()
            .map(|text| parse(&format!("{field}.mac"), text))
            .transpose()?,
        firewall: network.firewall,
        addressing,
        ..Nic::default()
    })
}

/// The bridge and VLAN a network means on a Provider.
fn bridge_of(
    field: &str,
    name: &str,
    bridge: Option<&str>,
    provider: &Provider,
) -> Result<(String, Option<u16>), Invalid> {
    if let Some(bridge) = bridge {
        return Ok((bridge.to_owned(), None));
    }
    if let Some(map) = provider.spec.networks.iter().find(|map| map.name == name) {
        return Ok((map.bridge.clone(), map.vlan));
    }
    let fallback = provider
        .spec
        .defaults
        .as_ref()
        .and_then(|defaults| defaults.bridge.as_deref());
    match default_bridge(name).or(fallback) {
        Some(bridge) => Ok((bridge.to_owned(), None)),
        None => Err(Invalid::new(
            format!("{field}.name"),
            format!(
                "nothing says which bridge {name:?} is: set {field}.bridge, or add {name:?} to spec.networks of the Provider"
            ),
        )),
    }
}

fn addressing(field: &str, network: &Network) -> Result<Addressing, Invalid> {
    let ipv6 = if network.slaac == Some(true) {
        Dynamic::Auto
    } else {
        Dynamic::No
    };
    match &network.static_ip {
        None if network.slaac == Some(true) => Ok(Addressing {
            ipv4: Dynamic::Dhcp,
            ipv6,
            ..Addressing::default()
        }),
        None => Ok(Addressing::default()),
        Some(fixed) => Ok(Addressing {
            ipv6,
            ..fixed_addresses(&format!("{field}.staticIP"), fixed)?
        }),
    }
}

fn fixed_addresses(field: &str, fixed: &StaticIp) -> Result<Addressing, Invalid> {
    let mut addresses = Vec::new();
    for (key, text) in [("address", &fixed.address), ("address6", &fixed.address6)] {
        if let Some(text) = text {
            addresses.push(parse(&format!("{field}.{key}"), text)?);
        }
    }
    let mut routes = Vec::new();
    for (at, route) in fixed.routes.iter().enumerate() {
        routes.push(Route {
            to: parse(&format!("{field}.routes[{at}].to"), &route.to)?,
            via: parse(&format!("{field}.routes[{at}].via"), &route.via)?,
            metric: route.metric,
        });
    }
    let mut dns = Vec::new();
    for (at, text) in fixed.dns.iter().enumerate() {
        dns.push(parse(&format!("{field}.dns[{at}]"), text)?);
    }
    Ok(Addressing {
        addresses,
        gateway4: optional_ip(&format!("{field}.gateway"), fixed.gateway.as_deref())?,
        gateway6: optional_ip(&format!("{field}.gateway6"), fixed.gateway6.as_deref())?,
        routes,
        dns,
        search: fixed.search_domains.clone(),
        ..Addressing::default()
    })
}

fn optional_ip(field: &str, text: Option<&str>) -> Result<Option<IpAddr>, Invalid> {
    text.map(|text| parse(field, text)).transpose()
}

fn parse<T: FromStr>(field: &str, text: &str) -> Result<T, Invalid>
where
    T::Err: Display,
{
    text.parse()
        .map_err(|error: T::Err| Invalid::new(field, format!("{text:?}: {error}")))
}
