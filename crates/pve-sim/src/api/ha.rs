//! `/cluster/ha`: resources, groups (8), rules (9) and the manager's status.

mod groups;
mod resources;
mod rules;
mod status;

use serde_json::{Value, json};

use crate::permission::all;
use crate::release::Release;
use crate::route::{Route, get};

pub(super) fn routes(release: Release) -> Vec<Route> {
    let mut routes = vec![
        get("/cluster/ha", |_| {
            let names = ["status", "resources", "groups"];
            Ok(names
                .map(|name| json!({ "id": name }))
                .into_iter()
                .collect::<Value>()
                .into())
        })
        .perm(all("/", &["Sys.Audit"])),
    ];
    routes.extend(resources::routes(release));
    routes.extend(groups::routes());
    if release.is_9() {
        routes.extend(rules::routes());
    }
    routes.extend(status::routes());
    routes
}
