//! The network configuration a machine reads at its first boot: netplan's version 2, matched by hardware address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::infrastructure::v1beta1::{Device, Route, RoutingPolicy, Vrf};
use ipnet::IpNet;
use serde::Serialize;

/// What one interface was given.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Interface {
    /// Its hardware address, in lower case.
    pub(crate) mac: String,
    /// Its fixed addresses.
    pub(crate) addresses: Vec<IpNet>,
    /// Its default routes.
    pub(crate) gateways: Vec<Gateway>,
    /// Name servers.
    pub(crate) dns: Vec<String>,
}

/// A default route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gateway {
    pub(crate) address: IpAddr,
    pub(crate) metric: u32,
}

/// Why a network cannot be configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("network.networkDevices is empty: a machine needs at least one interface")]
    NoInterface,
    #[error(
        "two routes to {to} in the same table with metric {metric}: give one of them another metric"
    )]
    SameRoute { to: String, metric: u32 },
    #[error("a routing policy of {0} has neither `to` nor `from`")]
    EmptyPolicy(String),
    #[error("a routing policy of {0} names no table")]
    PolicyWithoutTable(String),
    #[error("cannot write the network configuration")]
    Write(#[source] serde_saphyr::ser::Error),
}

/// Renders the configuration of `devices`, each with what it was given, and of `vrfs`.
pub(crate) fn render(
    devices: &[(&Device, Interface)],
    vrfs: &[Vrf],
    outside: Outside,
) -> Result<String, Error> {
    check(devices, vrfs)?;
    let mut ethernets = BTreeMap::new();
    for (number, (device, interface)) in devices.iter().enumerate() {
        ethernets.insert(format!("eth{number}"), Ethernet::of(device, interface)?);
    }
    let names: BTreeMap<_, _> = devices
        .iter()
        .enumerate()
        .map(|(number, (device, _))| (device.name.as_str(), format!("eth{number}")))
        .collect();
    let vrfs = vrfs
        .iter()
        .map(|vrf| Ok((vrf.name.clone(), VrfConfig::of(vrf, &names)?)))
        .collect::<Result<_, Error>>()?;
    let network = NetworkConfig {
        version: 2,
        renderer: "networkd",
        ethernets,
        vrfs,
    };
    match outside {
        Outside::Network => serde_saphyr::to_string(&Document { network }),
        Outside::Nothing => serde_saphyr::to_string(&network),
    }
    .map_err(Error::Write)
}

/// What is around the configuration: cloud-init takes either, Talos only the bare one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outside {
    /// The key `network`.
    Network,
    /// Nothing.
    Nothing,
}

/// Whether a network can be configured at all, in whatever language.
pub(super) fn check(devices: &[(&Device, Interface)], vrfs: &[Vrf]) -> Result<(), Error> {
    if devices.is_empty() {
        return Err(Error::NoInterface);
    }
    let mut defaults = std::collections::BTreeSet::new();
    for (device, interface) in devices {
        // What a VRF holds is a table of its own.
        let table = vrfs
            .iter()
            .find(|vrf| vrf.interfaces.contains(&device.name));
        let table = table.map(|vrf| vrf.table);
        for gateway in &interface.gateways {
            let to = any(gateway.address);
            if !defaults.insert((table, to, gateway.metric)) {
                return Err(Error::SameRoute {
                    to: to.to_owned(),
                    metric: gateway.metric,
                });
            }
        }
        policies(&device.routing_policy, &device.name, None)?;
    }
    for vrf in vrfs {
        policies(
            &vrf.routing_policy,
            &vrf.name,
            i32::try_from(vrf.table).ok(),
        )?;
    }
    Ok(())
}

/// Where a route leads; `default` in words every language knows.
pub(super) fn destination(route: &Route) -> Option<String> {
    let is6 = route.is6.or_else(|| {
        let via: IpAddr = route.via.as_deref()?.parse().ok()?;
        Some(via.is_ipv6())
    });
    route.to.as_deref().map(|to| match (to, is6) {
        ("default", Some(true)) => "::/0".to_owned(),
        ("default", _) => "0.0.0.0/0".to_owned(),
        _ => to.to_owned(),
    })
}

fn any(address: IpAddr) -> &'static str {
    if address.is_ipv6() {
        "::/0"
    } else {
        "0.0.0.0/0"
    }
}

#[derive(Serialize)]
struct Document {
    network: NetworkConfig,
}

#[derive(Serialize)]
struct NetworkConfig {
    version: u8,
    renderer: &'static str,
    ethernets: BTreeMap<String, Ethernet>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    vrfs: BTreeMap<String, VrfConfig>,
}

#[derive(Serialize)]
struct Ethernet {
    #[serde(rename = "match")]
    matched: Match,
    dhcp4: bool,
    dhcp6: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteConfig>,
    #[serde(rename = "routing-policy", skip_serializing_if = "Vec::is_empty")]
    routing_policy: Vec<PolicyConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nameservers: Option<NameServers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<i32>,
}

#[derive(Serialize)]
struct Match {
    macaddress: String,
}

#[derive(Serialize)]
struct NameServers {
    addresses: Vec<String>,
}

#[derive(Serialize)]
struct RouteConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<i32>,
}

#[derive(Serialize)]
struct PolicyConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<i32>,
}

#[derive(Serialize)]
struct VrfConfig {
    table: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteConfig>,
    #[serde(rename = "routing-policy", skip_serializing_if = "Vec::is_empty")]
    routing_policy: Vec<PolicyConfig>,
}

impl Ethernet {
    fn of(device: &Device, interface: &Interface) -> Result<Self, Error> {
        let gateways = interface.gateways.iter().map(|gateway| RouteConfig {
            to: Some(any(gateway.address).to_owned()),
            via: Some(gateway.address.to_string()),
            metric: Some(gateway.metric.into()),
            table: None,
        });
        let dns = interface.dns.clone();
        Ok(Self {
            matched: Match {
                macaddress: interface.mac.clone(),
            },
            dhcp4: device.dhcp4.unwrap_or(false),
            dhcp6: device.dhcp6.unwrap_or(false),
            addresses: interface
                .addresses
                .iter()
                .map(ToString::to_string)
                .collect(),
            routes: gateways
                .chain(device.routes.iter().map(RouteConfig::of))
                .collect(),
            routing_policy: policies(&device.routing_policy, &device.name, None)?,
            nameservers: (!dns.is_empty()).then_some(NameServers { addresses: dns }),
            mtu: device.link_mtu,
        })
    }
}

impl RouteConfig {
    fn of(route: &Route) -> Self {
        Self {
            to: destination(route),
            via: route.via.clone(),
            metric: route.metric.map(Into::into),
            table: route.table,
        }
    }
}

impl VrfConfig {
    fn of(vrf: &Vrf, names: &BTreeMap<&str, String>) -> Result<Self, Error> {
        let table = i32::try_from(vrf.table).ok();
        Ok(Self {
            table: vrf.table,
            interfaces: vrf
                .interfaces
                .iter()
                .map(|name| names.get(name.as_str()).unwrap_or(name).clone())
                .collect(),
            routes: vrf.routes.iter().map(RouteConfig::of).collect(),
            routing_policy: policies(&vrf.routing_policy, &vrf.name, table)?,
        })
    }
}

/// Policies of an interface or a VRF, whose table they take unless they name one.
fn policies(
    policies: &[RoutingPolicy],
    of: &str,
    table: Option<i32>,
) -> Result<Vec<PolicyConfig>, Error> {
    policies
        .iter()
        .map(|policy| {
            if policy.to.is_none() && policy.from.is_none() {
                return Err(Error::EmptyPolicy(of.to_owned()));
            }
            let Some(table) = policy.table.or(table) else {
                return Err(Error::PolicyWithoutTable(of.to_owned()));
            };
            Ok(PolicyConfig {
                to: policy.to.clone(),
                from: policy.from.clone(),
                priority: policy.priority,
                table: Some(table),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> Device {
        Device {
            name: name.into(),
            ..Device::default()
        }
    }

    fn interface(mac: &str, address: &str, gateway: Option<&str>) -> Interface {
        Interface {
            mac: mac.into(),
            addresses: vec![address.parse().unwrap()],
            gateways: gateway
                .map(|g| Gateway {
                    address: g.parse().unwrap(),
                    metric: 100,
                })
                .into_iter()
                .collect(),
            dns: vec!["10.0.0.53".into()],
        }
    }

    #[test]
    fn interfaces_are_matched_by_address_and_get_their_routes() {
        let net0 = device("net0");
        let net1 = Device {
            link_mtu: Some(9000),
            routes: vec![Route {
                to: Some("172.16.0.0/12".into()),
                via: Some("192.168.5.1".into()),
                ..Route::default()
            }],
            ..device("net1")
        };
        let text = render(
            &[
                (
                    &net0,
                    interface("bc:24:11:00:00:01", "10.0.0.11/24", Some("10.0.0.1")),
                ),
                (
                    &net1,
                    interface("bc:24:11:00:00:02", "192.168.5.7/24", None),
                ),
            ],
            &[Vrf {
                name: "vrf-blue".into(),
                table: 500,
                interfaces: vec!["net1".into()],
                ..Vrf::default()
            }],
            Outside::Network,
        )
        .unwrap();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn both_families_and_dhcp_are_told_apart() {
        let net0 = Device {
            dhcp4: Some(true),
            ..device("net0")
        };
        let text = render(
            &[(
                &net0,
                interface("bc:24:11:00:00:01", "2001:db8::7/64", Some("2001:db8::1")),
            )],
            &[],
            Outside::Network,
        )
        .unwrap();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn two_default_routes_of_one_metric_are_refused() {
        let (a, b) = (device("net0"), device("net1"));
        let given = |address| interface("bc:24:11:00:00:01", address, Some("10.0.0.1"));
        let refused = render(
            &[(&a, given("10.0.0.2/24")), (&b, given("10.0.0.3/24"))],
            &[],
            Outside::Network,
        );
        assert!(
            matches!(refused, Err(Error::SameRoute { metric: 100, .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn a_policy_needs_a_table() {
        let policy = RoutingPolicy {
            from: Some("10.0.0.0/24".into()),
            ..RoutingPolicy::default()
        };
        let net0 = Device {
            routing_policy: vec![policy],
            ..device("net0")
        };
        let refused = render(&[(&net0, Interface::default())], &[], Outside::Network);
        assert!(matches!(refused, Err(Error::PolicyWithoutTable(of)) if of == "net0"));
    }
}
