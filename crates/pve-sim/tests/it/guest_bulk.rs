use http::Method;

use crate::client::{Client, pve9, ubuntu};

async fn running(pve: &Client, node: &str) -> Vec<u64> {
    let list = pve.get(&format!("/nodes/{node}/qemu")).await;
    let rows = list.as_array().unwrap().iter();
    let running = rows.filter(|row| row["status"] == "running");
    let mut ids: Vec<u64> = running.map(|row| row["vmid"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test(start_paused = true)]
async fn guests_of_a_node_are_started_moved_and_stopped_together() {
    let (_, pve) = pve9().await;
    let before = running(&pve, "pve1").await;
    ubuntu(&pve, 300, &[("onboot", "1"), ("startup", "order=2")]).await;
    ubuntu(&pve, 301, &[("onboot", "1"), ("startup", "order=1")]).await;
    ubuntu(&pve, 302, &[]).await;
    let ended = pve
        .ok(
            Method::POST,
            "/nodes/pve1/startall",
            &[("max-workers", "1")],
        )
        .await;
    let started: Vec<&String> = ended
        .log
        .iter()
        .filter(|it| it.starts_with("Starting"))
        .collect();
    assert_eq!(
        started,
        ["Starting VM 301", "Starting VM 300"],
        "in their order"
    );
    let ids = running(&pve, "pve1").await;
    assert!(ids.contains(&300) && ids.contains(&301) && !ids.contains(&302));
    let params = [("target", "pve2"), ("vms", "300,301")];
    pve.ok(Method::POST, "/nodes/pve1/migrateall", &params)
        .await;
    let there = running(&pve, "pve2").await;
    assert!(
        there.contains(&300) && there.contains(&301),
        "they move while they run"
    );
    pve.ok(Method::POST, "/nodes/pve2/stopall", &[("vms", "300,301")])
        .await;
    let there = running(&pve, "pve2").await;
    assert!(!there.contains(&300) && !there.contains(&301));
    assert_eq!(running(&pve, "pve1").await, before);
}

#[tokio::test(start_paused = true)]
async fn consoles_give_tickets_only_where_there_is_something_to_see() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 300, &[("serial0", "socket")]).await;
    let guest = "/nodes/pve1/qemu/300";
    let vnc = pve
        .data(
            Method::POST,
            &format!("{guest}/vncproxy"),
            &[("websocket", "1")],
        )
        .await;
    assert!(vnc["ticket"].as_str().unwrap().starts_with("PVEVNC:"));
    pve.data(Method::POST, &format!("{guest}/termproxy"), &[])
        .await;
    let (_, text) = pve
        .refused(Method::PUT, &format!("{guest}/sendkey"), &[("key", "ret")])
        .await;
    assert_eq!(text, "VM 300 not running");
    pve.boot(300).await;
    pve.put(&format!("{guest}/sendkey"), &[("key", "ctrl-alt-delete")])
        .await;
    let status = pve
        .data(
            Method::POST,
            &format!("{guest}/monitor"),
            &[("command", "info status")],
        )
        .await;
    assert_eq!(status, "VM status: running\n");
    let (_, text) = pve
        .refused(Method::POST, &format!("{guest}/spiceproxy"), &[])
        .await;
    assert_eq!(text, "VM has no SPICE compatible graphics card");
    let shell = pve.data(Method::POST, "/nodes/pve1/termproxy", &[]).await;
    assert!(shell["upid"].as_str().unwrap().contains(":vncshell:"));
}

#[tokio::test(start_paused = true)]
async fn several_calls_can_be_made_in_one() {
    let (_, pve) = pve9().await;
    let commands = r#"[{"path":"version","method":"GET"},{"path":"qemu","method":"POST","args":{"vmid":310}},{"path":"nope","method":"GET"}]"#;
    let rows = pve
        .data(
            Method::POST,
            "/nodes/pve1/execute",
            &[("commands", commands)],
        )
        .await;
    let statuses: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["status"])
        .collect();
    assert_eq!(statuses, [200, 200, 501], "{rows}");
    assert!(rows[1]["data"].as_str().unwrap().contains(":qmcreate:310:"));
}
