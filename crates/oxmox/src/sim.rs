//! `oxmox sim`: a simulated Proxmox VE on this machine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use pve_sim::{Clock, Latency, Release, Server, Simulator, Tls, WorldFile};

use crate::output;

/// How often the state is written while the simulator runs.
const SAVE_EVERY: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  A Proxmox VE 8.4 on a free port, with its state kept between runs:
    oxmox sim --pve 8.4 --listen 127.0.0.1:0 --state lab.json

  The smallest world of your own, in a file given by --world:
    clusters:
      - name: home
        nodes: [{ name: pve1, cpus: 8, memory-gib: 32 }]
        users: [{ id: op@pve, tokens: [{ id: op, secret: 11111111-2222-3333-4444-555555555555, privsep: false }] }]
        acl: [{ path: /, user: op@pve, role: Administrator }]

  Lose the answer of the next clone, and cut the power of a node:
    curl -k -X POST https://127.0.0.1:8006/sim/faults \\
      -d '{\"route\":\"POST /nodes/{node}/qemu/{vmid}/clone\",\"action\":\"drop-answer\",\"times\":1}'
    curl -k -X POST https://127.0.0.1:8006/sim/nodes/pve2/kill

docs/simulator.md has the whole form of a world file and every control.";

/// Run a simulated Proxmox VE that speaks the real one's API.
///
/// The default world has three nodes (pve1 to pve3), six storages, bridges, a virtual network, templates to clone and one
/// machine that is not yours. Every cluster of the world gets a port: the first the one asked for, the others the following ones.
///
/// Beside PVE's API under /api2 there is a control surface under /sim: faults, dead nodes, misbehaving guests, request counts.
#[derive(Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Sim {
    /// Address to listen on; port 0 chooses a free one.
    #[arg(long, default_value = "127.0.0.1:8006", value_name = "ADDR")]
    listen: SocketAddr,
    /// Which Proxmox VE to be: 9.2 or 8.4.
    #[arg(long, default_value = "9.2", value_name = "RELEASE")]
    pve: Release,
    /// Password of root@pam.
    #[arg(
        long,
        env = "OXMOX_SIM_ROOT_PASSWORD",
        default_value = "oxmox",
        value_name = "PASSWORD"
    )]
    root_password: String,
    /// World to simulate instead of the default one (YAML).
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// How long things take: `real`, `none`, or a file with a model of your own (YAML).
    #[arg(long, default_value = "real", value_name = "real|none|FILE")]
    latency: String,
    /// Where randomness comes from: the same seed and the same calls give the same answers.
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Serve HTTP instead of HTTPS.
    #[arg(long)]
    plain_http: bool,
    /// Keep the state in this file and go on from it at the next start.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Answer failed logins at once instead of after PVE's three seconds.
    #[arg(long)]
    fast_refusals: bool,
}

impl Sim {
    /// Serves until interrupted.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        runtime.block_on(self.serve())?;
        // Whatever still runs belongs to a world that is about to be gone.
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }

    fn simulator(&self) -> Result<Simulator> {
        let latency = latency(&self.latency)?;
        let mut builder = Simulator::builder()
            .release(self.pve)
            .seed(self.seed)
            .root_password(self.root_password.clone())
            .latency(latency)
            .slow_refusals(!self.fast_refusals)
            .clock(Clock::of_this_machine());
        if let Some(path) = &self.world {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the world file {}", path.display()))?;
            let world = WorldFile::parse(&text)
                .with_context(|| format!("cannot use the world file {}", path.display()))?;
            builder = builder.world(world);
        }
        if let Some(path) = &self.state {
            builder = builder.state(path);
        }
        Ok(builder.try_build()?)
    }

    async fn serve(self) -> Result<()> {
        let simulator = self.simulator()?;
        let tls = if self.plain_http {
            None
        } else {
            let names = vec!["localhost".to_owned(), self.listen.ip().to_string()];
            Some(Tls::self_signed(&names).context("cannot set up TLS")?)
        };
        let scheme = if self.plain_http { "http" } else { "https" };
        let mut servers = Vec::new();
        for (number, cluster) in (0_u16..).zip(simulator.clusters()) {
            let mut address = self.listen;
            if address.port() != 0 {
                let port = address.port().checked_add(number);
                address.set_port(port.context("no port is left for all clusters of the world")?);
            }
            let endpoint = cluster.endpoint("");
            let server = Server::start(endpoint, address, tls.clone()).await?;
            let url = format!("{scheme}://{}", server.address());
            output::data(&format!("{url}\n"))?;
            output::say(format_args!(
                "Proxmox VE {} simulated: cluster {} ({}) at {url}",
                self.pve,
                cluster.name(),
                cluster.nodes().join(", "),
            ));
            servers.push((server, url));
        }
        if let Some(tls) = &tls {
            output::say(format_args!("SHA-256 fingerprint: {}", tls.fingerprint()));
        }
        if let Some((_, url)) = servers.first() {
            output::say("Try it:");
            output::say(format_args!(
                "  curl -k {url}/api2/json/access/ticket -d username=root@pam --data-urlencode password=…"
            ));
            output::say(format_args!("  curl -k {url}/sim/counts"));
        }
        self.until_stopped(&simulator).await
    }

    /// Waits for a signal, writing the state now and then and at the end.
    async fn until_stopped(&self, simulator: &Simulator) -> Result<()> {
        let mut stop = std::pin::pin!(stop_signal());
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = tokio::time::sleep(SAVE_EVERY) => self.save(simulator)?,
            }
        }
        self.save(simulator)
    }

    fn save(&self, simulator: &Simulator) -> Result<()> {
        match &self.state {
            Some(path) => Ok(simulator.save(path)?),
            None => Ok(()),
        }
    }
}

/// The latency model of that name, or in that file.
pub(crate) fn latency(name: &str) -> Result<Latency> {
    match name {
        "real" => Ok(Latency::real()),
        "none" => Ok(Latency::none()),
        file => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the latency model {file}"))?;
            Latency::parse(&text).with_context(|| format!("cannot use the latency model {file}"))
        }
    }
}

async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        // Without a handler the signal ends the process by itself.
        Err(_) => std::future::pending().await,
    }
}
