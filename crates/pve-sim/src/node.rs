//! The hosts of a cluster.

use serde::{Deserialize, Serialize};

/// One host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Its number in the cluster.
    pub(crate) id: u32,
    /// Its address in the cluster network.
    pub(crate) ip: String,
    pub(crate) sockets: u32,
    /// Cores of all sockets together.
    pub(crate) cores: u32,
    /// Threads of all cores together: what guests can use.
    pub(crate) cpus: u32,
    pub(crate) numa_cells: u32,
    /// Bytes.
    pub(crate) memory: u64,
    /// Bytes of the root file system.
    pub(crate) disk: u64,
    /// Whether the host has power and its services run.
    pub(crate) up: bool,
    /// When it was started, in seconds since 1970.
    pub(crate) started: u64,
}
