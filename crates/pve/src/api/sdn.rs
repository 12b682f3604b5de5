//! Software defined networks, to read.

use serde::Deserialize;

use crate::api::node::Node;
use crate::client::{Call, Client};
use crate::error::Result;
use crate::params::escape;
use crate::scalar;

/// The calls about software defined networks.
#[derive(Debug, Clone)]
pub struct Sdn(Client);

impl Client {
    /// The calls about software defined networks.
    pub fn sdn(&self) -> Sdn {
        Sdn(self.clone())
    }
}

/// A zone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Zone {
    /// Its name.
    pub zone: String,
    /// `simple`, `vlan`, `qinq`, `vxlan` or `evpn`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The nodes that have it; all if empty.
    #[serde(default, deserialize_with = "scalar::list")]
    pub nodes: Vec<String>,
    /// Its address management.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub ipam: Option<String>,
    /// Its largest packet.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub mtu: Option<u32>,
}

/// A network of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Vnet {
    /// Its name, which guests use like that of a bridge.
    pub vnet: String,
    /// Its zone.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub zone: Option<String>,
    /// Its VLAN or VXLAN.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub tag: Option<u32>,
    /// A longer name.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub alias: Option<String>,
    /// Whether guests may use VLANs inside of it.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub vlanaware: bool,
}

/// A subnet of a network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Subnet {
    /// Its name, made of zone and address.
    pub subnet: String,
    /// Its address with prefix length.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub cidr: Option<String>,
    /// Its gateway.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub gateway: Option<String>,
}

/// How a zone does on a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ZoneStatus {
    /// Its name.
    pub zone: String,
    /// `available`, `pending` or `error`.
    #[serde(default)]
    pub status: String,
}

/// How a network does on a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VnetStatus {
    /// Its name.
    pub vnet: String,
    /// How it does.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub status: Option<String>,
}

impl Sdn {
    /// The zones.
    pub async fn zones(&self) -> Result<Vec<Zone>> {
        self.0
            .call(Call::get("sdn.zones", "/cluster/sdn/zones"))
            .await
    }

    /// The networks.
    pub async fn vnets(&self) -> Result<Vec<Vnet>> {
        self.0
            .call(Call::get("sdn.vnets", "/cluster/sdn/vnets"))
            .await
    }

    /// The subnets of a network.
    pub async fn subnets(&self, vnet: &str) -> Result<Vec<Subnet>> {
        self.0
            .call(Call::get(
                "sdn.subnets",
                format!("/cluster/sdn/vnets/{}/subnets", escape(vnet)),
            ))
            .await
    }
}

impl Node {
    /// The zones it has.
    pub async fn sdn_zones(&self) -> Result<Vec<ZoneStatus>> {
        self.client
            .call(Call::get("node.sdn.zones", self.path("/sdn/zones")))
            .await
    }

    /// The networks of a zone it has; bridges are those of the zone `localnetwork`.
    pub async fn sdn_zone_content(&self, zone: &str) -> Result<Vec<VnetStatus>> {
        let path = self.path(&format!("/sdn/zones/{}/content", escape(zone)));
        self.client.call(Call::get("node.sdn.content", path)).await
    }
}
