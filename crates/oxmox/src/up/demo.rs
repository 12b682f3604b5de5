//! The simulated Proxmox VE of a demo, and what is brought up on it.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use kube::Client;
use pve_sim::{Latency, Server, Simulator, Tls};

use super::apply;
use crate::output;

const MACHINES: &str = include_str!("../../../../examples/demo/machines.yaml");

/// A simulated Proxmox VE; dropping it switches it off.
pub(super) struct Simulated {
    _server: Server,
    _simulator: Simulator,
}

/// Starts a simulated Proxmox VE, connects to it and asks for the example's machines.
pub(super) async fn start(client: &Client) -> Result<Simulated> {
    let password = uuid::Uuid::new_v4().to_string();
    let simulator = Simulator::builder()
        .root_password(&password)
        .latency(Latency::real())
        .slow_refusals(true)
        .build();
    let cluster = simulator
        .clusters()
        .next()
        .context("the simulated world has no cluster")?;
    let node = cluster
        .nodes()
        .into_iter()
        .next()
        .context("the simulated cluster has no node")?;
    let tls = Tls::self_signed(&["localhost".into(), "127.0.0.1".into()])
        .context("cannot make the simulated Proxmox VE's certificate")?;
    let fingerprint = tls.fingerprint().to_owned();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(cluster.endpoint(&node), address, Some(tls))
        .await
        .context("cannot start the simulated Proxmox VE")?;
    let url = format!("https://{}", server.address());
    output::say(format_args!(
        "Proxmox VE   {url} (simulated: {})",
        cluster.nodes().join(", ")
    ));
    let credentials = apply::Credentials {
        entries: [
            ("username", Some("root@pam".into())),
            ("password", Some(password)),
            ("fingerprint", Some(fingerprint)),
            ("ca.crt", None),
        ],
        insecure: false,
    };
    apply::provider(client, "demo", &url, credentials).await?;
    apply::documents(client, MACHINES)
        .await
        .context("cannot apply the example")?;
    Ok(Simulated {
        _server: server,
        _simulator: simulator,
    })
}
