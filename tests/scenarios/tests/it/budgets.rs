//! What things cost, in requests to Proxmox VE.

use std::time::Duration;

use api::vm::{Provider, VirtualMachine};
use scenarios::Bed;
use serde_json::json;

use crate::{manifest, prepared};

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
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_secs(30)).await;
    let counts = bed.pve().control().counts();
    // The watcher looks at the cluster whether or not anything is made.
    let own: u64 = counts
        .iter()
        .filter(|(route, _)| *route != "GET /cluster/resources")
        .map(|(_, n)| n)
        .sum();
    assert!(own <= 16, "{own} requests: {counts:#?}");
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
async fn deleting_a_machine_that_is_off_costs_six_requests_at_most() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.change::<VirtualMachine>("web-server", json!({ "powerState": "OffHard" }))
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(2)).await;
    bed.pve().control().reset_counts();
    bed.delete::<VirtualMachine>("web-server").await;
    let counts = bed.pve().control().counts();
    let own: u64 = counts
        .iter()
        .filter(|(route, _)| *route != "GET /cluster/resources")
        .map(|(_, n)| n)
        .sum();
    assert!(own <= 6, "{own} requests: {counts:#?}");
}
