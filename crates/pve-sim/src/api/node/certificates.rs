//! `/nodes/{node}/certificates`: what a node shows who it is.

use serde_json::json;

use super::fingerprint;
use crate::api::index;
use crate::call::{Call, Reply};
use crate::failure::Failure;
use crate::permission::Perm;
use crate::route::{Route, get};

/// How long a node's own certificate is valid: two years.
const VALID: u64 = 2 * 365 * 24 * 60 * 60;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/nodes/{node}/certificates", |_| {
            Ok(index("name", &["acme", "custom", "info"]))
        })
        .perm(Perm::User),
        get("/nodes/{node}/certificates/info", info).perm(Perm::User),
    ]
}

fn info(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let name = call.params.text("node");
    let (world, node) = (&*call.world, call.world.node(name)?);
    let domain = &node.search_domain;
    Ok(json!([{
        "filename": "pve-ssl.pem",
        "fingerprint": fingerprint(&world.name, name),
        "subject": format!("/OU=PVE Cluster Node/O=Proxmox Virtual Environment/CN={name}.{domain}"),
        "issuer": format!("/CN=Proxmox Virtual Environment/OU={}/O=PVE Cluster Manager CA", world.name),
        "notbefore": node.started, "notafter": node.started + VALID,
        "san": [node.ip, name, format!("{name}.{domain}")],
        "public-key-type": "rsaEncryption", "public-key-bits": 2048,
    }])
    .into())
}
