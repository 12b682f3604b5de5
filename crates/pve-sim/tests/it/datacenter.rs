//! What belongs to the whole cluster: metric servers, its own configuration, guests of all nodes.

use http::Method;
use pve_sim::Release;

use crate::client::{fresh, pve9, ubuntu};

#[tokio::test(start_paused = true)]
async fn a_metric_server_is_kept_without_telling_its_token() {
    let (_, root) = pve9().await;
    let path = "/cluster/metrics/server/influx";
    let given = [
        ("type", "influxdb"),
        ("server", "10.0.0.9"),
        ("port", "8086"),
        ("token", "hush"),
    ];
    root.data(Method::POST, path, &given).await;
    assert_eq!(
        root.refused(Method::POST, path, &given).await.1,
        "Metric server 'influx' already exists"
    );
    let shown = root.get(path).await;
    assert_eq!((&shown["port"], shown.get("token")), (&8086.into(), None));
    root.put(
        path,
        &[("server", "10.0.0.8"), ("port", "8087"), ("disable", "1")],
    )
    .await;
    let listed = root.get("/cluster/metrics/server").await;
    assert_eq!(
        (&listed[0]["server"], &listed[0]["disable"]),
        (&"10.0.0.8".into(), &1.into())
    );
    root.data(Method::DELETE, path, &[]).await;
    assert_eq!(
        root.refused(Method::GET, path, &[]).await.1,
        "status server entry 'influx' does not exist"
    );
    let exported = root.get("/cluster/metrics/export?local-only=1").await;
    let rows = exported["data"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["id"] == "node/pve1" && row["metric"] == "cpu_max")
    );
    assert!(!rows.iter().any(|row| row["id"] == "node/pve2"));
}

#[tokio::test(start_paused = true)]
async fn another_node_could_join() {
    let (_, root) = pve9().await;
    let join = root.get("/cluster/config/join").await;
    assert_eq!(join["preferred_node"], "pve1");
    assert_eq!(join["nodelist"].as_array().unwrap().len(), 3);
    assert_eq!(join["totem"]["cluster_name"], "pve");
    let listed = root.get("/nodes").await;
    assert_eq!(join["nodelist"][0]["pve_fp"], listed[0]["ssl_fingerprint"]);
}

#[tokio::test(start_paused = true)]
async fn guests_of_all_nodes_are_switched_at_once() {
    let (_, root) = pve9().await;
    ubuntu(&root, 150, &[]).await;
    ubuntu(&root, 151, &[]).await;
    root.ok(
        Method::POST,
        "/nodes/pve1/qemu/151/migrate",
        &[("target", "pve2")],
    )
    .await;
    let both = [("vms", "150"), ("vms", "151")];
    root.ok(Method::POST, "/cluster/bulk-action/guest/start", &both)
        .await;
    for path in ["/nodes/pve1/qemu/150", "/nodes/pve2/qemu/151"] {
        let now = root.get(&format!("{path}/status/current")).await;
        assert_eq!(now["status"], "running", "{path}");
    }
    let to = [("vms", "150"), ("vms", "151"), ("target", "pve3")];
    root.ok(Method::POST, "/cluster/bulk-action/guest/migrate", &to)
        .await;
    root.ok(Method::POST, "/cluster/bulk-action/guest/shutdown", &both)
        .await;
    for vmid in [150, 151] {
        let now = root
            .get(&format!("/nodes/pve3/qemu/{vmid}/status/current"))
            .await;
        assert_eq!(now["status"], "stopped", "{vmid}");
    }
    let gone = root
        .try_post("/cluster/bulk-action/guest/start", &[("vms", "999")])
        .await;
    assert_eq!(gone.error("vms"), "guest with vmid '999' does not exist");
    let (_, root) = fresh(Release::V8_4).await;
    assert_eq!(
        root.try_post("/cluster/bulk-action/guest/start", &[])
            .await
            .status,
        501
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_copied_to_another_node() {
    let (_, root) = pve9().await;
    root.create(150, &[("scsi0", "data:1,format=raw")]).await;
    let path = "/nodes/pve1/storage/data/content/data:150/vm-150-disk-0.raw";
    let to = [
        ("target", "data:9999/vm-9999-pvc.raw"),
        ("target_node", "pve2"),
    ];
    root.ok(Method::POST, path, &to).await;
    let twice = root.run(Method::POST, path, &to).await;
    assert_eq!(
        twice.exit,
        "volume 'data:9999/vm-9999-pvc.raw' already exists"
    );
    let copy = root
        .get("/nodes/pve2/storage/data/content/data:9999/vm-9999-pvc.raw")
        .await;
    assert_eq!(copy["size"], 1_u64 << 30);
    assert_eq!(
        root.get("/nodes/pve1/storage/data/content?vmid=9999")
            .await
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn the_next_times_of_a_schedule_are_told() {
    let (_, root) = pve9().await;
    let path = "/cluster/jobs/schedule-analyze?schedule=daily&iterations=2&starttime=1794700000";
    let times = root.get(path).await;
    let times = times.as_array().unwrap();
    assert_eq!(times.len(), 2);
    assert_eq!(times[0]["utc"], "2026-11-15 00:00:00");
}
