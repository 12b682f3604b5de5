//! The simulated Proxmox VE of a demo, and what is brought up on it.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use api::vm::Provider;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use pve_sim::{Clock, Latency, Server, Simulator, Tls};
use tokio::task::AbortHandle;

use super::apply;
use crate::output;

/// The demo's own Provider.
const PROVIDER: &str = "demo";
const MACHINES: &str = include_str!("../../../../examples/demo/machines.yaml");

/// How often the state is written, for the case that the program is killed.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// A simulated Proxmox VE; dropping it switches it off.
pub(super) struct Simulated {
    _server: Server,
    simulator: Arc<Simulator>,
    state: Option<(PathBuf, AbortHandle)>,
}

impl Drop for Simulated {
    fn drop(&mut self) {
        if let Some((path, keeper)) = &self.state {
            keeper.abort();
            save(&self.simulator, path);
        }
    }
}

fn save(simulator: &Simulator, path: &Path) {
    if let Err(error) = simulator.save(path) {
        tracing::warn!(%error, "the simulated Proxmox VE's state was not kept");
    }
}

/// Refuses a store that has to do with another Proxmox VE: what the example brings would take the place of objects of the same name.
pub(super) async fn check(client: &Client) -> Result<()> {
    let providers: Api<Provider> = Api::all(client.clone());
    let there = providers.list(&ListParams::default()).await?.items;
    if let Some(other) = there.iter().find(|provider| !is_own(provider)) {
        bail!(
            "Provider {} is there already, so these are no demo's data: give another --data-dir, or none",
            other.name_any()
        );
    }
    Ok(())
}

/// Whether a demo made it: it is on this computer, at whichever port was free.
fn is_own(provider: &Provider) -> bool {
    let url = provider.spec.endpoint.as_deref().unwrap_or_default();
    provider.name_any() == PROVIDER
        && provider.namespace().as_deref() == Some(apply::NAMESPACE)
        && url.starts_with("https://127.0.0.1:")
}

/// Starts a simulated Proxmox VE, connects to it and asks for the example's machines. It goes on from `state`, if it is told
/// where that is kept.
pub(super) async fn start(client: &Client, state: Option<PathBuf>) -> Result<Simulated> {
    let password = uuid::Uuid::new_v4().to_string();
    let mut builder = Simulator::builder()
        .root_password(&password)
        .latency(Latency::real())
        .slow_refusals(true)
        .clock(Clock::of_this_machine());
    if let Some(path) = &state {
        builder = builder.state(path);
    }
    let simulator = Arc::new(builder.try_build()?);
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
        entries: vec![
            ("username", Some("root@pam".into())),
            ("password", Some(password)),
            ("fingerprint", Some(fingerprint)),
        ],
        insecure: false,
        nodes: Vec::new(),
    };
    let state = state.map(|path| {
        let (simulator, at) = (simulator.clone(), path.clone());
        let keeper = tokio::spawn(async move {
            loop {
                tokio::time::sleep(SAVE_EVERY).await;
                save(&simulator, &at);
            }
        });
        (path, keeper.abort_handle())
    });
    apply::provider(client, PROVIDER, &url, credentials).await?;
    apply::documents(client, MACHINES)
        .await
        .context("cannot apply the example")?;
    Ok(Simulated {
        _server: server,
        simulator,
        state,
    })
}
