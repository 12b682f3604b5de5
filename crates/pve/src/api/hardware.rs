//! Devices of nodes that guests can be given.

use serde::Deserialize;

use crate::api::node::Node;
use crate::client::{Call, Client};
use crate::error::Result;
use crate::params::Params;
use crate::scalar;

/// A device on a node's PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PciDevice {
    /// Its address.
    pub id: String,
    /// Its class, in hexadecimal.
    pub class: String,
    /// Its vendor, in hexadecimal.
    pub vendor: String,
    /// Its kind, in hexadecimal.
    pub device: String,
    /// Its vendor's name.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub vendor_name: Option<String>,
    /// Its name.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub device_name: Option<String>,
    /// Devices of one group can only be given together; -1 without an IOMMU.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub iommugroup: Option<i64>,
    /// Whether it can be shared.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub mdev: bool,
}

/// Devices of several nodes under one name; since 8.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DeviceMapping {
    /// The name.
    pub id: String,
    /// The devices, as property strings.
    #[serde(default)]
    pub map: Vec<String>,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub description: Option<String>,
}

impl DeviceMapping {
    /// The node of each device.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let devices = self.map.iter();
        devices.filter_map(|device| {
            let mut items = device.split(',');
            items.find_map(|item| item.strip_prefix("node="))
        })
    }
}

impl Node {
    /// The devices on its PCI bus.
    pub async fn pci_devices(&self) -> Result<Vec<PciDevice>> {
        self.client
            .call(Call::get("node.pci", self.path("/hardware/pci")))
            .await
    }
}

impl Client {
    /// PCI devices under names of the cluster; since 8. Tokens may give guests nothing else.
    pub async fn pci_mappings(&self) -> Result<Vec<DeviceMapping>> {
        self.call(Call::get("mapping.pci", "/cluster/mapping/pci"))
            .await
    }

    /// Gives PCI devices of nodes a name, each written as `node=…,path=…,id=…`; since 8.
    pub async fn create_pci_mapping(&self, id: &str, devices: &[String]) -> Result<()> {
        let mut params = Params::new().with("id", id);
        for device in devices {
            params.push("map", device);
        }
        self.call(Call::post("mapping.pci", "/cluster/mapping/pci").params(params))
            .await
    }

    /// USB devices under names of the cluster; since 8.
    pub async fn usb_mappings(&self) -> Result<Vec<DeviceMapping>> {
        self.call(Call::get("mapping.usb", "/cluster/mapping/usb"))
            .await
    }
}
