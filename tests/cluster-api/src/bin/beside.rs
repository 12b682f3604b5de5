//! The same work by two providers, under the same Cluster API, on Proxmox VE clusters of the same kind and pace.
//!
//! `beside capmox 10,100 figures.json` prints a table and writes the figures. Neither provider is helped: each has a management
//! cluster of its own, one after the other, the manifests are those that both understand, and a machine counts when its Node has
//! joined. Requests are counted by the simulated Proxmox VE, writes by kube-apiserver.

use std::io::Write as _;
use std::time::Duration;

use cluster_api::{Bed, Datacenter, Plan, alone, kinds};
use pve_sim::Latency;
use serde_json::{Value, json};
use testbed::Provider;
use tokio::time::{Instant, sleep};

/// How long everything is left alone to see what it does then.
const REST: Duration = Duration::from_secs(30);

/// What one provider needed for so many machines.
struct Figures {
    machines: usize,
    made_in: Duration,
    made_with: u64,
    writes: u64,
    at_rest: u64,
    removed_in: Duration,
    removed_with: u64,
    /// With all machines there.
    memory: u64,
}

/// A row of the table: its name in JSON, what it shows, with how many digits, and of what.
type Row = (&'static str, &'static str, usize, fn(&Figures) -> f64);

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
const ROWS: &[Row] = &[
    ("made_s", "until all nodes have joined (s)", 1, |f| {
        f.made_in.as_secs_f64()
    }),
    (
        "requests_made",
        "Proxmox VE requests per machine made",
        1,
        |f| f.made_with as f64 / f.machines as f64,
    ),
    (
        "writes_made",
        "writes to machines, clusters and claims per machine made, Cluster API's own among them",
        1,
        |f| f.writes as f64 / f.machines as f64,
    ),
    (
        "idle_requests_per_second",
        "Proxmox VE requests per second at rest",
        2,
        |f| f.at_rest as f64 / REST.as_secs_f64(),
    ),
    ("removed_s", "until all are gone (s)", 1, |f| {
        f.removed_in.as_secs_f64()
    }),
    (
        "requests_removed",
        "Proxmox VE requests per machine removed",
        1,
        |f| f.removed_with as f64 / f.machines as f64,
    ),
    ("memory_mib", "memory of the provider (MiB)", 0, |f| {
        f.memory as f64 / 1024.0 / 1024.0
    }),
];

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let peer = arguments.next().unwrap_or_else(|| "capmox".to_owned());
    let sizes = arguments.next().unwrap_or_else(|| "10,100".to_owned());
    let sizes: Vec<usize> = sizes
        .split(',')
        .filter_map(|size| size.parse().ok())
        .collect();
    let theirs = measure(&peer, &sizes);
    let ours = measure("oxmox", &sizes);
    let Some((theirs, ours)) = theirs.zip(ours) else {
        return Ok(());
    };
    std::io::stdout().write_all(table(&peer, &theirs, &ours).as_bytes())?;
    if let Some(file) = arguments.next() {
        let figures = json!({peer: in_json(&theirs), "oxmox": in_json(&ours)});
        std::fs::write(file, format!("{figures:#}\n"))?;
    }
    Ok(())
}

fn table(peer: &str, theirs: &[Figures], ours: &[Figures]) -> String {
    let columns: Vec<(String, &Figures)> = theirs
        .iter()
        .zip(ours)
        .flat_map(|(theirs, ours)| {
            let machines = theirs.machines;
            [
                (format!("{machines}: {peer}"), theirs),
                (format!("{machines}: oxmox"), ours),
            ]
        })
        .collect();
    let line = |first: &str, rest: Vec<String>| format!("| {first} | {} |\n", rest.join(" | "));
    let names = columns.iter().map(|(name, _)| name.clone()).collect();
    let mut text = line("machines", names);
    text += "|---";
    text += &"|---".repeat(columns.len());
    text += "|\n";
    for (_, what, digits, of) in ROWS {
        let figures = columns.iter().map(|(_, figures)| of(figures));
        let shown = figures.map(|figure| format!("{figure:.digits$}"));
        text += &line(what, shown.collect());
    }
    text
}

fn in_json(all: &[Figures]) -> Value {
    let one = |figures: &Figures| {
        let mut fields = json!({"machines": figures.machines});
        for (name, _, _, of) in ROWS {
            fields[*name] = json!(of(figures));
        }
        fields
    };
    all.iter().map(one).collect()
}

/// Lets a provider make and remove machines, so many at once and then so many.
fn measure(provider: &str, sizes: &[usize]) -> Option<Vec<Figures>> {
    let figures = std::cell::RefCell::new(None);
    alone("beside", async |bed| {
        if provider == "oxmox" {
            bed.install_oxmox().await;
            bed.start_operator().await;
        } else {
            bed.start_provider(Provider::CAPMOX).await;
        }
        let datacenter = bed.datacenter_with(&["pve"], Latency::real()).await;
        let plan = plan(bed, &datacenter).await;
        bed.create(&plan).await;
        bed.until_running(&plan.name, 1).await;
        let mut measured = Vec::new();
        for machines in sizes {
            measured.push(life(bed, &datacenter, &plan, provider, *machines).await);
        }
        figures.replace(Some(measured));
    });
    figures.into_inner()
}

async fn plan(bed: &Bed, datacenter: &Datacenter) -> Plan {
    let mut plan = bed.plan("beside", datacenter).await;
    plan.version = "v1alpha2";
    plan.workers = 0;
    plan.infrastructure = json!({
        "credentialsRef": {"name": "pve-0"},
        "allowedNodes": ["pve1", "pve2", "pve3"],
        // The simulated nodes are small, and this is not about finding room.
        "schedulerHints": {"memoryAdjustment": 0},
    });
    plan.machine = json!({
        "sourceNode": "pve1", "templateID": 9000, "full": true, "storage": "ceph",
        "numSockets": 1, "numCores": 2, "memoryMiB": 2048,
        "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
        "network": {"networkDevices": [{"name": "net0", "bridge": "vmbr0", "model": "virtio", "defaultIPv4": true}]},
        "checks": {"skipCloudInitStatus": true},
    });
    plan
}

/// Grows by so many machines, rests, and shrinks again.
async fn life(
    bed: &Bed,
    datacenter: &Datacenter,
    plan: &Plan,
    provider: &str,
    machines: usize,
) -> Figures {
    let control = datacenter.cluster(0).control();
    sleep(REST).await;
    control.reset_counts();
    let (start, writes) = (Instant::now(), bed.writes().await);
    bed.scale(plan, machines).await;
    bed.until_running(&plan.name, machines + 1).await;
    let (made_in, made_with) = (start.elapsed(), control.total());
    let writes = bed.writes().await - writes;
    // What is left to do after joining belongs to making, not to resting.
    sleep(REST).await;
    let settled = control.total();
    sleep(REST).await;
    let at_rest = control.total() - settled;
    let memory = bed.memory(provider);

    control.reset_counts();
    let start = Instant::now();
    bed.scale(plan, 0).await;
    bed.until(&plan.name, "empty", async || {
        // In the version that both serve.
        let kind = kinds::PROXMOX_MACHINE.at("v1alpha2");
        let left = bed.list(&plan.name, kind).await.len();
        (left == 1).then_some(())
    })
    .await;
    Figures {
        machines,
        made_in,
        made_with: made_with.max(settled.saturating_sub(at_rest)),
        writes,
        at_rest,
        removed_in: start.elapsed(),
        removed_with: control.total(),
        memory,
    }
}
