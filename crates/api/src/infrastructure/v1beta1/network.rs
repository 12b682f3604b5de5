//! A machine's network.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The network of one machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Zone of the ProxmoxCluster whose address pools are used.
    #[schemars(length(min = 1, max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Network interfaces, `net0` first.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub network_devices: Vec<Device>,
    /// Virtual routing domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub vrfs: Vec<Vrf>,
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.dhcp4) && self.dhcp4 && has(self.defaultIPv4) && self.defaultIPv4)").message("dhcp4 and defaultIPv4 exclude each other; leave one out"))]
#[x_kube(validation = Rule::new("!(has(self.dhcp6) && self.dhcp6 && has(self.defaultIPv6) && self.defaultIPv6)").message("dhcp6 and defaultIPv6 exclude each other; leave one out"))]
pub struct Device {
    /// Name of the interface in Proxmox VE.
    #[serde(default = "net0")]
    #[schemars(length(min = 4, max = 6), regex(pattern = r"^net[0-9]+$"))]
    pub name: String,
    /// Bridge or SDN VNet; the template's own when left out.
    #[schemars(length(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Card the guest sees: e1000, virtio, rtl8139 or vmxnet3.
    #[schemars(regex(pattern = "^(e1000|virtio|rtl8139|vmxnet3)$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Largest packet on the virtual cable; 1 takes the bridge's.
    #[schemars(range(min = 1, max = 65520))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i32>,
    /// VLAN tag.
    #[schemars(range(min = 1, max = 4094))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<i32>,
    /// Packet queues.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<i32>,
    /// Apply Proxmox VE's firewall to this interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firewall: Option<bool>,
    /// Limit in megabytes per second.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<i32>,
    /// MAC address; one is chosen and kept when left out.
    #[schemars(regex(pattern = r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Ask DHCP for an IPv4 address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp4: Option<bool>,
    /// Ask DHCP for an IPv6 address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp6: Option<bool>,
    /// Take an address from the zone's IPv4 pool.
    #[serde(rename = "defaultIPv4", skip_serializing_if = "Option::is_none")]
    pub default_ipv4: Option<bool>,
    /// Take an address from the zone's IPv6 pool.
    #[serde(rename = "defaultIPv6", skip_serializing_if = "Option::is_none")]
    pub default_ipv6: Option<bool>,
    /// Further pools to take an address from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ip_pool_ref: Vec<PoolRef>,
    /// Name servers, instead of the cluster's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
    /// Largest packet the guest sends.
    #[schemars(range(min = 1, max = 65520))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_mtu: Option<i32>,
    /// Static routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Policy routing rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routing_policy: Vec<RoutingPolicy>,
}

fn net0() -> String {
    "net0".into()
}

/// A pool that an address is claimed from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// API group of the pool; `ipam.cluster.x-k8s.io` for the in-cluster provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the pool.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Name of the pool.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Family of its addresses, `ipv4` or `ipv6`; told from the address when left out.
    #[schemars(regex(pattern = "^ipv[46]$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// A static route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Destination network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Next hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// Metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<i32>,
    /// Routing table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<i32>,
    /// The route is an IPv6 one, for destinations that do not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is6: Option<bool>,
}

/// A policy routing rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutingPolicy {
    /// Destination network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Source network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Routing table to look in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<i32>,
    /// Priority of the rule.
    #[schemars(range(max = 4_294_967_295_i64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// The rule is an IPv6 one, for networks that do not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is6: Option<bool>,
}

/// A virtual routing domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vrf {
    /// Name of the domain.
    #[schemars(length(min = 3))]
    pub name: String,
    /// Its routing table.
    #[schemars(range(min = 1, max = 4_294_967_295_i64))]
    pub table: i64,
    /// Interfaces that belong to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Its static routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Its policy routing rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routing_policy: Vec<RoutingPolicy>,
}
