//! Guests: virtual machines and containers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::release::Release;
use crate::route::Route;

/// All guests of a cluster by id.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Guests {
    all: BTreeMap<u32, Guest>,
}

/// One guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Guest {
    /// The node its configuration lies on.
    pub(crate) node: String,
}

impl Guests {
    /// The guest, wherever it is.
    pub(crate) fn get(&self, vmid: u32) -> Option<&Guest> {
        self.all.get(&vmid)
    }
}

/// The endpoints of guests.
pub(crate) fn routes(_release: Release) -> Vec<Route> {
    Vec::new()
}
