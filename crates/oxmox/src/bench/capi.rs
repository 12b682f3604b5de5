//! Cluster API machines over two Proxmox VE clusters: made and removed at once, and what they cost.
//!
//! Cluster API itself and the address manager are played, without delay: what is measured is the provider. A machine is made as
//! soon as its guest runs (how long its operating system boots is not ours to measure), and its cost includes the removal of
//! its bootstrap data once the node has joined.

mod ideal;
mod player;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::infrastructure::v1beta1::ProxmoxMachine;
use clap::Args;
use futures::TryStreamExt as _;
use kube::api::DeleteParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use tokio::time::{Instant, timeout_at};

use super::sheet::{Column, Sheet, number};
use super::stopwatch::Stopwatch;
use super::system::Setting;
use world::World;

/// Cluster API machines over two Proxmox VE clusters, made and removed at once.
#[derive(Args)]
pub(super) struct Capi {
    /// How many machines are made at once; may be given several times.
    #[arg(long, default_values_t = [10, 100, 1000], value_name = "N", value_delimiter = ',')]
    machines: Vec<u32>,
}

const COLUMNS: &[Column] = &[
    Column("machines", "Machines", 0),
    Column("makespan_s", "Makespan (s)", 1),
    Column("ideal_s", "Ideal (s)", 1),
    Column("ratio", "Makespan ÷ ideal", 2),
    Column("requests_created", "PVE requests per machine created", 1),
    Column("writes_created", "Kubernetes writes per machine", 1),
    Column("reads_created", "Kubernetes reads per machine", 1),
    Column("idle_requests_per_second", "Idle PVE requests/s", 2),
    Column("removal_s", "Removal (s)", 1),
    Column("requests_removed", "PVE requests per machine removed", 1),
    Column("real_ms_each", "Work of this process each (ms)", 1),
    Column("memory_mib", "Memory of this process (MiB)", 0),
];

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_hours(6);
/// How long machines are left alone while nothing is to be done.
const REST: Duration = Duration::from_mins(10);

impl Capi {
    pub(super) fn measure(&self, setting: &Setting) -> Result<Vec<Sheet>> {
        let mut sheet = Sheet::new(
            "capi",
            "Cluster API machines over two Proxmox VE clusters of three nodes",
            COLUMNS,
        );
        for machines in &self.machines {
            super::on_jumping_clock(run(setting, *machines, &mut sheet))?;
        }
        Ok(vec![sheet])
    }
}

async fn run(setting: &Setting, machines: u32, sheet: &mut Sheet) -> Result<()> {
    let world = World::start(setting).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (watch, begun) = (Stopwatch::start(), Instant::now());
    world.forget();
    for number in 0..machines {
        world.machine(&format!("m-{number}")).await?;
    }
    all(&world, machines as usize, is_provisioned).await?;
    let makespan = begun.elapsed();
    for number in 0..machines {
        world.join(&format!("m-{number}")).await?;
    }
    tokio::time::sleep(REST).await;
    let (created, writes, reads) = (world.requests(), world.writes(), world.reads());

    world.forget();
    tokio::time::sleep(REST).await;
    let idle = world.all_requests();

    world.forget();
    let begun = Instant::now();
    let api: Api<ProxmoxMachine> = Api::default_namespaced(world.client.clone());
    for number in 0..machines {
        api.delete(&format!("m-{number}"), &DeleteParams::default())
            .await?;
    }
    all(&world, 0, |_| false).await?;
    let (removal, removed) = (begun.elapsed(), world.requests());
    let (real, memory) = (watch.elapsed(), memory());
    drop(world);

    let ideal = ideal::ideal(setting, machines.div_ceil(2)).await?;
    let each = |count: u64| number(super::guests::count(count) / f64::from(machines));
    sheet.row([
        number(f64::from(machines)),
        number(makespan.as_secs_f64()),
        number(ideal.as_secs_f64()),
        number(makespan.as_secs_f64() / ideal.as_secs_f64()),
        each(created),
        each(writes),
        each(reads),
        number(super::guests::count(idle) / REST.as_secs_f64()),
        number(removal.as_secs_f64()),
        each(removed),
        number(real.as_secs_f64() * 1000.0 / f64::from(machines)),
        memory,
    ]);
    Ok(())
}

fn is_provisioned(machine: &ProxmoxMachine) -> bool {
    let status = machine.status.as_ref();
    status.and_then(|s| s.initialization.as_ref()?.provisioned) == Some(true)
}

/// Waits until so many machines are there and all of them are as they should be.
///
/// They are watched: to list a thousand again and again would cost this process more than what it measures.
async fn all(world: &World, expected: usize, is: fn(&ProxmoxMachine) -> bool) -> Result<()> {
    let api: Api<ProxmoxMachine> = Api::default_namespaced(world.client.clone());
    let mut changes = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let (mut found, mut listed) = (BTreeMap::new(), false);
    let end = Instant::now() + PATIENCE;
    loop {
        let done = found.values().filter(|done| **done).count();
        if listed && found.len() == expected && done == expected {
            return Ok(());
        }
        let Ok(change) = timeout_at(end, changes.try_next()).await else {
            bail!("{done} of {expected} machines are there after {PATIENCE:?}");
        };
        match change?.context("the watch has ended")? {
            Event::Init => (found, listed) = (BTreeMap::new(), false),
            Event::InitDone => listed = true,
            Event::InitApply(machine) | Event::Apply(machine) => {
                found.insert(machine.name_any(), is(&machine));
            }
            Event::Delete(machine) => {
                found.remove(&machine.name_any());
            }
        }
    }
}

/// What this process holds, the simulator and the API server with it.
fn memory() -> serde_json::Value {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kib.map_or(serde_json::Value::Null, |kib| number(kib / 1024.0))
}
