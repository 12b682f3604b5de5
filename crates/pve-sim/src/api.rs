//! The endpoints that are not about guests or storages.

mod access;
mod backup;
mod ceph;
mod cluster;
mod firewall;
mod ha;
mod mapping;
mod metrics;
mod node;
mod pools;
mod replication;
mod sdn;
mod task;
mod unused;
mod version;

use serde_json::{Value, json};

use crate::call::Reply;
use crate::release::Release;
use crate::route::Route;
use crate::{guest, storage};

/// All endpoints of a release.
pub(crate) fn routes(release: Release) -> Vec<Route> {
    let mut routes = Vec::new();
    routes.extend(version::routes());
    routes.extend(access::routes(release));
    routes.extend(ceph::routes(release));
    routes.extend(cluster::routes(release));
    routes.extend(backup::routes(release));
    routes.extend(task::routes(release));
    routes.extend(node::routes(release));
    routes.extend(pools::routes());
    routes.extend(firewall::routes(release));
    routes.extend(ha::routes(release));
    routes.extend(sdn::routes(release));
    routes.extend(mapping::routes());
    routes.extend(metrics::routes(release));
    routes.extend(replication::routes());
    routes.extend(unused::routes(release));
    routes.extend(guest::routes(release));
    routes.extend(storage::routes(release));
    routes
}

/// What lies below a path, as PVE's directories list it.
pub(crate) fn index(key: &str, names: &[&str]) -> Reply {
    let rows = names.iter().map(|name| json!({ key: name }));
    rows.collect::<Value>().into()
}
