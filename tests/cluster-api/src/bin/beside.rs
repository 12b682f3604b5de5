//! The same work by two providers, under the same Cluster API, on Proxmox VE clusters of the same kind and pace.
//!
//! `beside capmox 10` prints a table. Neither provider is helped: each has a management cluster of its own, one after the other,
//! the manifests are those that both understand, and a machine counts when its Node has joined. Requests are counted by the simulated
//! Proxmox VE, writes by kube-apiserver.

use std::io::Write as _;
use std::time::Duration;

use cluster_api::{Bed, Datacenter, Plan, alone, kinds};
use pve_sim::Latency;
use serde_json::json;
use testbed::Provider;
use tokio::time::{Instant, sleep};

/// How long everything is left alone to see what it does then.
const REST: Duration = Duration::from_secs(30);

/// What one provider needed.
#[derive(Default)]
struct Figures {
    made_in: Duration,
    made_with: u64,
    writes: u64,
    at_rest: u64,
    removed_in: Duration,
    removed_with: u64,
    memory: u64,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let peer = arguments.next().unwrap_or_else(|| "capmox".to_owned());
    let machines: usize = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let theirs = measure(&peer, machines);
    let ours = measure("oxmox", machines);
    let Some((theirs, ours)) = theirs.zip(ours) else {
        return;
    };
    let _ = std::io::stdout().write_all(table(&peer, machines, &theirs, &ours).as_bytes());
}

fn table(peer: &str, machines: usize, theirs: &Figures, ours: &Figures) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = |number: u64| number as f64 / machines as f64;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let second = |number: u64| number as f64 / REST.as_secs_f64();
    let row = |what: &str, of: &dyn Fn(&Figures) -> String| {
        format!("| {what} | {} | {} |\n", of(theirs), of(ours))
    };
    let mut text = format!("| {machines} machines | {peer} | oxmox |\n|---|---|---|\n");
    text += &row("until all nodes have joined", &|f| {
        format!("{:.1} s", f.made_in.as_secs_f64())
    });
    text += &row("Proxmox VE requests per machine made", &|f| {
        format!("{:.1}", each(f.made_with))
    });
    text += &row(
        "writes to machines, clusters and claims per machine made",
        &|f| format!("{:.1}", each(f.writes)),
    );
    text += &row("Proxmox VE requests per second at rest", &|f| {
        format!("{:.2}", second(f.at_rest))
    });
    text += &row("until all are gone", &|f| {
        format!("{:.1} s", f.removed_in.as_secs_f64())
    });
    text += &row("Proxmox VE requests per machine removed", &|f| {
        format!("{:.1}", each(f.removed_with))
    });
    text += &row("memory of the provider", &|f| {
        format!("{} MiB", f.memory >> 20)
    });
    text
}

fn measure(provider: &str, machines: usize) -> Option<Figures> {
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
        let measured = life(bed, &datacenter, &plan, machines).await;
        figures.replace(Some(Figures {
            memory: bed.memory(provider),
            ..measured
        }));
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
async fn life(bed: &Bed, datacenter: &Datacenter, plan: &Plan, machines: usize) -> Figures {
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
        made_in,
        made_with: made_with.max(settled.saturating_sub(at_rest)),
        writes,
        at_rest,
        removed_in: start.elapsed(),
        removed_with: control.total(),
        memory: 0,
    }
}
