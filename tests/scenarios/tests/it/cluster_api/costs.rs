//! What machines cost: requests to Proxmox VE, and writes to the Kubernetes API.

use std::time::Duration;

use api::infrastructure::v1beta1::ProxmoxMachine;
use scenarios::{Bed, Wish};
use serde_json::json;

use super::{bed, two};

/// Requests to all Proxmox VE clusters, but for the watcher's own look at each, which costs the same without machines.
fn requests(bed: &Bed) -> u64 {
    (0..bed.cluster_count())
        .flat_map(|number| bed.cluster(number).control().counts())
        .filter(|(route, _)| route != "GET /cluster/resources")
        .map(|(_, count)| count)
        .sum()
}

fn forget(bed: &Bed) {
    for number in 0..bed.cluster_count() {
        bed.cluster(number).control().reset_counts();
    }
    bed.line().forget();
}

#[tokio::test(start_paused = true)]
async fn one_machine_costs_sixteen_requests_and_twelve_writes_at_most() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.sleep(Duration::from_mins(1)).await;
    forget(&bed);
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
    bed.join("worker-1").await;
    bed.sleep(Duration::from_mins(2)).await;
    let counts = bed.pve().control().counts();
    assert!(
        requests(&bed) <= 16,
        "{} requests: {counts:#?}",
        requests(&bed)
    );
    let writes = bed.line().kubernetes_writes();
    assert!(writes.len() <= 12, "{} writes: {writes:#?}", writes.len());
}

#[tokio::test(start_paused = true)]
async fn each_of_a_hundred_costs_ten_requests_and_twelve_writes_at_most() {
    let (bed, _player) = bed(2).await;
    bed.make_cluster(&two("MultiInstance")).await;
    bed.sleep(Duration::from_mins(1)).await;
    forget(&bed);
    for number in 0..100 {
        bed.make_machine(
            Wish::new(&format!("w-{number}")).with(&json!({"cores": 1, "memory": 1024})),
        )
        .await;
    }
    for number in 0..100 {
        bed.until_provisioned(&format!("w-{number}")).await;
        bed.join(&format!("w-{number}")).await;
    }
    bed.sleep(Duration::from_mins(3)).await;
    let made = requests(&bed);
    assert!(
        made <= 10 * 100,
        "{made} requests: {:#?}",
        bed.pve().control().counts()
    );
    let writes = bed.line().kubernetes_writes().len();
    assert!(writes <= 12 * 100, "{writes} writes");

    bed.sleep(Duration::from_mins(5)).await;
    forget(&bed);
    for number in 0..100 {
        let now = kube::api::DeleteParams::default();
        bed.api::<ProxmoxMachine>()
            .delete(&format!("w-{number}"), &now)
            .await
            .unwrap();
    }
    for number in 0..100 {
        bed.until_gone::<ProxmoxMachine>(&format!("w-{number}"))
            .await;
    }
    let removed = requests(&bed);
    assert!(
        removed <= 4 * 100,
        "{removed} requests: {:#?}",
        bed.pve().control().counts()
    );
}

#[tokio::test(start_paused = true)]
async fn removing_one_machine_costs_six_requests_at_most() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
    bed.join("worker-1").await;
    bed.sleep(Duration::from_mins(5)).await;
    forget(&bed);
    bed.delete::<ProxmoxMachine>("worker-1").await;
    assert!(
        requests(&bed) <= 6,
        "{}: {:#?}",
        requests(&bed),
        bed.pve().control().counts()
    );
}
