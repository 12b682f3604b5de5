//! `/version` and the top of the API.

use serde_json::{Value, json};

use crate::permission::Perm;
use crate::route::{Route, get};
use crate::world::World;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/", |_| {
            let dirs = ["version", "cluster", "nodes", "storage", "access", "pools"];
            Ok(dirs
                .map(|dir| json!({ "subdir": dir }))
                .into_iter()
                .collect::<Value>()
                .into())
        })
        .perm(Perm::User),
        get("/version", |call| Ok(version(call.world).into())).perm(Perm::User),
        get("/nodes/{node}/version", |call| {
            Ok(version(call.world).into())
        })
        .perm(Perm::User),
    ]
}

fn version(world: &World) -> Value {
    let release = world.release;
    let version = release.version();
    let short = version.rsplit_once('.').map_or(version, |(short, _)| short);
    json!({ "version": version, "release": short, "repoid": release.repoid() })
}
