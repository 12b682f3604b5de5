//! Many machines at once, against the best that this Proxmox VE allows.
//!
//! The ideal is found by experiment: a driver without controllers or API server makes the same guests by the same calls. It knows
//! at once when a task has ended (the simulator tells it), needs no request to notice anything, and is tried at several widths,
//! because too many clones at once fail on Proxmox VE's storage lock. The fastest width is the ideal schedule.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::vm::{VirtualMachine, condition};
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use pve::api::qemu::CloneGuest;
use pve::{ConfigChange, GuestConfig, NodeName, Vmid};
use pve_sim::Cluster;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::super::sheet::{Column, Sheet, number};
use super::super::stopwatch::processor_time;
use super::super::system::{Setting, System, TEMPLATE};
use super::{count, machine, system};

const COLUMNS: &[Column] = &[
    Column("machines", "Machines", 0),
    Column("makespan_s", "Makespan (s)", 1),
    Column("ideal_s", "Ideal (s)", 1),
    Column("ratio", "Makespan ÷ ideal", 2),
    Column("requests_each", "PVE requests each", 1),
    Column("processor_ms_each", "Processor each (ms)", 1),
];

const PATIENCE: Duration = Duration::from_hours(6);

/// How many clones at once the ideal driver tries.
const WIDTHS: [usize; 5] = [4, 8, 16, 32, 48];

pub(super) fn sheet() -> Sheet {
    Sheet::new(
        "at_once",
        "Machines made at once on three nodes, from nothing to running",
        COLUMNS,
    )
}

pub(super) async fn measure(setting: &Setting, machines: u32, sheet: &mut Sheet) -> Result<()> {
    let bench = system(setting).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (busy, begun, before) = (processor_time("self")?, Instant::now(), bench.requests());
    for number in 0..machines {
        bench.apply(machine(&format!("m-{number}"), false)).await?;
    }
    all_ready(&bench.client, machines as usize, PATIENCE).await?;
    let makespan = begun.elapsed();
    // API server, controllers, engine and simulator together.
    let busy = processor_time("self")?.saturating_sub(busy);
    let requests = bench.requests() - before;
    drop(bench);
    let ideal = ideal(setting, machines).await?;
    sheet.row([
        number(f64::from(machines)),
        number(makespan.as_secs_f64()),
        number(ideal.as_secs_f64()),
        number(makespan.as_secs_f64() / ideal.as_secs_f64()),
        number(count(requests) / f64::from(machines)),
        number(busy.as_secs_f64() * 1000.0 / f64::from(machines)),
    ]);
    Ok(())
}

/// Waits until so many machines are Ready.
pub(super) async fn all_ready(
    client: &kube::Client,
    expected: usize,
    patience: Duration,
) -> Result<()> {
    let machines: Api<VirtualMachine> = Api::default_namespaced(client.clone());
    let changes = watcher::watcher(machines, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let mut changes = std::pin::pin!(changes);
    let mut ready = BTreeSet::new();
    let all = async {
        while let Some(machine) = changes.try_next().await? {
            if is_ready(&machine) {
                ready.insert(machine.name_any());
            }
            if ready.len() == expected {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    let in_time = tokio::time::timeout(patience, all).await;
    match in_time {
        Ok(all) => all,
        Err(_) => bail!(
            "{} of {expected} machines are ready after {patience:?}",
            ready.len()
        ),
    }
}

/// Whether a machine is Ready for its present spec.
pub(super) fn is_ready(machine: &VirtualMachine) -> bool {
    machine.status.as_ref().is_some_and(|status| {
        status.observed_generation == machine.metadata.generation
            && condition(&status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
    })
}

async fn ideal(setting: &Setting, machines: u32) -> Result<Duration> {
    let mut best: Option<Duration> = None;
    for width in WIDTHS {
        let bench = System::start(setting, api::crds()).await?;
        let driver = Arc::new(Driver {
            root: bench.root()?,
            cluster: bench.cluster.clone(),
            clones: Semaphore::new(width),
        });
        let begun = Instant::now();
        try_join_all((0..machines).map(|number| Driver::guest(driver.clone(), number))).await?;
        let taken = begun.elapsed();
        best = Some(best.map_or(taken, |best| best.min(taken)));
    }
    best.context("no width was tried")
}

/// Makes guests by the shortest way, with nobody to ask and nothing to remember.
struct Driver {
    root: pve::Client,
    cluster: Cluster,
    clones: Semaphore,
}

impl Driver {
    async fn guest(self: Arc<Self>, number: u32) -> Result<()> {
        let vmid = Vmid::new(100 + number)?;
        let template = self
            .root
            .node(&NodeName::new("pve1")?)
            .qemu(Vmid::new(TEMPLATE)?);
        let node = NodeName::new(format!("pve{}", number % 3 + 1))?;
        let mut copy = CloneGuest::new(vmid);
        copy.name = Some(format!("m-{number}"));
        copy.target = Some(node.clone());
        {
            let _place = self.clones.acquire().await?;
            while self.end(&template.clone_to(&copy).await?).await? != "OK" {}
        }
        let guest = self.root.node(&node).qemu(vmid);
        let config = GuestConfig::new()
            .with("cores", 4)
            .with("vcpus", 1)
            .with("net0", "virtio,bridge=vmbr0");
        guest.configure(&ConfigChange::set(config)).await?;
        // The start waits for the growing disk on Proxmox VE; nobody need wait here.
        let grown = guest.resize("scsi0", "20G", None).await?;
        let exit = self.end(&guest.start().await?).await?;
        if let Some(upid) = grown {
            self.end(&upid).await?;
        }
        if exit != "OK" {
            bail!("guest {vmid} did not start: {exit}");
        }
        Ok(())
    }

    async fn end(&self, upid: &pve::Upid) -> Result<String> {
        Ok(self.cluster.wait_task(&upid.to_string().parse()?).await)
    }
}
