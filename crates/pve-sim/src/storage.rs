//! Storages and what lies on them.

use serde::{Deserialize, Serialize};

use crate::release::Release;
use crate::route::Route;

/// All storages of a cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Storages {}

/// The endpoints of storages.
pub(crate) fn routes(_release: Release) -> Vec<Route> {
    Vec::new()
}
