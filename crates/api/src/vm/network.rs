//! Network interfaces, and what network names mean.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Name of the network; the Provider's network map says which bridge that is.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Bridge or SDN VNet to connect to, instead of what the name stands for.
    #[schemars(length(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// VLAN tag.
    #[schemars(range(min = 1, max = 4094))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// VLANs passed through tagged.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trunks: Vec<u16>,
    /// MAC address; one is chosen and kept when left out.
    #[schemars(regex(pattern = r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Card the guest sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<NicModel>,
    /// Largest packet, 576 or more; 1 means the bridge's, and is for the model virtio only.
    #[schemars(range(min = 1, max = 65520))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Packet queues (virtio).
    #[schemars(range(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Limit in megabytes per second.
    #[schemars(range(min = 1, max = 10_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<u32>,
    /// Apply PVE's firewall to this interface; unless said, as the firewall of the machine is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<bool>,
    /// Leave the cable unplugged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_down: Option<bool>,
    /// Addresses the guest is given by cloud-init. Without it the guest asks DHCP. Ignition has its own words for them.
    #[serde(rename = "staticIP")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_ip: Option<StaticIp>,
    /// Take IPv6 addresses from router advertisements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slaac: Option<bool>,
}

/// Addresses given to the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.address) || has(self.address6)").message("staticIP needs address, address6 or both"))]
pub struct StaticIp {
    /// IPv4 address with prefix length: `192.168.1.100/24`.
    #[schemars(
        length(max = 64),
        regex(pattern = r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}$")
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// IPv4 gateway.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// IPv6 address with prefix length: `2001:db8::10/64`.
    #[schemars(length(max = 64), regex(pattern = r"^[0-9A-Fa-f:.]+/[0-9]{1,3}$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address6: Option<String>,
    /// IPv6 gateway.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway6: Option<String>,
    /// Name servers.
    #[schemars(length(max = 8))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    /// Domains to search.
    #[schemars(length(max = 8))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_domains: Vec<String>,
    /// Routes besides the gateways.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Destination with prefix length.
    #[schemars(length(max = 64))]
    pub to: String,
    /// Next hop.
    #[schemars(length(max = 64))]
    pub via: String,
    /// Metric.
    #[schemars(range(min = 0, max = 4_294_967_295u32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// A network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NicModel {
    /// Paravirtual, the fast one.
    #[default]
    Virtio,
    /// Intel gigabit.
    E1000,
    /// Intel gigabit, PCIe.
    E1000e,
    /// Realtek 100 MBit.
    Rtl8139,
    /// VMware's.
    Vmxnet3,
}

/// What a network name means on one PVE cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkMapping {
    /// The name machines use.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The bridge or SDN VNet it stands for.
    #[schemars(length(min = 1, max = 64))]
    pub bridge: String,
    /// The VLAN it stands for; an interface's own `vlan` goes before it.
    #[schemars(range(min = 1, max = 4094))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
}

/// An interface as the guest has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Name of the network in the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// MAC address.
    pub mac: String,
    /// Bridge or VNet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Addresses the guest reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
}

/// What the built-in network names mean.
pub fn default_bridge(name: &str) -> Option<&str> {
    match name {
        "lan" | "default" => Some("vmbr0"),
        "dmz" => Some("vmbr1"),
        "mgmt" | "management" => Some("vmbr2"),
        bridge if bridge.starts_with("vmbr") => Some(bridge),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_names_stand_for_the_documented_bridges() {
        for (name, bridge) in [
            ("lan", Some("vmbr0")),
            ("default", Some("vmbr0")),
            ("dmz", Some("vmbr1")),
            ("mgmt", Some("vmbr2")),
            ("management", Some("vmbr2")),
            ("vmbr17", Some("vmbr17")),
            ("storage", None),
        ] {
            assert_eq!(default_bridge(name), bridge, "{name}");
        }
    }
}
