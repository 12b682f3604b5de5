//! What things cost, in requests to Proxmox VE.

use std::time::Duration;

use api::vm::{Provider, VirtualMachine};
use scenarios::Bed;
use serde_json::json;
use tokio::time::Instant;

use crate::{manifest, prepared, with_machine};

/// What is asked at a rhythm of its own, whatever is done.
const RHYTHM: [&str; 5] = [
    "GET /version",
    "GET /cluster/resources",
    "GET /cluster/status",
    "GET /access/permissions",
    "GET /nodes/{node}/network",
];

/// Requests since the counts were reset, without what the cluster costs when nothing is done on it.
fn own(bed: &Bed) -> u64 {
    let counts = bed.pve().control().counts();
    let own = counts
        .iter()
        .filter(|(route, _)| !RHYTHM.contains(&route.as_str()));
    own.map(|(_, n)| n).sum()
}

/// The same of a machine that existed before, whose configuration is read once a minute whatever is done.
fn own_since(bed: &Bed, start: Instant) -> u64 {
    let read = bed.count("GET /nodes/{node}/qemu/{vmid}/config");
    own(bed) - read.min(start.elapsed().as_secs() / 60 + 1)
}

/// Requests of the cluster as a whole while nothing happens: the watcher's own rhythm.
async fn idle_rate(bed: &Bed) -> f64 {
    bed.pve().control().reset_counts();
    bed.sleep(Duration::from_mins(10)).await;
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let total = bed.pve().control().total() as f64;
    total / 600.0
}

#[tokio::test(start_paused = true)]
async fn one_machine_with_first_boot_data_costs_sixteen_requests_at_most() {
    let bed = prepared().await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    bed.sleep(Duration::from_mins(1)).await;
    bed.pve().control().reset_counts();
    bed.apply(manifest!("machine")).await;
    let machine: VirtualMachine = bed.until_ready("web-server").await;
    assert_ne!(machine.status.unwrap().ips, Vec::<String>::new());
    let removed = "DELETE /nodes/{node}/storage/{storage}/content/{volume*}";
    while bed.count(removed) == 0 {
        bed.sleep(Duration::from_secs(1)).await;
    }
    let (all, counts) = (bed.pve().control().total(), bed.pve().control().counts());
    assert!(
        all <= 16,
        "{all} requests with the looks at everything: {counts:#?}"
    );
    bed.sleep(Duration::from_secs(30)).await;
    let (spent, counts) = (own(&bed), bed.pve().control().counts());
    assert!(spent <= 16, "{spent} requests: {counts:#?}");
    assert_eq!(bed.first_boot_images(0).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_one_request_a_second_at_most_however_many_machines() {
    let bed = prepared().await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    let empty = idle_rate(&bed).await;
    for number in 0..8 {
        let mut document = scenarios::documents(manifest!("machine")).remove(0);
        document["metadata"]["name"] = json!(format!("web-{number}"));
        bed.try_apply(&document).await.unwrap();
    }
    for number in 0..8 {
        bed.until_ready::<VirtualMachine>(&format!("web-{number}"))
            .await;
    }
    bed.sleep(Duration::from_mins(5)).await;
    let full = idle_rate(&bed).await;
    assert!(full <= 1.0, "{full} requests a second");
    assert!(
        full <= empty + 0.05,
        "{empty} requests a second without machines, {full} with eight"
    );
}

#[tokio::test(start_paused = true)]
async fn deleting_a_running_machine_costs_six_requests_at_most() {
    let bed = with_machine().await;
    bed.sleep(Duration::from_mins(2)).await;
    assert!(bed.guest("web-server").await.running);
    bed.pve().control().reset_counts();
    bed.delete::<VirtualMachine>("web-server").await;
    let counts = bed.pve().control().counts();
    assert!(own(&bed) <= 6, "{} requests: {counts:#?}", own(&bed));
}

#[tokio::test(start_paused = true)]
async fn switching_a_machine_off_costs_four_requests_at_most() {
    let bed = with_machine().await;
    bed.sleep(Duration::from_mins(30)).await;
    bed.pve().control().reset_counts();
    let start = Instant::now();
    bed.change::<VirtualMachine>("web-server", json!({ "powerState": "Off" }))
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let (spent, counts) = (own_since(&bed, start), bed.pve().control().counts());
    assert!(spent <= 4, "{spent} requests: {counts:#?}");
}

#[tokio::test(start_paused = true)]
async fn switching_a_machine_on_costs_four_requests_at_most() {
    let bed = with_machine().await;
    bed.sleep(Duration::from_mins(30)).await;
    bed.change::<VirtualMachine>("web-server", json!({ "powerState": "Off" }))
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(30)).await;
    bed.pve().control().reset_counts();
    let start = Instant::now();
    bed.change::<VirtualMachine>("web-server", json!({ "powerState": "On" }))
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let (spent, counts) = (own_since(&bed, start), bed.pve().control().counts());
    assert!(spent <= 4, "{spent} requests: {counts:#?}");
    assert!(bed.guest("web-server").await.running);
}
