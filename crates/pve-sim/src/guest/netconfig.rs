//! cloud-init's network configuration, versions 1 and 2, as far as a guest's addresses depend on it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// What one link of the guest shall be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    /// The name inside the guest, if the configuration gives one.
    pub(crate) name: Option<String>,
    /// The hardware address it is found by, lower case.
    pub(crate) mac: Option<String>,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) dhcp4: bool,
    pub(crate) dhcp6: bool,
}

/// Why a network configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("network-config is not YAML of the expected shape: {0}")]
    Yaml(String),
    #[error("network-config version {0} is unknown")]
    Version(u64),
    #[error("'{0}' is not an address with a prefix length")]
    Address(String),
}

#[derive(Deserialize)]
struct Document {
    network: Option<Body>,
    #[serde(flatten)]
    body: Body,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    version: Option<u64>,
    config: Vec<Item>,
    ethernets: BTreeMap<String, Device>,
    bonds: BTreeMap<String, Device>,
    bridges: BTreeMap<String, Device>,
    vlans: BTreeMap<String, Device>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Item {
    r#type: String,
    name: Option<String>,
    mac_address: Option<String>,
    subnets: Vec<Subnet>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Subnet {
    r#type: String,
    address: Option<String>,
    netmask: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Device {
    r#match: Option<Match>,
    #[serde(rename = "set-name")]
    set_name: Option<String>,
    macaddress: Option<String>,
    dhcp4: bool,
    dhcp6: bool,
    addresses: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Match {
    macaddress: Option<String>,
    name: Option<String>,
}

/// Reads a network configuration.
pub(crate) fn parse(text: &str) -> Result<Vec<Link>, Error> {
    let document: Document =
        serde_saphyr::from_str(text).map_err(|error| Error::Yaml(first_line(&error)))?;
    let body = document.network.unwrap_or(document.body);
    match body.version.unwrap_or(2) {
        1 => body
            .config
            .iter()
            .filter(|item| item.is_link())
            .map(Item::link)
            .collect(),
        2 => version2(&body),
        other => Err(Error::Version(other)),
    }
}

fn first_line(error: &impl ToString) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

impl Item {
    fn is_link(&self) -> bool {
        matches!(
            self.r#type.as_str(),
            "physical" | "bond" | "bridge" | "vlan"
        )
    }

    fn link(&self) -> Result<Link, Error> {
        let mut link = Link {
            name: self.name.clone(),
            mac: self.mac_address.as_deref().map(str::to_ascii_lowercase),
            ..Link::default()
        };
        for subnet in &self.subnets {
            match subnet.r#type.as_str() {
                "dhcp" | "dhcp4" => link.dhcp4 = true,
                "dhcp6" | "ipv6_dhcpv6-stateful" | "ipv6_dhcpv6-stateless" | "ipv6_slaac" => {
                    link.dhcp6 = true;
                }
                "static" | "static6" => {
                    let address = subnet.address.as_deref().unwrap_or_default();
                    link.addresses
                        .push(with_mask(address, subnet.netmask.as_deref())?);
                }
                _ => {}
            }
        }
        Ok(link)
    }
}

fn version2(body: &Body) -> Result<Vec<Link>, Error> {
    let mut links = Vec::new();
    for (id, device) in &body.ethernets {
        let found = device.r#match.as_ref();
        let name = device
            .set_name
            .clone()
            .or_else(|| found.and_then(|m| m.name.clone()));
        let mac = found
            .and_then(|m| m.macaddress.as_deref())
            .map(str::to_ascii_lowercase);
        let name = name.or_else(|| mac.is_none().then(|| id.clone()));
        links.push(device.link(name, mac)?);
    }
    for (id, device) in body.bonds.iter().chain(&body.bridges).chain(&body.vlans) {
        links.push(device.link(Some(id.clone()), device.macaddress.clone())?);
    }
    Ok(links)
}

impl Device {
    fn link(&self, name: Option<String>, mac: Option<String>) -> Result<Link, Error> {
        let addresses: Result<_, _> = self.addresses.iter().map(|a| with_mask(a, None)).collect();
        Ok(Link {
            name,
            mac,
            addresses: addresses?,
            dhcp4: self.dhcp4,
            dhcp6: self.dhcp6,
        })
    }
}

/// `10.0.0.5/24`, or an address with a dotted or numeric mask beside it.
fn with_mask(address: &str, mask: Option<&str>) -> Result<(IpAddr, u8), Error> {
    let fail = || Error::Address(address.to_owned());
    let (ip, prefix) = match address.split_once('/') {
        Some((ip, prefix)) => (ip, prefix.parse().map_err(|_| fail())?),
        None => (address, mask.and_then(prefix_of).ok_or_else(fail)?),
    };
    let ip: IpAddr = ip.parse().map_err(|_| fail())?;
    let limit = if ip.is_ipv4() { 32 } else { 128 };
    if prefix > limit {
        Err(fail())
    } else {
        Ok((ip, prefix))
    }
}

fn prefix_of(mask: &str) -> Option<u8> {
    if let Ok(dotted) = mask.parse::<Ipv4Addr>() {
        let bits = u32::from(dotted);
        let prefix = bits.leading_ones();
        return (bits.count_ones() == prefix)
            .then(|| u8::try_from(prefix).ok())
            .flatten();
    }
    mask.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_as_pve_writes_it() {
        let text = "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: 'bc:24:11:78:1f:b0'\n      subnets:\n      - type: static\n        address: '10.0.0.5'\n        netmask: '255.255.255.0'\n        gateway: '10.0.0.1'\n    - type: nameserver\n      address:\n      - '10.255.255.53'\n";
        let links = parse(text).unwrap();
        assert_eq!(links.len(), 1);
        assert_eq!(links[0].mac.as_deref(), Some("bc:24:11:78:1f:b0"));
        assert_eq!(links[0].addresses, [("10.0.0.5".parse().unwrap(), 24)]);
    }

    #[test]
    fn version_2_matches_by_address_and_renames() {
        let text = "network:\n  version: 2\n  renderer: networkd\n  ethernets:\n    eth0:\n      match:\n        macaddress: BC:24:11:00:00:01\n      set-name: eth0\n      dhcp4: 'no'\n      addresses:\n      - 10.1.0.7/24\n      - 2001:db8::7/64\n      routes:\n      - to: 0.0.0.0/0\n        via: 10.1.0.1\n    eth1:\n      dhcp4: true\n";
        let links = parse(&text.replace("'no'", "no")).unwrap();
        assert_eq!(links[0].name.as_deref(), Some("eth0"));
        assert_eq!(links[0].mac.as_deref(), Some("bc:24:11:00:00:01"));
        assert_eq!(links[0].addresses.len(), 2);
        assert!(!links[0].dhcp4);
        assert_eq!(links[1].name.as_deref(), Some("eth1"));
        assert!(links[1].dhcp4);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        assert!(parse("version: 3\n").is_err());
        assert!(parse("version: 2\nethernets:\n  e:\n    addresses: [10.0.0.1]\n").is_err());
        assert!(parse("- not\n- a map\n").is_err());
    }
}
