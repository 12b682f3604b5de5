//! Replication jobs.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use crate::client::{Client, pve9};

const JOB: [(&str, &str); 4] = [
    ("id", "150-0"),
    ("type", "local"),
    ("target", "pve2"),
    ("schedule", "*/5"),
];

async fn volumes(root: &Client, node: &str) -> usize {
    let path = format!("/nodes/{node}/storage/tank/content?vmid=150");
    root.get(&path).await.as_array().unwrap().len()
}

/// Waits for the next run of the job, which the scheduler makes within its interval.
async fn ran(root: &Client, node: &str, before: u64) -> Value {
    for _ in 0..1000 {
        let path = format!("/nodes/{node}/replication/150-0/status");
        let status = root.get(&path).await;
        if status["last_try"].as_u64().unwrap() > before {
            return status;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    panic!("the job does not run");
}

#[tokio::test(start_paused = true)]
async fn a_guest_on_zfs_is_copied_by_the_calendar_and_moves_without_waiting() {
    let (_, root) = pve9().await;
    root.create(150, &[("scsi0", "tank:1")]).await;
    root.data(Method::POST, "/cluster/replication", &JOB).await;
    let (_, text) = root
        .refused(Method::POST, "/cluster/replication", &JOB)
        .await;
    assert_eq!(text, "replication job '150-0' already exists");
    let status = ran(&root, "pve1", 0).await;
    assert_eq!(
        (&status["fail_count"], &status["vmtype"]),
        (&0.into(), &"qemu".into())
    );
    assert!(status["next_sync"].as_u64() > status["last_sync"].as_u64());
    assert_eq!(volumes(&root, "pve2").await, 1);
    let log = root.get("/nodes/pve1/replication/150-0/log").await;
    assert!(
        log[1]["t"].as_str().unwrap().contains("tank:vm-150-disk-0")
            || log[2]["t"].as_str().unwrap().contains("tank:vm-150-disk-0")
    );

    let (_, text) = root
        .refused(Method::DELETE, "/nodes/pve1/qemu/150", &[])
        .await;
    assert!(
        text.starts_with("There is a replication job '150-0'"),
        "{text}"
    );

    root.ok(
        Method::POST,
        "/nodes/pve1/qemu/150/migrate",
        &[("target", "pve2")],
    )
    .await;
    assert_eq!(
        (volumes(&root, "pve1").await, volumes(&root, "pve2").await),
        (0, 1)
    );
    let config = root.get("/nodes/pve2/qemu/150/config").await;
    assert!(
        config["scsi0"]
            .as_str()
            .unwrap()
            .starts_with("tank:vm-150-disk-0,")
    );
    let job = root.get("/cluster/replication/150-0").await;
    assert_eq!(
        (&job["source"], &job["target"]),
        (&"pve2".into(), &"pve1".into())
    );

    root.data(Method::DELETE, "/cluster/replication/150-0", &[])
        .await;
    for _ in 0..100 {
        if root.try_get("/cluster/replication/150-0").await.status == 500 {
            assert_eq!(
                volumes(&root, "pve1").await,
                0,
                "the copies go with the job"
            );
            return;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    panic!("the job is not removed");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_reach_its_target_says_so_and_tries_again() {
    let (cluster, root) = pve9().await;
    root.create(150, &[("scsi0", "tank:1")]).await;
    root.data(Method::POST, "/cluster/replication", &JOB).await;
    cluster.kill_node("pve2");
    let failed = ran(&root, "pve1", 0).await;
    assert_eq!(failed["fail_count"], 1);
    assert!(failed["error"].as_str().unwrap().contains("ssh"));
    cluster.revive_node("pve2");
    root.data(
        Method::POST,
        "/nodes/pve1/replication/150-0/schedule_now",
        &[],
    )
    .await;
    let again = ran(&root, "pve1", failed["last_try"].as_u64().unwrap()).await;
    assert_eq!(
        (&again["fail_count"], again.get("error")),
        (&0.into(), None)
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_copied_is_no_job() {
    let (_, root) = pve9().await;
    root.create(150, &[("scsi0", "local-lvm:1")]).await;
    let (_, text) = root
        .refused(Method::POST, "/cluster/replication", &JOB)
        .await;
    assert_eq!(
        text,
        "missing replicate feature on volume 'local-lvm:vm-150-disk-0'"
    );
    root.put(
        "/nodes/pve1/qemu/150/config",
        &[("scsi0", "local-lvm:vm-150-disk-0,replicate=0")],
    )
    .await;
    root.data(Method::POST, "/cluster/replication", &JOB).await;
    let here = [("id", "150-1"), ("type", "local"), ("target", "pve1")];
    let answer = root.try_post("/cluster/replication", &here).await;
    assert_eq!(answer.error("target"), "target is local node.");
}
