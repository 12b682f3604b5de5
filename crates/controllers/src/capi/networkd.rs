//! The network configuration of a machine that reads no netplan: systemd-networkd's own files.
//!
//! Ignition knows nothing of networks; images that use it (Flatcar, Fedora CoreOS) run systemd-networkd or read its files.
//! What is said here is what [`netplan`](super::netplan) says, in its language.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::infrastructure::v1beta1::{Device, Route, RoutingPolicy, Vrf};

use super::netplan::{Error, Interface, check, destination};

/// A file in `/etc/systemd/network`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) name: String,
    pub(super) contents: String,
}

/// Renders the configuration of `devices`, each with what it was given, and of `vrfs`.
pub(super) fn render(devices: &[(&Device, Interface)], vrfs: &[Vrf]) -> Result<Vec<Unit>, Error> {
    check(devices, vrfs)?;
    let mut units = Vec::new();
    let domains: BTreeMap<&str, &str> = vrfs
        .iter()
        .flat_map(|vrf| {
            vrf.interfaces
                .iter()
                .map(|i| (i.as_str(), vrf.name.as_str()))
        })
        .collect();
    for (number, (device, interface)) in devices.iter().enumerate() {
        units.push(Unit {
            name: format!("{number:02}-eth{number}.network"),
            contents: ethernet(
                device,
                interface,
                domains.get(device.name.as_str()).copied(),
            ),
        });
    }
    for (number, vrf) in vrfs.iter().enumerate() {
        let number = devices.len() + number;
        units.push(Unit {
            name: format!("{number:02}-{}.netdev", vrf.name),
            contents: format!(
                "[NetDev]\nName={}\nKind=vrf\n\n[VRF]\nTable={}\n",
                vrf.name, vrf.table
            ),
        });
        let mut contents = format!("[Match]\nName={}\n", vrf.name);
        for one in &vrf.routes {
            route(&mut contents, one, Some(vrf.table));
        }
        for one in &vrf.routing_policy {
            policy(&mut contents, one, Some(vrf.table));
        }
        units.push(Unit {
            name: format!("{number:02}-{}.network", vrf.name),
            contents,
        });
    }
    Ok(units)
}

fn ethernet(device: &Device, interface: &Interface, vrf: Option<&str>) -> String {
    let mut text = format!("[Match]\nMACAddress={}\n", interface.mac);
    if let Some(mtu) = device.link_mtu {
        let _ = write!(text, "\n[Link]\nMTUBytes={mtu}\n");
    }
    let dhcp = match (device.dhcp4 == Some(true), device.dhcp6 == Some(true)) {
        (true, true) => "yes",
        (true, false) => "ipv4",
        (false, true) => "ipv6",
        (false, false) => "no",
    };
    let _ = write!(text, "\n[Network]\nDHCP={dhcp}\n");
    if let Some(vrf) = vrf {
        let _ = writeln!(text, "VRF={vrf}");
    }
    for address in &interface.addresses {
        let _ = writeln!(text, "Address={address}");
    }
    for server in &interface.dns {
        let _ = writeln!(text, "DNS={server}");
    }
    for gateway in &interface.gateways {
        let _ = write!(
            text,
            "\n[Route]\nGateway={}\nMetric={}\n",
            gateway.address, gateway.metric
        );
    }
    for one in &device.routes {
        route(&mut text, one, None);
    }
    for one in &device.routing_policy {
        policy(&mut text, one, None);
    }
    text
}

fn route(text: &mut String, route: &Route, table: Option<i64>) {
    text.push_str("\n[Route]\n");
    let mut line = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{key}={value}");
        }
    };
    line("Destination", destination(route));
    line("Gateway", route.via.clone());
    line("Metric", route.metric.map(|n| n.to_string()));
    let table = route.table.map(i64::from).or(table);
    line("Table", table.map(|n| n.to_string()));
}

fn policy(text: &mut String, policy: &RoutingPolicy, table: Option<i64>) {
    text.push_str("\n[RoutingPolicyRule]\n");
    let named = |network: &Option<String>| {
        let network = network.as_deref()?;
        // Here no network is every network.
        (!["all", "default"].contains(&network)).then(|| network.to_owned())
    };
    let family = |is6: bool| if is6 { "ipv6" } else { "ipv4" };
    let mut line = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{key}={value}");
        }
    };
    line("From", named(&policy.from));
    line("To", named(&policy.to));
    line("Family", policy.is6.map(|is6| family(is6).to_owned()));
    let table = policy.table.map(i64::from).or(table);
    line("Table", table.map(|n| n.to_string()));
    line("Priority", policy.priority.map(|n| n.to_string()));
}

#[cfg(test)]
mod tests {
    use super::super::netplan::Gateway;
    use super::*;

    #[test]
    fn everything_that_can_be_said_is_said() {
        let spec = serde_json::json!({
            "networkDevices": [
                {"name": "net0", "linkMtu": 9000, "routes": [{"to": "default", "via": "10.0.0.254", "metric": 500, "is6": false}]},
                {"name": "net1", "dhcp6": true, "routingPolicy": [{"from": "all", "is6": true, "table": 7, "priority": 100}]},
            ],
            "vrfs": [{
                "name": "vrf-blue", "table": 500, "interfaces": ["net1"],
                "routes": [{"to": "172.16.0.0/12", "via": "192.168.5.1"}],
                "routingPolicy": [{"from": "192.168.5.0/24"}],
            }],
        });
        let network: api::infrastructure::v1beta1::Network = serde_json::from_value(spec).unwrap();
        let given = Interface {
            mac: "bc:24:11:00:00:01".into(),
            addresses: vec![
                "10.0.0.11/24".parse().unwrap(),
                "2001:db8::11/64".parse().unwrap(),
            ],
            gateways: vec![Gateway {
                address: "10.0.0.1".parse().unwrap(),
                metric: 100,
            }],
            dns: vec!["10.0.0.53".into()],
        };
        let other = Interface {
            mac: "bc:24:11:00:00:02".into(),
            addresses: vec!["192.168.5.7/24".parse().unwrap()],
            ..Interface::default()
        };
        let devices = &network.network_devices;
        let units = render(&[(&devices[0], given), (&devices[1], other)], &network.vrfs).unwrap();
        let whole: Vec<_> = units
            .iter()
            .map(|unit| format!("# {}\n{}", unit.name, unit.contents))
            .collect();
        insta::assert_snapshot!(whole.join("\n"));
    }
}
