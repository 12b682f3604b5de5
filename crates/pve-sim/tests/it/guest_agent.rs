use http::Method;
use pve_sim::Process;

use crate::client::{pve9, ubuntu};

const AGENT: &str = "/nodes/pve1/qemu/200/agent";

#[tokio::test(start_paused = true)]
async fn each_way_of_having_no_agent_has_its_text() {
    let (_, pve) = pve9().await;
    let ping = format!("{AGENT}/ping");
    pve.create(200, &[("scsi0", "data:1")]).await;
    let refused = |pve: crate::client::Client| {
        let ping = ping.clone();
        async move { pve.refused(Method::POST, &ping, &[]).await.1 }
    };
    assert_eq!(refused(pve.clone()).await, "No QEMU guest agent configured");
    pve.put("/nodes/pve1/qemu/200/config", &[("agent", "1")])
        .await;
    assert_eq!(refused(pve.clone()).await, "VM 200 is not running");
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/status/start", &[])
        .await;
    let before = tokio::time::Instant::now();
    assert_eq!(
        refused(pve.clone()).await,
        "QEMU guest agent is not running"
    );
    assert!(
        before.elapsed() >= std::time::Duration::from_secs(3),
        "the ping is waited for"
    );
}

#[tokio::test(start_paused = true)]
async fn the_agent_tells_and_does_what_the_system_can() {
    let (cluster, pve) = pve9().await;
    ubuntu(&pve, 200, &[]).await;
    pve.boot(200).await;
    let os = pve.get(&format!("{AGENT}/get-osinfo")).await;
    assert_eq!(os["result"]["id"], "ubuntu");
    let write = [("file", "/etc/motd"), ("content", "hello")];
    pve.data(Method::POST, &format!("{AGENT}/file-write"), &write)
        .await;
    let read = pve
        .data(
            Method::GET,
            &format!("{AGENT}/file-read"),
            &[("file", "/etc/motd")],
        )
        .await;
    assert_eq!(read["content"], "hello");
    let missing = pve
        .refused(
            Method::GET,
            &format!("{AGENT}/file-read"),
            &[("file", "/nope")],
        )
        .await;
    assert!(missing.1.starts_with("Agent error: "), "{}", missing.1);
    cluster
        .script(
            200,
            "kubeadm version",
            Process {
                exit: 3,
                out: "v1".into(),
                err: String::new(),
            },
        )
        .unwrap();
    let command = [("command", "kubeadm"), ("command", "version")];
    let started = pve
        .data(Method::POST, &format!("{AGENT}/exec"), &command)
        .await;
    let pid = started["pid"].to_string();
    let status = pve
        .data(
            Method::GET,
            &format!("{AGENT}/exec-status"),
            &[("pid", &pid)],
        )
        .await;
    assert_eq!(
        (status["exitcode"].as_i64(), status["out-data"].as_str()),
        (Some(3), Some("v1"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_system_that_hangs_stops_answering_while_its_process_runs() {
    let (cluster, pve) = pve9().await;
    ubuntu(&pve, 200, &[]).await;
    pve.boot(200).await;
    cluster.hang_guest(200).unwrap();
    let refused = pve
        .refused(Method::POST, &format!("{AGENT}/ping"), &[])
        .await;
    assert_eq!(refused.1, "QEMU guest agent is not running");
    let current = pve.get("/nodes/pve1/qemu/200/status/current").await;
    assert_eq!(current["status"], "running");
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/status/reset", &[])
        .await;
    tokio::time::sleep(std::time::Duration::from_mins(2)).await;
    pve.data(Method::POST, &format!("{AGENT}/ping"), &[]).await;
}
