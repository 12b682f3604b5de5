//! Workers, seen through the task endpoints.

use pve_sim::{Latency, Simulator};

use crate::client::Client;

const UNKNOWN: &str = "UPID:pve1:00000001:00000001:6AFA0000:qmstart:100:root@pam:";

#[tokio::test(start_paused = true)]
async fn a_task_runs_is_listed_and_ends_in_the_archive() {
    let simulator = Simulator::builder().latency(Latency::real()).build();
    let root = Client::root(&simulator).await;
    let started = root
        .try_post("/nodes/pve1/qemu", &[("vmid", "200"), ("scsi0", "data:1")])
        .await;
    let upid = started.data().as_str().unwrap().to_owned();
    let active = root
        .try_query("/nodes/pve1/tasks", &[("source", "active")])
        .await
        .data();
    assert_eq!(active[0]["upid"], upid.as_str());
    assert_eq!(active[0]["status"], "RUNNING");
    assert_eq!(root.exit_of(&started).await, "OK");
    let archive = root
        .try_query("/nodes/pve1/tasks", &[("vmid", "200")])
        .await;
    assert_eq!(archive.data()[0]["status"], "OK");
    assert_eq!(archive.body["total"], 1);
    let log = root
        .try_get(&format!("/nodes/pve1/tasks/{upid}/log"))
        .await
        .data();
    assert_eq!(log.as_array().unwrap().last().unwrap()["t"], "TASK OK");
    let of_cluster = root.try_get("/cluster/tasks").await.data();
    assert_eq!(of_cluster[0]["upid"], upid.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_down_tells_nobody_that_its_tasks_have_ended() {
    let simulator = Simulator::builder().latency(Latency::real()).build();
    let cluster = simulator.clusters().next().unwrap();
    let root = Client::root(&simulator).await;
    let create = [("vmid", "200"), ("scsi0", "data:1")];
    let started = root.try_post("/nodes/pve2/qemu", &create).await;
    let upid = started.data().as_str().unwrap().to_owned();
    cluster.kill_node("pve2");
    let listed = async || {
        let all = root.try_get("/cluster/tasks").await.data();
        let mut all = all.as_array().unwrap().clone().into_iter();
        all.find(|task| task["upid"] == upid.as_str()).unwrap()
    };
    let seen = listed().await;
    assert!(seen.get("endtime").is_none(), "{seen}");
    cluster.revive_node("pve2");
    assert_eq!(listed().await["status"], "unexpected status");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_task_says_so() {
    let simulator = Simulator::builder().latency(Latency::real()).build();
    let root = Client::root(&simulator).await;
    let full = [("newid", "200"), ("full", "1")];
    let clone = root.try_post("/nodes/pve1/qemu/9000/clone", &full).await;
    let upid = clone.data().as_str().unwrap().to_owned();
    root.try_delete(&format!("/nodes/pve1/tasks/{upid}"))
        .await
        .data();
    let exit = root.exit_of(&clone).await;
    assert!(exit.contains("received interrupt"), "{exit}");
    assert_eq!(
        root.try_get("/nodes/pve1/qemu/200/config").await.status,
        500
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_no_task_is_told_apart_from_an_unknown_one() {
    let root = Client::root(&Simulator::builder().build()).await;
    let garbage = root.try_get("/nodes/pve1/tasks/garbage/status").await;
    assert_eq!(garbage.error("upid"), "unable to parse worker upid");
    let unknown = root
        .try_get(&format!("/nodes/pve1/tasks/{UNKNOWN}/status"))
        .await;
    assert_eq!(unknown.error("upid"), "no such task");
    let log = root
        .try_get(&format!("/nodes/pve1/tasks/{UNKNOWN}/log"))
        .await
        .data();
    assert_eq!(
        log[0]["t"],
        "unable to open file - No such file or directory"
    );
}

#[tokio::test(start_paused = true)]
async fn three_slow_calls_keep_a_nodes_daemon_busy() {
    let simulator = Simulator::builder().build();
    let root = Client::root(&simulator).await;
    let create = [("vmid", "300"), ("agent", "1"), ("scsi0", "data:1")];
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &create).await)
        .await;
    root.exit_of(
        &root
            .try_post("/nodes/pve1/qemu/300/status/start", &[])
            .await,
    )
    .await;
    let ping = || {
        let root = root.clone();
        async move { root.try_post("/nodes/pve1/qemu/300/agent/ping", &[]).await }
    };
    let before = tokio::time::Instant::now();
    let (a, b, c, d) = tokio::join!(ping(), ping(), ping(), ping());
    for answer in [a, b, c, d] {
        assert_eq!(answer.message(), "QEMU guest agent is not running");
    }
    // The fourth had to wait for one of the three workers.
    assert!(before.elapsed() >= std::time::Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_run() {
    let run = |seed| async move {
        let simulator = Simulator::builder()
            .seed(seed)
            .latency(Latency::real())
            .build();
        let root = Client::root(&simulator).await;
        let mut answers = Vec::new();
        for newid in ["200", "201", "202"] {
            let clone = root
                .try_post("/nodes/pve1/qemu/9000/clone", &[("newid", newid)])
                .await;
            root.exit_of(&clone).await;
            answers.push(clone.text);
            answers.push(
                root.try_get(&format!("/nodes/pve1/qemu/{newid}/config"))
                    .await
                    .text,
            );
        }
        answers
    };
    assert_eq!(run(7).await, run(7).await);
    assert_ne!(run(7).await, run(8).await);
}
