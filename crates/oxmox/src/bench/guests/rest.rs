//! What machines cost while nothing happens.
//!
//! Memory cannot be measured in a process that also holds the simulator and the API server, so here everything is as in a cluster:
//! Proxmox VE, the API server and the operator are processes of their own, on real time. The machines exist already and are
//! adopted, which makes ten thousand of them a matter of minutes.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::super::sheet::{Column, Sheet, number};
use super::super::stopwatch::processor_time;
use super::count;
use crate::output;
use crate::up::apply;

const COLUMNS: &[Column] = &[
    Column("machines", "Machines", 0),
    Column("requests_per_second", "PVE requests/s", 2),
    Column("operator_memory_mib", "Operator memory (MiB)", 0),
    Column("operator_cpu_percent", "Operator CPU (%)", 2),
    Column("api_server_memory_mib", "API server memory (MiB)", 0),
];

/// How long things are left alone before and while they are measured.
const SETTLE: Duration = Duration::from_secs(30);

/// How long ten thousand machines may take to be known.
const PATIENCE: Duration = Duration::from_hours(1);

pub(super) fn sheet() -> Sheet {
    Sheet::new(
        "at_rest",
        "Machines at rest: operator, API server and Proxmox VE as processes of their own",
        COLUMNS,
    )
}

pub(super) async fn measure(machines: u32, span: Duration, sheet: &mut Sheet) -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let world = dir.path().join("world.yaml");
    std::fs::write(&world, world_of(machines)).context("cannot write the world")?;
    let pve = Part::start(
        &["sim", "--listen=127.0.0.1:0", "--latency=none", "--world"],
        &[&world],
        " at https://",
    )
    .await?;
    let data = dir.path().join("data");
    let api = Part::start(
        &["up", "--api-only", "--listen=127.0.0.1:0", "--data-dir"],
        &[&data],
        "Try next",
    )
    .await?;
    let kubeconfig = data.join("kubeconfig");
    let client = client(&kubeconfig).await?;
    objects(&client, &format!("https://{}", pve.said), machines).await?;
    output::say(format_args!(
        "{machines} machines: waiting until all are known"
    ));
    let operator = Part::start_with(
        &["operator", "--no-leader-election", "--listen=127.0.0.1:0"],
        &[],
        "health and metrics",
        Some(&kubeconfig),
    )
    .await?;
    super::burst::all_ready(&client, machines as usize, PATIENCE).await?;
    tokio::time::sleep(SETTLE).await;
    let (requests, busy) = (total(&pve.said).await?, operator.processor_time()?);
    tokio::time::sleep(span).await;
    let (requests, busy) = (
        total(&pve.said).await? - requests,
        operator.processor_time()?.saturating_sub(busy),
    );
    sheet.row([
        number(f64::from(machines)),
        number(count(requests) / span.as_secs_f64()),
        number(operator.memory()?),
        number(busy.as_secs_f64() / span.as_secs_f64() * 100.0),
        number(api.memory()?),
    ]);
    Ok(())
}

/// The default nodes and storages, with so many running guests.
fn world_of(machines: u32) -> String {
    let mut yaml = "clusters:\n  - name: bench\n    guests:\n".to_owned();
    for number in 0..machines {
        let (vmid, node) = (number + 100, number % 3 + 1);
        let _ = writeln!(
            yaml,
            "      - {{ vmid: {vmid}, node: pve{node}, storage: ceph, disk-gib: 20, running: true, options: {{ name: m-{number}, \
             cores: \"2\", memory: \"2048\", net0: \"virtio,bridge=vmbr0\" }} }}"
        );
    }
    yaml
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).context("cannot read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

async fn objects(client: &Client, url: &str, machines: u32) -> Result<()> {
    let credentials = apply::Credentials {
        entries: vec![
            ("username", Some("root@pam".into())),
            ("password", Some("oxmox".into())),
        ],
        insecure: true,
        nodes: Vec::new(),
    };
    apply::provider(client, "bench", url, credentials).await?;
    futures::stream::iter(0..machines)
        .map(|number| apply::object(client, adopted(number)))
        .buffer_unordered(16)
        .try_collect()
        .await
}

fn adopted(number: u32) -> Value {
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": {"name": format!("m-{number}")},
        "spec": {
            "providerRef": {"name": "bench"}, "adopt": {"vmid": number + 100},
            "managementPolicy": "Observe", "readiness": "Running", "powerState": "On",
        },
    })
}

/// Requests that the simulated Proxmox VE has answered.
async fn total(address: &str) -> Result<u64> {
    let mut config = Config::new(format!("https://{address}").parse()?);
    config.accept_invalid_certs = true;
    let client = Client::try_from(config)?;
    let request = axum::http::Request::get("/sim/counts").body(Vec::new())?;
    let answer: Value = client
        .request(request)
        .await
        .context("the simulator did not answer")?;
    let counts = answer.get("counts").unwrap_or(&answer).as_object().cloned();
    let counts = counts.context("the simulator's counts cannot be read")?;
    Ok(counts.values().filter_map(Value::as_u64).sum())
}

/// A part of the system in a process of its own; dropping it ends it.
struct Part {
    child: Child,
    /// What followed the words that said it was ready.
    said: String,
}

impl Part {
    async fn start(args: &[&str], paths: &[&Path], ready: &str) -> Result<Self> {
        Self::start_with(args, paths, ready, None).await
    }

    async fn start_with(
        args: &[&str],
        paths: &[&Path],
        ready: &str,
        kubeconfig: Option<&Path>,
    ) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command
            .args(args)
            .args(paths)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // A real Proxmox VE that somebody's shell names is none of this.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PVE_") {
                command.env_remove(name);
            }
        }
        if let Some(kubeconfig) = kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        let mut child = command
            .spawn()
            .context("cannot start a part of the system")?;
        let stderr = child.stderr.take().context("stderr is piped")?;
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some((_, rest)) = line.split_once(ready) {
                // What it says from here on nobody reads; it must not be held up by that.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Ok(Self {
                    child,
                    said: rest.to_owned(),
                });
            }
        }
        bail!("`oxmox {}` ended before it was ready", args.join(" "))
    }

    fn proc(&self, file: &str) -> Result<String> {
        let pid = self.child.id().context("a part of the system has ended")?;
        std::fs::read_to_string(format!("/proc/{pid}/{file}"))
            .with_context(|| format!("cannot read /proc/{pid}/{file}"))
    }

    /// Resident memory in MiB.
    fn memory(&self) -> Result<f64> {
        let status = self.proc("status")?;
        let kib: Option<f64> = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
        kib.map(|kib| kib / 1024.0).context("cannot read VmRSS")
    }

    /// Time its threads have run.
    fn processor_time(&self) -> Result<Duration> {
        let pid = self.child.id().context("a part of the system has ended")?;
        processor_time(&pid.to_string())
    }
}
