//! How long the snapshots of a schedule stay.

use std::time::Duration;

use api::vm::{VMSnapshot, VMSnapshotSchedule, VirtualMachine};
use scenarios::Bed;
use serde_json::json;

use crate::{manifest, prepared};

/// A bed with a machine, a schedule that is not due for long, and a snapshot of it that is to go in an hour.
async fn taken(suspend: bool) -> Bed {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let schedule = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshotSchedule",
        "metadata": { "name": "seldom" },
        "spec": {
            "vmRef": { "name": "web-server" }, "schedule": "0 0 1 1 *",
            "retention": { "maxAgeHours": 1 }, "suspend": suspend,
        },
    });
    let labels = json!({ "infra.virtrigaud.io/schedule": "seldom" });
    let snapshot = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
        "metadata": { "name": "taken", "labels": labels },
        "spec": { "vmRef": { "name": "web-server" }, "deletionPolicy": "Delete" },
    });
    bed.try_apply(&schedule).await.unwrap();
    bed.try_apply(&snapshot).await.unwrap();
    bed.until_ready::<VMSnapshotSchedule>("seldom").await;
    bed.until_ready::<VMSnapshot>("taken").await;
    bed
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_goes_when_it_is_too_old_though_no_other_is_due() {
    for suspended in [false, true] {
        let bed = taken(suspended).await;
        bed.sleep(Duration::from_mins(50)).await;
        assert_eq!(bed.names::<VMSnapshot>().await, ["taken"]);
        bed.sleep(Duration::from_mins(15)).await;
        assert_eq!(bed.names::<VMSnapshot>().await, Vec::<String>::new());
        assert_eq!(bed.snapshots("web-server").await, Vec::<String>::new());
    }
}
