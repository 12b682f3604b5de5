//! Network interfaces and addresses.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A hardware address, written in capitals as PVE does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

/// A text that is not a usable hardware address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a unicast hardware address such as 02:00:00:AA:BB:CC")]
pub struct BadMac(String);

impl Mac {
    /// The address with these bytes, made unicast and locally administered where random ones are.
    pub fn local(bytes: [u8; 6]) -> Self {
        let mut bytes = bytes;
        bytes[0] = (bytes[0] & 0xfe) | 0x02;
        Self(bytes)
    }

    /// An address in Proxmox's own range with these last three bytes.
    pub fn proxmox(tail: [u8; 3]) -> Self {
        Self([0xbc, 0x24, 0x11, tail[0], tail[1], tail[2]])
    }

    /// The address in lower case, as the guest's tools and cloud-init write it.
    pub fn lower(self) -> String {
        self.to_string().to_lowercase()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02X}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = BadMac;
    fn from_str(text: &str) -> Result<Self, BadMac> {
        let bad = || BadMac(text.to_owned());
        let mut bytes = [0u8; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() || bytes[0] & 1 == 1 || bytes == [0; 6] {
            return Err(bad());
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Mac {
    type Error = BadMac;
    fn try_from(text: String) -> Result<Self, BadMac> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

/// The model of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NicModel {
    /// VirtIO.
    #[default]
    Virtio,
    /// Intel E1000.
    E1000,
    /// Intel E1000E.
    E1000e,
    /// Realtek 8139.
    Rtl8139,
    /// VMware vmxnet3.
    Vmxnet3,
}

impl NicModel {
    /// The model in PVE's configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            NicModel::Virtio => "virtio",
            NicModel::E1000 => "e1000",
            NicModel::E1000e => "e1000e",
            NicModel::Rtl8139 => "rtl8139",
            NicModel::Vmxnet3 => "vmxnet3",
        }
    }
}

/// A network interface as it shall be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Nic {
    /// The caller's name for it; its number and address are remembered under this name.
    pub name: String,
    /// A bridge or VNet of any name.
    pub bridge: String,
    /// Its model; without one, VirtIO for a new interface and whatever it is for one that was found.
    pub model: Option<NicModel>,
    /// VLAN tag.
    pub vlan: Option<u16>,
    /// VLANs passed through.
    pub trunks: Vec<u16>,
    /// A fixed hardware address; otherwise one is chosen once and kept.
    pub mac: Option<Mac>,
    /// MTU; 1 takes the bridge's.
    pub mtu: Option<u16>,
    /// Queues.
    pub queues: Option<u8>,
    /// Most bandwidth, MB/s.
    pub rate: Option<f64>,
    /// Filter its traffic by PVE's firewall.
    pub firewall: Option<bool>,
    /// Pull its plug.
    pub link_down: Option<bool>,
    /// The addresses the guest shall have on it.
    pub addressing: Addressing,
}

/// How an interface gets addresses of one family beside fixed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dynamic {
    /// It does not.
    #[default]
    No,
    /// By DHCP.
    Dhcp,
    /// By router advertisement (IPv6 only).
    Auto,
}

/// The addresses of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addressing {
    /// IPv4 beside fixed addresses. An interface with neither fixed nor dynamic addresses uses DHCP.
    pub ipv4: Dynamic,
    /// IPv6 beside fixed addresses.
    pub ipv6: Dynamic,
    /// Fixed addresses with their prefixes.
    pub addresses: Vec<IpNet>,
    /// Default gateway, IPv4.
    pub gateway4: Option<IpAddr>,
    /// Default gateway, IPv6.
    pub gateway6: Option<IpAddr>,
    /// Metric of the default routes.
    pub metric: Option<u32>,
    /// More routes.
    pub routes: Vec<Route>,
    /// Name servers reached through it.
    pub dns: Vec<IpAddr>,
    /// Search domains.
    pub search: Vec<String>,
}

impl Addressing {
    /// Whether nothing was said, so that DHCP for IPv4 is what it does.
    pub fn is_default(&self) -> bool {
        self.addresses.is_empty() && self.ipv4 == Dynamic::No && self.ipv6 == Dynamic::No
    }

    /// Whether IPv4 was said, and whether IPv6 was.
    pub(crate) fn families(&self) -> (bool, bool) {
        let fixed = |is: fn(&IpAddr) -> bool| self.addresses.iter().any(|net| is(&net.addr()));
        (
            self.ipv4 != Dynamic::No || fixed(IpAddr::is_ipv4),
            self.ipv6 != Dynamic::No || fixed(IpAddr::is_ipv6),
        )
    }
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub to: IpNet,
    /// Through whom.
    pub via: IpAddr,
    /// Its metric.
    pub metric: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_normalised_and_multicast_is_refused() {
        let mac: Mac = "02:00:00:aa:bb:cc".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:00:AA:BB:CC");
        assert_eq!(mac.lower(), "02:00:00:aa:bb:cc");
        for bad in [
            "",
            "02:00:00:aa:bb",
            "01:00:00:aa:bb:cc",
            "zz:00:00:aa:bb:cc",
        ] {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
