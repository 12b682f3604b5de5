//! Storages: what they hold, and how things get there.

pub mod content;
pub mod upload;

use serde::Deserialize;

use super::node::Node;
use crate::client::{Call, Client};
use crate::error::Result;
use crate::id::{NodeName, StorageId};
use crate::params::Params;
use crate::scalar;

/// One storage, as one node sees it.
#[derive(Debug, Clone)]
pub struct Storage {
    pub(crate) client: Client,
    pub(crate) node: NodeName,
    pub(crate) id: StorageId,
}

/// A storage in a node's list, or its state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StorageStatus {
    /// Its name; absent when one storage was asked for.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub storage: Option<StorageId>,
    /// Such as `dir`, `lvmthin`, `zfspool`, `rbd`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it may hold: `images`, `rootdir`, `iso`, `vztmpl`, `backup`, `snippets`, `import`.
    #[serde(default, deserialize_with = "scalar::list")]
    pub content: Vec<String>,
    /// Whether it is switched on.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub enabled: bool,
    /// Whether it can be used now.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub active: bool,
    /// Whether it is the same on all nodes.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub shared: bool,
    /// Its size in bytes.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub total: Option<u64>,
    /// What is used of it.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub used: Option<u64>,
    /// What is free.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub avail: Option<u64>,
}

impl StorageStatus {
    /// Whether it may hold this kind of content.
    pub fn holds(&self, content: &str) -> bool {
        self.content.iter().any(|held| held == content)
    }
}

/// A storage as the cluster is configured for it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StorageConfig {
    /// Its name.
    pub storage: StorageId,
    /// Such as `dir`, `lvmthin`, `zfspool`, `rbd`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it may hold.
    #[serde(default, deserialize_with = "scalar::list")]
    pub content: Vec<String>,
    /// The nodes that have it; all if empty.
    #[serde(default, deserialize_with = "scalar::list")]
    pub nodes: Vec<String>,
    /// Whether it is switched off.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub disable: bool,
    /// Whether it is the same on all nodes.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub shared: bool,
    /// Every other option.
    #[serde(flatten)]
    pub other: serde_json::Map<String, serde_json::Value>,
}

/// Which storages of a node to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageFilter {
    /// Only those that may hold this.
    pub content: Option<String>,
    /// Only those switched on.
    pub enabled: bool,
    /// Only those this other node has too.
    pub target: Option<NodeName>,
}

impl Client {
    /// All storages the cluster is configured for.
    pub async fn storages(&self) -> Result<Vec<StorageConfig>> {
        self.call(Call::get("storage.configs", "/storage")).await
    }
}

impl Node {
    /// The storages it has, with their state.
    pub async fn storages(&self, filter: &StorageFilter) -> Result<Vec<StorageStatus>> {
        let params = Params::new()
            .maybe("content", filter.content.as_ref())
            .flag("enabled", filter.enabled)
            .maybe("target", filter.target.as_ref());
        self.client
            .call(Call::get("storage.list", self.path("/storage")).params(params))
            .await
    }
}

impl Storage {
    pub(crate) fn new(node: &Node, id: &StorageId) -> Self {
        Self {
            client: node.client.clone(),
            node: node.name.clone(),
            id: id.clone(),
        }
    }

    /// Its name.
    pub fn id(&self) -> &StorageId {
        &self.id
    }

    /// How it does.
    pub async fn status(&self) -> Result<StorageStatus> {
        self.client
            .call(Call::get("storage.status", self.path("/status")))
            .await
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/nodes/{}/storage/{}{rest}", self.node, self.id)
    }
}
