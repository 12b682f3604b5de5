//! Resource pools: named sets of guests and storages that rights can be given on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// One pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pool {
    #[serde(default)]
    pub(crate) comment: Option<String>,
    #[serde(default)]
    pub(crate) guests: BTreeSet<u32>,
    #[serde(default)]
    pub(crate) storages: BTreeSet<String>,
}
