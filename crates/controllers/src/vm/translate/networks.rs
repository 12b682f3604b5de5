//! Network interfaces.

use std::{fmt::Display, net::IpAddr, str::FromStr};

use api::vm::{
    ContainerNetwork, Network, NicModel as Written, Provider, StaticIp, VirtualMachineSpec,
    default_bridge,
};
use fleet::{
    GuestIntent,
    intent::{Addressing, Dynamic, InitMode, Nic, NicModel, Route},
};
use ipnet::IpNet;

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

/// Refuses sizes of packets that no guest hears of: PVE tells them to VirtIO cards, and cloud-init to the system.
pub(super) fn sizes_are_heard(intent: &GuestIntent) -> Result<(), Invalid> {
    let init = intent.init.as_ref();
    let told = init.is_some_and(|it| it.mode == InitMode::NoCloud && it.network_data.is_none());
    for (at, nic) in intent.nics.iter().enumerate() {
        let other = nic.model.is_some_and(|model| model != NicModel::Virtio);
        if other && nic.mtu.is_some_and(|mtu| mtu == 1 || !told) {
            return Err(Invalid::new(
                format!("spec.networks[{at}].mtu"),
                "reaches a card of another model than virtio through cloud-init only: change the model, or leave it out",
            ));
        }
    }
    Ok(())
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
        Some(text) => {
            let fixed = address(&format!("{field}.address"), text, Family::V4)?;
            addressing.addresses.push(fixed);
        }
    }
    match network.address6.as_deref() {
        None => {}
        Some("dhcp") => addressing.ipv6 = Dynamic::Dhcp,
        Some("auto") => addressing.ipv6 = Dynamic::Auto,
        Some(text) => {
            let fixed = address(&format!("{field}.address6"), text, Family::V6)?;
            addressing.addresses.push(fixed);
        }
    }
    let gateways = (network.gateway.as_deref(), network.gateway6.as_deref());
    let addressing = through(field, addressing, gateways)?;
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
    for (key, text, family) in [
        ("address", &fixed.address, Family::V4),
        ("address6", &fixed.address6, Family::V6),
    ] {
        if let Some(text) = text {
            addresses.push(address(&format!("{field}.{key}"), text, family)?);
        }
    }
    let mut routes = Vec::new();
    for (at, route) in fixed.routes.iter().enumerate() {
        let to: IpNet = parse(&format!("{field}.routes[{at}].to"), &route.to)?;
        let field = format!("{field}.routes[{at}].via");
        let via = parse(&field, &route.via)?;
        Family::of(to.addr()).holds(&field, via)?;
        routes.push(Route {
            to,
            via,
            metric: route.metric,
        });
    }
    let mut dns = Vec::new();
    for (at, text) in fixed.dns.iter().enumerate() {
        dns.push(parse(&format!("{field}.dns[{at}]"), text)?);
    }
    let addressing = Addressing {
        addresses,
        routes,
        dns,
        search: fixed.search_domains.clone(),
        ..Addressing::default()
    };
    let gateways = (fixed.gateway.as_deref(), fixed.gateway6.as_deref());
    through(field, addressing, gateways)
}

/// A guest may drop its whole network configuration over one address of the wrong family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn holds(self, field: &str, address: IpAddr) -> Result<(), Invalid> {
        if Self::of(address) == self {
            return Ok(());
        }
        let text = format!(
            "{address} is not an {} address, which it must be",
            self.name()
        );
        Err(Invalid::new(field, text))
    }
}

fn address(field: &str, text: &str, family: Family) -> Result<IpNet, Invalid> {
    let net: IpNet = parse(field, text)?;
    family.holds(field, net.addr())?;
    Ok(net)
}

/// Addresses with their gateways, of which each needs an address of its family.
fn through(
    field: &str,
    mut addressing: Addressing,
    gateways: (Option<&str>, Option<&str>),
) -> Result<Addressing, Invalid> {
    let gateway = |key: &str, text: Option<&str>, family: Family| {
        let Some(text) = text else { return Ok(None) };
        let field = format!("{field}.{key}");
        let via = parse(&field, text)?;
        family.holds(&field, via)?;
        let mut addresses = addressing.addresses.iter();
        if addresses.any(|net| Family::of(net.addr()) == family) {
            return Ok(Some(via));
        }
        let text = format!(
            "has no effect without a fixed {} address beside it",
            family.name()
        );
        Err(Invalid::new(field, text))
    };
    let gateway4 = gateway("gateway", gateways.0, Family::V4)?;
    let gateway6 = gateway("gateway6", gateways.1, Family::V6)?;
    (addressing.gateway4, addressing.gateway6) = (gateway4, gateway6);
    Ok(addressing)
}

fn parse<T: FromStr>(field: &str, text: &str) -> Result<T, Invalid>
where
    T::Err: Display,
{
    text.parse()
        .map_err(|error: T::Err| Invalid::new(field, format!("{text:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use fleet::intent::{Init, Source};

    use super::*;

    fn fixed(text: &str) -> Result<Addressing, String> {
        let fixed = serde_json::from_str(text).unwrap();
        fixed_addresses("staticIP", &fixed).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_gateways_and_routes_of_another_family_are_refused_by_their_field() {
        for (field, text) in [
            ("address:", r#"{"address": "2001:db8::5/64"}"#),
            ("address6:", r#"{"address6": "10.0.0.5/24"}"#),
            (
                "gateway:",
                r#"{"address": "10.0.0.5/24", "gateway": "2001:db8::1"}"#,
            ),
            (
                "gateway6:",
                r#"{"address6": "2001:db8::5/64", "gateway6": "10.0.0.1"}"#,
            ),
            (
                "gateway:",
                r#"{"address6": "2001:db8::5/64", "gateway": "10.0.0.1"}"#,
            ),
            (
                "gateway6:",
                r#"{"address": "10.0.0.5/24", "gateway6": "2001:db8::1"}"#,
            ),
            (
                "routes[0].via:",
                r#"{"address": "10.0.0.5/24", "routes": [{"to": "10.1.0.0/16", "via": "fe80::1"}]}"#,
            ),
        ] {
            let refused = fixed(text).unwrap_err();
            assert!(
                refused.starts_with(&format!("staticIP.{field}")),
                "{text}: {refused}"
            );
        }
    }

    #[test]
    fn a_size_of_packets_that_no_guest_hears_of_is_refused() {
        let refusal = |mtu: u16, model: NicModel, init: Option<Init>| {
            let cluster = fleet::ClusterName::new("c").unwrap();
            let owner = fleet::Owner::new("o").unwrap();
            let mut intent = GuestIntent::new(owner, cluster, "web", Source::Empty);
            intent.nics = vec![Nic {
                model: Some(model),
                mtu: Some(mtu),
                ..Nic::default()
            }];
            intent.init = init;
            sizes_are_heard(&intent).is_err()
        };
        assert!(!refusal(1400, NicModel::Virtio, None));
        assert!(refusal(1400, NicModel::E1000, None));
        // The guest itself is told by cloud-init, but not where what it is told was written by hand.
        assert!(!refusal(1400, NicModel::E1000, Some(Init::default())));
        assert!(refusal(1, NicModel::E1000, Some(Init::default())));
        let by_hand = Init {
            network_data: Some("version: 2".into()),
            ..Init::default()
        };
        assert!(refusal(1400, NicModel::E1000, Some(by_hand)));
    }

    #[test]
    fn both_families_go_beside_each_other() {
        let both = r#"{"address": "10.0.0.5/24", "gateway": "10.0.0.1", "address6": "2001:db8::5/64", "gateway6": "fe80::1",
            "routes": [{"to": "::/0", "via": "fe80::2"}]}"#;
        let both = fixed(both).unwrap();
        assert!(both.gateway4.is_some() && both.gateway6.is_some());
    }
}
