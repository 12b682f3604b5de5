//! `/cluster/resources` and `/cluster/nextid`.

use std::time::Duration;

use pve_sim::Simulator;
use serde_json::Value;

use crate::client::Client;

async fn row(root: &Client, id: &str) -> Value {
    let rows = root.try_get("/cluster/resources").await.data();
    let found = rows.as_array().unwrap().iter().find(|row| row["id"] == id);
    found.cloned().unwrap_or(Value::Null)
}

#[tokio::test(start_paused = true)]
async fn a_new_guest_is_unknown_until_its_node_reports() {
    let root = Client::root(&Simulator::builder().build()).await;
    let create = [("vmid", "200"), ("name", "fresh"), ("tags", "k8s")];
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &create).await)
        .await;
    let before = row(&root, "qemu/200").await;
    assert_eq!(before["status"], "unknown");
    assert_eq!(before["tags"], "k8s");
    assert!(before.get("name").is_none());
    tokio::time::sleep(Duration::from_secs(11)).await;
    let after = row(&root, "qemu/200").await;
    assert_eq!(after["status"], "stopped");
    assert_eq!(after["name"], "fresh");
}

#[tokio::test(start_paused = true)]
async fn numbers_are_as_old_as_the_last_report() {
    let root = Client::root(&Simulator::builder().build()).await;
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &[("vmid", "200")]).await)
        .await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    root.exit_of(
        &root
            .try_post("/nodes/pve1/qemu/200/status/start", &[])
            .await,
    )
    .await;
    assert_eq!(row(&root, "qemu/200").await["status"], "stopped");
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(row(&root, "qemu/200").await["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn the_list_is_filtered_by_type() {
    let root = Client::root(&Simulator::builder().build()).await;
    for (filter, kinds) in [
        ("vm", &["qemu"][..]),
        ("node", &["node"]),
        ("storage", &["storage"]),
    ] {
        let rows = root
            .try_query("/cluster/resources", &[("type", filter)])
            .await
            .data();
        let rows = rows.as_array().unwrap();
        assert!(!rows.is_empty());
        assert!(
            rows.iter()
                .all(|row| kinds.contains(&row["type"].as_str().unwrap()))
        );
    }
    let bad = root
        .try_query("/cluster/resources", &[("type", "bogus")])
        .await;
    assert_eq!(
        bad.error("type"),
        "value 'bogus' does not have a value in the enumeration 'vm, storage, node, sdn'"
    );
}

#[tokio::test(start_paused = true)]
async fn free_ids_come_from_the_datacenters_range() {
    let root = Client::root(&Simulator::builder().build()).await;
    assert_eq!(root.try_get("/cluster/nextid").await.data(), "101");
    let used = root.try_query("/cluster/nextid", &[("vmid", "100")]).await;
    assert_eq!(used.error("vmid"), "VM 100 already exists");
    root.try_put("/cluster/options", &[("next-id", "lower=5000,upper=5001")])
        .await
        .data();
    assert_eq!(root.try_get("/cluster/nextid").await.data(), "5000");
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &[("vmid", "5000")]).await)
        .await;
    let none = root.try_get("/cluster/nextid").await;
    assert_eq!(
        none.message(),
        "unable to get any free VMID in range [5000, 5001]"
    );
}
