use http::Method;
use serde_json::Value;

use crate::client::{Client, pve9};

const SNAPSHOTS: &str = "/nodes/pve1/qemu/200/snapshot";

async fn take(pve: &Client, name: &str) -> String {
    pve.run(Method::POST, SNAPSHOTS, &[("snapname", name)])
        .await
        .exit
}

async fn parents(pve: &Client) -> Vec<(String, Value)> {
    let rows = pve.get(SNAPSHOTS).await;
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| {
        (
            row["name"].as_str().unwrap().to_owned(),
            row["parent"].clone(),
        )
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn snapshots_form_a_tree_that_survives_a_hole_in_the_middle() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1,format=qcow2")]).await;
    assert_eq!(take(&pve, "s1").await, "OK");
    assert_eq!(take(&pve, "s1").await, "snapshot name 's1' already used");
    assert_eq!(take(&pve, "s2").await, "OK");
    pve.ok(Method::POST, &format!("{SNAPSHOTS}/s1/rollback"), &[])
        .await;
    assert_eq!(take(&pve, "s3").await, "OK");
    let tree = parents(&pve).await;
    assert!(
        tree.contains(&("s2".into(), "s1".into())) && tree.contains(&("s3".into(), "s1".into()))
    );
    pve.ok(Method::DELETE, &format!("{SNAPSHOTS}/s1"), &[])
        .await;
    let tree = parents(&pve).await;
    assert!(
        tree.contains(&("s2".into(), Value::Null)) && tree.contains(&("s3".into(), Value::Null))
    );
    assert!(tree.contains(&("current".into(), "s3".into())));
    let template = pve
        .refused(Method::POST, "/nodes/pve1/qemu/200/template", &[])
        .await;
    assert_eq!(
        template.1,
        "unable to create template, because VM contains snapshots"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rollback_brings_back_configuration_and_disks() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1,format=qcow2"), ("memory", "512")])
        .await;
    take(&pve, "s1").await;
    let before = pve.config(200).await;
    let config = "/nodes/pve1/qemu/200/config";
    pve.put(
        config,
        &[("memory", "1024"), ("scsi1", "data:1,format=qcow2")],
    )
    .await;
    pve.ok(
        Method::PUT,
        "/nodes/pve1/qemu/200/resize",
        &[("disk", "scsi0"), ("size", "+1G")],
    )
    .await;
    pve.ok(Method::POST, &format!("{SNAPSHOTS}/s1/rollback"), &[])
        .await;
    let after = pve.config(200).await;
    assert_eq!(after["memory"], "512");
    assert_eq!(after["scsi0"], before["scsi0"]);
    assert_eq!(
        after["unused0"], "data:200/vm-200-disk-1.qcow2",
        "a newer disk is kept"
    );
    assert_ne!(after["vmgenid"], before["vmgenid"]);
}

#[tokio::test(start_paused = true)]
async fn memory_is_saved_and_continued_from() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1,format=qcow2"), ("memory", "512")])
        .await;
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/status/start", &[])
        .await;
    let ended = pve
        .ok(
            Method::POST,
            SNAPSHOTS,
            &[("snapname", "live"), ("vmstate", "1")],
        )
        .await;
    assert_eq!(ended.log[0], "saving VM state and RAM using storage 'data'");
    let rows = pve.get(SNAPSHOTS).await;
    assert_eq!(rows[0]["vmstate"], 1);
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/status/stop", &[])
        .await;
    pve.ok(Method::POST, &format!("{SNAPSHOTS}/live/rollback"), &[])
        .await;
    let current = pve.get("/nodes/pve1/qemu/200/status/current").await;
    assert_eq!(current["status"], "running");
    pve.ok(Method::DELETE, &format!("{SNAPSHOTS}/live"), &[])
        .await;
    let volumes = pve.get("/nodes/pve1/storage/data/content").await;
    assert_eq!(
        volumes.as_array().unwrap().len(),
        1,
        "the memory went with the snapshot"
    );
}

#[tokio::test(start_paused = true)]
async fn storages_decide_what_can_be_snapshotted_and_rolled_back() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1")]).await;
    assert_eq!(take(&pve, "s1").await, "snapshot feature is not available");
    pve.ok(Method::DELETE, "/nodes/pve1/qemu/200", &[]).await;
    pve.create(200, &[("scsi0", "tank:1")]).await;
    take(&pve, "s1").await;
    take(&pve, "s2").await;
    let ended = pve
        .run(Method::POST, &format!("{SNAPSHOTS}/s1/rollback"), &[])
        .await;
    assert_eq!(
        ended.exit,
        "can't rollback, 's1' is not most recent snapshot on 'tank:vm-200-disk-0'"
    );
    assert!(pve.config(200).await.get("lock").is_none());
    pve.ok(Method::POST, &format!("{SNAPSHOTS}/s2/rollback"), &[])
        .await;
    let missing = pve
        .run(Method::POST, &format!("{SNAPSHOTS}/nope/rollback"), &[])
        .await;
    assert_eq!(missing.exit, "snapshot 'nope' does not exist");
}
