use std::time::Duration;

use http::Method;
use pve_sim::{Latency, Quirks};

use tokio::time::Instant;

use crate::client::{Client, pve9, ubuntu};

fn status(action: &str) -> String {
    format!("/nodes/pve1/qemu/200/status/{action}")
}

async fn now(pve: &Client) -> (String, String) {
    let current = pve.get(&status("current")).await;
    let text = |key: &str| current[key].as_str().unwrap().to_owned();
    (text("status"), text("qmpstatus"))
}

#[tokio::test(start_paused = true)]
async fn transitions_that_make_no_sense_are_refused_where_pve_refuses_them() {
    let (_, pve) = pve9().await;
    pve.create(200, &[]).await;
    for action in ["reboot", "reset", "suspend", "resume"] {
        let refused = pve.refused(Method::POST, &status(action), &[]).await;
        assert_eq!(refused, (500, "VM 200 not running".to_owned()), "{action}");
    }
    for action in ["stop", "shutdown"] {
        pve.ok(Method::POST, &status(action), &[]).await;
    }
    pve.ok(Method::POST, &status("start"), &[]).await;
    assert_eq!(
        pve.run(Method::POST, &status("start"), &[]).await.exit,
        "VM 200 already running"
    );
    let destroy = pve
        .refused(Method::DELETE, "/nodes/pve1/qemu/200", &[])
        .await;
    assert_eq!(destroy.1, "VM 200 is running - destroy failed");
    let missing = pve
        .run(Method::POST, "/nodes/pve1/qemu/999/status/start", &[])
        .await;
    assert_eq!(
        missing.exit,
        "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist"
    );
    let template = pve
        .run(Method::POST, "/nodes/pve1/qemu/9000/status/start", &[])
        .await;
    assert_eq!(template.exit, "you can't start a vm if it's a template");
}

#[tokio::test(start_paused = true)]
async fn a_guest_without_a_system_does_not_shut_down() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1")]).await;
    pve.ok(Method::POST, &status("start"), &[]).await;
    let failed = "VM quit/powerdown failed - got timeout";
    let wait = [("timeout", "3")];
    assert_eq!(
        pve.run(Method::POST, &status("shutdown"), &wait).await.exit,
        failed
    );
    assert_eq!(
        pve.run(Method::POST, &status("reboot"), &wait).await.exit,
        failed
    );
    assert_eq!(now(&pve).await.0, "running");
    let forced = [("timeout", "3"), ("forceStop", "1")];
    let ended = pve.ok(Method::POST, &status("shutdown"), &forced).await;
    assert_eq!(
        ended.log[0],
        "VM still running - terminating now with SIGTERM"
    );
    assert_eq!(now(&pve).await.0, "stopped");
}

#[tokio::test(start_paused = true)]
async fn a_system_obeys_the_power_button_unless_told_not_to() {
    let (cluster, pve) = pve9().await;
    ubuntu(&pve, 200, &[("agent", "0")]).await;
    pve.ok(Method::POST, &status("start"), &[]).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    cluster
        .set_quirks(
            200,
            Quirks {
                ignore_acpi: true,
                ..Quirks::default()
            },
        )
        .unwrap();
    let wait = [("timeout", "20")];
    let ended = pve.run(Method::POST, &status("shutdown"), &wait).await;
    assert_eq!(ended.exit, "VM quit/powerdown failed - got timeout");
    cluster.set_quirks(200, Quirks::default()).unwrap();
    pve.ok(Method::POST, &status("shutdown"), &wait).await;
    assert_eq!(now(&pve).await, ("stopped".into(), "stopped".into()));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_seen_once_a_second_and_cleaned_up_after() {
    let (cluster, pve) = pve9().await;
    ubuntu(&pve, 200, &[("agent", "0")]).await;
    cluster.set_latency(Latency::parse("steps: { shutdown: { median_ms: 2400, p95_ms: 2400 }, clean-up: { median_ms: 100, p95_ms: 100 } }").unwrap());
    pve.ok(Method::POST, &status("start"), &[]).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let begun = Instant::now();
    let ending = pve.data(Method::POST, &status("shutdown"), &[]).await;
    tokio::time::sleep(Duration::from_millis(2450)).await;
    assert_eq!(now(&pve).await.0, "stopped");
    let task = format!("/nodes/pve1/tasks/{}/status", ending.as_str().unwrap());
    while pve.get(&task).await["status"] == "running" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(begun.elapsed().as_millis() / 10, 310);

    pve.ok(Method::POST, &status("start"), &[]).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let wait = [("timeout", "3")];
    let ended = pve.run(Method::POST, &status("shutdown"), &wait).await;
    assert_eq!(ended.exit, "VM quit/powerdown failed - got timeout");
}

#[tokio::test(start_paused = true)]
async fn a_paused_guest_runs_for_pve_and_cannot_be_shut_down() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1")]).await;
    pve.ok(Method::POST, &status("start"), &[]).await;
    pve.ok(Method::POST, &status("suspend"), &[]).await;
    assert_eq!(now(&pve).await, ("running".into(), "paused".into()));
    let refused = pve.refused(Method::POST, &status("shutdown"), &[]).await;
    assert_eq!(refused, (500, "VM is paused - cannot shutdown".to_owned()));
    pve.ok(Method::POST, &status("resume"), &[]).await;
    assert_eq!(now(&pve).await.1, "running");
}

#[tokio::test(start_paused = true)]
async fn hibernation_locks_the_guest_until_it_is_started_again() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1,format=qcow2"), ("memory", "512")])
        .await;
    pve.ok(Method::POST, &status("start"), &[]).await;
    pve.ok(Method::POST, &status("suspend"), &[("todisk", "1")])
        .await;
    let config = pve.config(200).await;
    assert_eq!(config["lock"], "suspended");
    let state = config["vmstate"].as_str().unwrap().to_owned();
    assert!(
        state.starts_with("data:200/vm-200-state-suspend-"),
        "{state}"
    );
    pve.ok(Method::POST, &status("start"), &[]).await;
    let config = pve.config(200).await;
    assert!(config.get("lock").is_none() && config.get("vmstate").is_none());
    assert_eq!(now(&pve).await.0, "running");
}

#[tokio::test(start_paused = true)]
async fn a_stop_can_overrule_a_shutdown_that_hangs() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1")]).await;
    pve.ok(Method::POST, &status("start"), &[]).await;
    let waiting = pve
        .data(Method::POST, &status("shutdown"), &[("timeout", "600")])
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ended = pve
        .ok(Method::POST, &status("stop"), &[("overrule-shutdown", "1")])
        .await;
    assert!(!ended.log.is_empty());
    let shutdown = pve.ended(waiting.as_str().unwrap()).await;
    assert_ne!(shutdown.exit, "OK");
    assert_eq!(now(&pve).await.0, "stopped");
}

#[tokio::test(start_paused = true)]
async fn what_the_host_cannot_give_is_found_out_at_the_start() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("numa", "1"), ("memory", "512"), ("cores", "2")])
        .await;
    for (options, exit) in [
        (
            vec![("numa0", "cpus=0-1,hostnodes=0,memory=256,policy=bind")],
            "total memory for NUMA nodes must be equal to vm static memory",
        ),
        (
            vec![("numa0", "cpus=0-1,hostnodes=5,memory=512,policy=bind")],
            "host NUMA node5 doesn't exist",
        ),
        (
            vec![("delete", "numa0"), ("cores", "99")],
            "MAX 32 vcpus allowed per VM on this node",
        ),
        (
            vec![("cores", "2"), ("memory", "1000000")],
            "start failed: QEMU exited with code 1",
        ),
        (
            vec![("memory", "512"), ("net0", "virtio,bridge=vmbr99")],
            "bridge 'vmbr99' does not exist",
        ),
    ] {
        pve.put("/nodes/pve1/qemu/200/config", &options).await;
        assert_eq!(
            pve.run(Method::POST, &status("start"), &[]).await.exit,
            exit
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_losers_of_a_double_destroy_miss_the_configuration() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1")]).await;
    let mut upids = Vec::new();
    for _ in 0..3 {
        let answer = pve.call(Method::DELETE, "/nodes/pve1/qemu/200", &[]).await;
        if let Some(upid) = answer.body["data"].as_str() {
            upids.push(upid.to_owned());
        }
    }
    let mut exits = Vec::new();
    for upid in upids {
        exits.push(pve.ended(&upid).await.exit);
    }
    let gone = "Configuration file 'nodes/pve1/qemu-server/200.conf' does not exist";
    assert_eq!(exits.iter().filter(|exit| *exit == "OK").count(), 1);
    assert!(
        exits.iter().all(|exit| exit == "OK" || exit == gone),
        "{exits:?}"
    );
}
