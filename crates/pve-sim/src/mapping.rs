//! Resource mappings: names for devices that exist on several nodes under different addresses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All mappings, by kind (`pci`, `usb`, `dir`) and id.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mappings {
    pub(crate) by_kind: BTreeMap<String, BTreeMap<String, Mapping>>,
}

/// One mapping.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Mapping {
    #[serde(default)]
    pub(crate) description: Option<String>,
    /// One property string per device: `node=pve1,path=0000:01:00.0,id=10de:2230`.
    #[serde(default)]
    pub(crate) map: Vec<String>,
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

impl Mappings {
    pub(crate) fn get(&self, kind: &str, id: &str) -> Option<&Mapping> {
        self.by_kind.get(kind)?.get(id)
    }

    /// Whether the mapping has a device on `node`.
    pub(crate) fn is_on(&self, kind: &str, id: &str, node: &str) -> bool {
        let wanted = format!("node={node}");
        self.get(kind, id).is_some_and(|mapping| {
            mapping
                .map
                .iter()
                .any(|entry| entry.split(',').any(|part| part == wanted))
        })
    }
}
