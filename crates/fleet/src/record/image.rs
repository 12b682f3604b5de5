//! What is kept of an image.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{InFlight, is_zero};
use crate::{NodeName, Vmid};

/// What the caller keeps about an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageRecord {
    /// The templates made of it, by the node they live on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<NodeName, ReplicaRecord>,
}

impl ImageRecord {
    /// Whether everything that was begun is done.
    pub fn is_complete(&self) -> bool {
        let mut replicas = self.replicas.values();
        replicas.all(|replica| replica.stage == ReplicaStage::Clean)
    }
}

/// One template made of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRecord {
    /// Its VMID, chosen before it exists.
    pub vmid: Vmid,
    /// The downloaded file; empty when somebody else made the template.
    pub volume: String,
    /// Tasks under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<InFlight>,
    /// How far it has come.
    #[serde(default)]
    pub stage: ReplicaStage,
    /// How often it has been tried.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
}

/// How far a template has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum ReplicaStage {
    /// Nothing has been done yet.
    #[default]
    New,
    /// The file is on the storage.
    Downloaded,
    /// The guest with the imported disk exists.
    Imported,
    /// It is a template.
    Template,
    /// The file has been removed again.
    Clean,
    /// Somebody else made it; our tag is to be put on it.
    Joining,
}
