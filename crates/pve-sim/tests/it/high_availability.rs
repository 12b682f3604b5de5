//! HA that acts, dead nodes and split networks.

use std::time::Duration;

use pve_sim::{Cluster, Release, Simulator};
use serde_json::Value;

use crate::client::Client;

async fn setup(release: Release) -> (Simulator, Cluster, Client) {
    let simulator = Simulator::builder().release(release).build();
    let root = Client::root(&simulator).await.at("pve3");
    let cluster = simulator.clusters().next().unwrap().clone();
    (simulator, cluster, root)
}

/// A clone on shared storage that runs on `pve1` under the manager.
async fn managed(root: &Client, vmid: &str) {
    let clone = root
        .try_post("/nodes/pve1/qemu/9000/clone", &[("newid", vmid)])
        .await;
    assert_eq!(root.exit_of(&clone).await, "OK");
    root.try_post("/cluster/ha/resources", &[("sid", &format!("vm:{vmid}"))])
        .await
        .data();
    tokio::time::sleep(Duration::from_secs(30)).await;
}

async fn whereabouts(root: &Client, vmid: u64) -> (String, String) {
    let rows = root
        .try_query("/cluster/resources", &[("type", "vm")])
        .await
        .data();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["vmid"] == vmid)
        .cloned();
    let row = row.unwrap_or(Value::Null);
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    (text("node"), text("status"))
}

#[tokio::test(start_paused = true)]
async fn a_guest_of_a_dead_node_comes_back_elsewhere() {
    for release in [Release::V8_4, Release::V9_2] {
        let (_simulator, cluster, root) = setup(release).await;
        managed(&root, "200").await;
        assert_eq!(
            whereabouts(&root, 200).await,
            ("pve1".into(), "running".into())
        );
        cluster.kill_node("pve1");
        let lost = root.try_get("/nodes/pve1/status").await;
        assert_eq!(
            (lost.status, lost.reason.as_str()),
            (595, "No route to host")
        );
        tokio::time::sleep(Duration::from_secs(150)).await;
        let (node, status) = whereabouts(&root, 200).await;
        assert_ne!(node, "pve1");
        assert_eq!(status, "running");
        let current = root
            .try_get(&format!("/nodes/{node}/qemu/200/status/current"))
            .await
            .data();
        assert_eq!(current["ha"]["state"], "started");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_on_local_storage_cannot_be_recovered() {
    let (_simulator, cluster, root) = setup(Release::V9_2).await;
    let create = [("vmid", "200"), ("scsi0", "local-lvm:1")];
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &create).await)
        .await;
    root.try_post("/cluster/ha/resources", &[("sid", "vm:200")])
        .await
        .data();
    tokio::time::sleep(Duration::from_secs(30)).await;
    cluster.kill_node("pve1");
    tokio::time::sleep(Duration::from_mins(5)).await;
    let rows = root.try_get("/cluster/ha/status/current").await.data();
    let service = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["sid"] == "vm:200")
        .unwrap();
    assert_eq!(service["state"], "error");
}

#[tokio::test(start_paused = true)]
async fn a_rule_moves_a_guest_where_it_belongs() {
    let (_simulator, _cluster, root) = setup(Release::V9_2).await;
    managed(&root, "200").await;
    let rule = [
        ("rule", "home"),
        ("type", "node-affinity"),
        ("nodes", "pve2"),
        ("resources", "vm:200"),
    ];
    root.try_post("/cluster/ha/rules", &rule).await.data();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        whereabouts(&root, 200).await,
        ("pve2".into(), "running".into())
    );
    let unmanaged = [
        ("rule", "x1"),
        ("type", "resource-affinity"),
        ("affinity", "negative"),
        ("resources", "vm:200,vm:100"),
    ];
    assert_eq!(
        root.try_post("/cluster/ha/rules", &unmanaged)
            .await
            .message(),
        "create ha rule failed: cannot use unmanaged resource(s) vm:100."
    );
}

#[tokio::test(start_paused = true)]
async fn groups_are_for_8_and_rules_for_9() {
    let group = [("group", "gr"), ("nodes", "pve1:2,pve2")];
    let (_simulator, _cluster, root) = setup(Release::V9_2).await;
    assert_eq!(
        root.try_post("/cluster/ha/groups", &group).await.message(),
        "cannot create group: ha groups have been migrated to rules"
    );
    let (_simulator, _cluster, root) = setup(Release::V8_4).await;
    root.try_post("/cluster/ha/groups", &group).await.data();
    assert_eq!(
        root.try_get("/cluster/ha/groups/gr").await.data()["nodes"],
        "pve1:2,pve2"
    );
    assert_eq!(root.try_get("/cluster/ha/rules").await.status, 501);
}

#[tokio::test(start_paused = true)]
async fn power_calls_of_a_managed_guest_are_requests() {
    let (_simulator, _cluster, root) = setup(Release::V9_2).await;
    managed(&root, "200").await;
    let stop = root.try_post("/nodes/pve1/qemu/200/status/stop", &[]).await;
    assert!(stop.data().as_str().unwrap().contains(":hastop:200:"));
    assert_eq!(root.exit_of(&stop).await, "OK");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(whereabouts(&root, 200).await.1, "stopped");
}

#[tokio::test(start_paused = true)]
async fn without_quorum_nothing_can_be_changed() {
    let (_simulator, cluster, root) = setup(Release::V9_2).await;
    cluster.partition(&[vec!["pve3".to_owned()]]);
    let refused = root.try_post("/pools", &[("poolid", "p")]).await;
    assert_eq!(refused.message(), "cluster not ready - no quorum?");
    assert_eq!(root.try_get("/nodes/pve1/qemu").await.status, 595);
    let status = root.try_get("/cluster/status").await.data();
    assert_eq!(status[0]["quorate"], 0);
    let majority = root.clone().at("pve1");
    assert_eq!(
        majority.try_post("/pools", &[("poolid", "p")]).await.status,
        200
    );
    cluster.heal();
    assert_eq!(
        root.try_post("/pools", &[("poolid", "q")]).await.status,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_takes_no_calls_and_its_workers_die() {
    let simulator = Simulator::builder()
        .latency(pve_sim::Latency::real())
        .build();
    let root = Client::root(&simulator).await.at("pve3");
    let cluster = simulator.clusters().next().unwrap().clone();
    let clone = root
        .try_post(
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "200"), ("full", "1")],
        )
        .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    cluster.kill_node("pve1");
    let dead = root
        .clone()
        .at("pve1")
        .try_call(http::Method::GET, "/version", &[])
        .await;
    assert!(dead.is_err());
    cluster.revive_node("pve1");
    assert_eq!(root.exit_of(&clone).await, "unexpected status");
    assert_eq!(
        root.try_get("/nodes/pve1/qemu/200/config").await.data()["lock"],
        "clone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_given_up_stays_so_until_it_is_disabled() {
    let (_simulator, cluster, root) = setup(Release::V9_2).await;
    managed(&root, "200").await;
    cluster.give_up_guest(200).unwrap();
    let state = async || {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let current = "/nodes/pve1/qemu/200/status/current";
        let current = root.try_get(current).await.data();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&current["ha"]["state"]), text(&current["status"]))
    };
    for (asked, becomes, status) in [
        ("started", "error", "running"),
        ("stopped", "error", "running"),
        ("disabled", "disabled", "stopped"),
        ("started", "started", "running"),
    ] {
        let change = [("state", asked)];
        root.try_put("/cluster/ha/resources/vm:200", &change)
            .await
            .data();
        assert_eq!(state().await, (becomes.into(), status.into()), "{asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_managed_cannot_be_taken_out() {
    let (_simulator, _cluster, root) = setup(Release::V9_2).await;
    managed(&root, "200").await;
    let sid = "/cluster/ha/resources/vm:200";
    root.try_delete(sid).await.data();
    assert_eq!(
        root.try_delete(sid).await.message(),
        "cannot delete service 'vm:200', not HA managed!"
    );
}
