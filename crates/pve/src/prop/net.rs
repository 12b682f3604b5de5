//! Network cards and addresses: `net0`, `ipconfig0`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::value::Writer;
use super::{Decimal, Error, List, Value, Word};
use crate::id::MacAddress;

/// The models of cards, each of which may be a key with the hardware address as its value.
const MODELS: &[&str] = &[
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];

property_string! {
    /// What a network card has; [`Net`] reads and prints it.
    Card {
        required
        /// The model.
        model: Word = "model";
        /// The hardware address.
        macaddr: MacAddress = "macaddr";
        /// The bridge or VNet it is plugged into.
        bridge: Word = "bridge";
        /// Whether the firewall looks at it.
        firewall: bool = "firewall";
        /// Whether its cable is pulled.
        link_down: bool = "link_down";
        /// Its largest packet; 1 takes the bridge's.
        mtu: u32 = "mtu";
        /// Its queues.
        queues: u32 = "queues";
        /// The most it may send, in MB/s.
        rate: Decimal = "rate";
        /// Its VLAN.
        tag: u16 = "tag";
        /// The VLANs it may carry tagged.
        trunks: List = "trunks";
    }
}

/// A network card of a virtual machine.
///
/// Without a hardware address the server makes one up.
#[derive(Clone, PartialEq, Eq)]
pub struct Net(Card);

impl Net {
    /// A paravirtualised card on a bridge.
    pub fn virtio(bridge: &str) -> Result<Self, Error> {
        let model = Word::new("virtio")?;
        Ok(Self(Card {
            bridge: Some(Word::new(bridge)?),
            ..Card::new(model)
        }))
    }
}

impl std::ops::Deref for Net {
    type Target = Card;

    fn deref(&self) -> &Card {
        &self.0
    }
}

impl std::ops::DerefMut for Net {
    fn deref_mut(&mut self) -> &mut Card {
        &mut self.0
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Net {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut items = Vec::new();
        for (key, value) in super::items(text)? {
            match key {
                Some(model) if MODELS.contains(&model) => {
                    items.push((Some("model"), model));
                    items.push((Some("macaddr"), value));
                }
                key => items.push((key, value)),
            }
        }
        Card::from_items(items).map(Self)
    }
}

impl fmt::Display for Net {
    /// Prints `virtio=BC:24:11:…,bridge=vmbr0`, the form the server prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self
            .macaddr
            .filter(|_| MODELS.contains(&self.model.as_str()))
        {
            Some(mac) => {
                let mut writer = Writer::new(f);
                writer.item(self.model.as_str(), &mac.to_string())?;
                Card {
                    macaddr: None,
                    ..self.0.clone()
                }
                .write(&mut writer)
            }
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

macro_rules! cidr {
    ($(#[$doc:meta])* $name:ident, $addr:ty, $max:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            address: $addr,
            prefix: u8,
        }

        impl $name {
            /// Checks the prefix.
            pub fn new(address: $addr, prefix: u8) -> Option<Self> {
                (prefix <= $max).then_some(Self { address, prefix })
            }

            /// The address.
            pub fn address(self) -> $addr {
                self.address
            }

            /// The length of the prefix.
            pub fn prefix(self) -> u8 {
                self.prefix
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.address, self.prefix)
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                text.split_once('/')
                    .and_then(|(address, prefix)| Self::new(address.parse().ok()?, prefix.parse().ok()?))
                    .ok_or_else(|| Error::Value {
                        key: "ip".to_owned(),
                        value: text.to_owned(),
                        expected: "an address with a prefix length",
                    })
            }
        }
    };
}

cidr!(
    /// An IPv4 address with the length of its network's prefix.
    Cidr4, Ipv4Addr, 32
);
cidr!(
    /// An IPv6 address with the length of its network's prefix.
    Cidr6, Ipv6Addr, 128
);

/// Where an IPv4 address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ip4 {
    /// From a DHCP server.
    Dhcp,
    /// From inside of the guest; containers only.
    Manual,
    /// From here.
    Static(Cidr4),
}

impl Value for Ip4 {
    const EXPECTED: &'static str = "'dhcp' or an IPv4 address with a prefix length";

    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "dhcp" => Self::Dhcp,
            "manual" => Self::Manual,
            _ => Self::Static(text.parse().ok()?),
        })
    }

    fn print(&self) -> String {
        match self {
            Self::Dhcp => "dhcp".to_owned(),
            Self::Manual => "manual".to_owned(),
            Self::Static(cidr) => cidr.to_string(),
        }
    }
}

/// Where an IPv6 address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ip6 {
    /// From router advertisements.
    Auto,
    /// From a DHCP server.
    Dhcp,
    /// From inside of the guest; containers only.
    Manual,
    /// From here.
    Static(Cidr6),
}

impl Value for Ip6 {
    const EXPECTED: &'static str = "'auto', 'dhcp' or an IPv6 address with a prefix length";

    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "auto" => Self::Auto,
            "dhcp" => Self::Dhcp,
            "manual" => Self::Manual,
            _ => Self::Static(text.parse().ok()?),
        })
    }

    fn print(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Dhcp => "dhcp".to_owned(),
            Self::Manual => "manual".to_owned(),
            Self::Static(cidr) => cidr.to_string(),
        }
    }
}

property_string! {
    /// The addresses cloud-init gives to a card. A gateway needs an address of its family.
    IpConfig {
        /// The IPv4 address.
        ip: Ip4 = "ip";
        /// The IPv4 gateway.
        gw: Ipv4Addr = "gw";
        /// The IPv6 address.
        ip6: Ip6 = "ip6";
        /// The IPv6 gateway.
        gw6: Ipv6Addr = "gw6";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_carries_the_address() {
        let net: Net = "virtio=bc:24:11:00:00:01,bridge=vmbr0,firewall=1,trunks=5;7,host-tunnel=1"
            .parse()
            .unwrap();
        assert_eq!(net.model, "virtio");
        assert_eq!(net.macaddr.unwrap().to_string(), "BC:24:11:00:00:01");
        assert_eq!(
            net.to_string(),
            "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,trunks=5;7,host-tunnel=1"
        );
        let same: Net = "model=virtio,macaddr=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,trunks=5;7,host-tunnel=1".parse().unwrap();
        assert_eq!(same, net);
        assert_eq!(
            "e1000,bridge=vmbr1".parse::<Net>().unwrap().to_string(),
            "e1000,bridge=vmbr1"
        );
    }

    #[test]
    fn addresses_of_both_families() {
        let config: IpConfig = "ip=10.0.0.5/24,gw=10.0.0.1,ip6=auto".parse().unwrap();
        assert!(matches!(config.ip, Some(Ip4::Static(cidr)) if cidr.prefix() == 24));
        assert_eq!(config.ip6, Some(Ip6::Auto));
        assert_eq!(config.to_string(), "ip=10.0.0.5/24,gw=10.0.0.1,ip6=auto");
        assert!("ip=10.0.0.5".parse::<IpConfig>().is_err());
        assert!("ip=10.0.0.5/33".parse::<IpConfig>().is_err());
        assert!("dhcp".parse::<IpConfig>().is_err());
    }
}
