//! The endpoints that are not about guests or storages.

mod task;
mod ticket;
mod version;

use crate::release::Release;
use crate::route::Route;
use crate::{guest, storage};

/// All endpoints of a release.
pub(crate) fn routes(release: Release) -> Vec<Route> {
    let mut routes = Vec::new();
    routes.extend(version::routes());
    routes.extend(ticket::routes());
    routes.extend(task::routes(release));
    routes.extend(guest::routes(release));
    routes.extend(storage::routes(release));
    routes
}
