//! Guests told to misbehave over HTTP: `/sim/guests/…`.

use http::Method;
use serde_json::{Value, json};

use crate::client::{Client, pve9, ubuntu};

async fn sim(pve: &Client, method: Method, path: &str, body: Value) -> (u16, Value) {
    let answer = pve
        .control(method, &format!("/sim/guests/{path}"), &body)
        .await;
    (answer.status, answer.body)
}

#[tokio::test(start_paused = true)]
async fn a_guest_can_be_told_to_ignore_the_power_button_and_to_obey_again() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 300, &[("agent", "0")]).await;
    pve.ok(Method::POST, "/nodes/pve1/qemu/300/status/start", &[])
        .await;
    tokio::time::sleep(std::time::Duration::from_mins(2)).await;
    let deaf = json!({ "ignore-acpi": true });
    assert_eq!(sim(&pve, Method::PUT, "300/quirks", deaf).await.0, 200);
    let (_, seen) = sim(&pve, Method::GET, "300", Value::Null).await;
    assert_eq!(seen["quirks"]["ignore-acpi"], true);
    let path = "/nodes/pve1/qemu/300/status/shutdown";
    let ended = pve.run(Method::POST, path, &[("timeout", "5")]).await;
    assert_eq!(ended.exit, "VM quit/powerdown failed - got timeout");
    sim(&pve, Method::PUT, "300/quirks", json!({})).await;
    pve.ok(Method::POST, path, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_hangs_crashes_dies_and_fills_its_disk_on_demand() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 300, &[]).await;
    pve.boot(300).await;
    let ping = "/nodes/pve1/qemu/300/agent/ping";
    assert_eq!(
        sim(&pve, Method::POST, "300/hang", Value::Null).await.0,
        200
    );
    let (_, text) = pve.refused(Method::POST, ping, &[]).await;
    assert_eq!(text, "QEMU guest agent is not running");
    pve.ok(Method::POST, "/nodes/pve1/qemu/300/status/reset", &[])
        .await;
    pve.ok(Method::POST, "/nodes/pve1/qemu/300/status/stop", &[])
        .await;
    pve.boot(300).await;
    let used = || async {
        let path = "/nodes/pve1/storage/ceph/status";
        pve.get(path).await["used"].as_u64().unwrap()
    };
    let before = used().await;
    let gib = json!({ "bytes": 1_u64 << 30 });
    assert_eq!(sim(&pve, Method::POST, "300/fill", gib).await.0, 200);
    assert!(
        used().await >= before + (1 << 30),
        "the disk takes the space"
    );
    assert_eq!(
        sim(&pve, Method::POST, "300/kill", Value::Null).await.0,
        200
    );
    let now = pve.get("/nodes/pve1/qemu/300/status/current").await;
    assert_eq!(now["status"], "stopped");
}

#[tokio::test(start_paused = true)]
async fn commands_and_files_of_a_guest_can_be_prepared() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 300, &[]).await;
    pve.boot(300).await;
    let script = json!({ "command": "kubeadm token create", "exit": 0, "out": "abc\n" });
    let (status, body) = sim(&pve, Method::PUT, "300/script", script).await;
    assert_eq!(status, 200, "{body}");
    let file = json!({ "path": "/etc/motd", "content": "hello" });
    assert_eq!(sim(&pve, Method::PUT, "300/file", file).await.0, 200);
    let path = "/nodes/pve1/qemu/300/agent/file-read";
    let read = pve.data(Method::GET, path, &[("file", "/etc/motd")]).await;
    assert_eq!(read["content"], "hello");
}

#[tokio::test(start_paused = true)]
async fn what_the_control_surface_does_not_know_it_says() {
    let (_, pve) = pve9().await;
    let (status, body) = sim(&pve, Method::POST, "4711/hang", Value::Null).await;
    assert_eq!(status, 404, "{body}");
    let (status, body) = sim(&pve, Method::PUT, "9000/quirks", json!({ "fly": true })).await;
    assert_eq!(status, 400);
    assert!(body["error"].as_str().unwrap().contains("fly"), "{body}");
    assert_eq!(
        sim(&pve, Method::POST, "9000/dance", Value::Null).await.0,
        404
    );
}
