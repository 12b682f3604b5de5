//! What nodes are told, run and have: settings, services, packages, media.

use http::Method;

use crate::client::pve9;

#[tokio::test(start_paused = true)]
async fn a_node_keeps_what_it_is_told() {
    let (_, root) = pve9().await;
    root.put(
        "/nodes/pve1/config",
        &[
            ("description", "rack 7"),
            ("wakeonlan", "BC:24:11:00:00:01"),
        ],
    )
    .await;
    let config = root.get("/nodes/pve1/config").await;
    assert_eq!(config["description"], "rack 7");
    let digest = config["digest"].as_str().unwrap();
    root.put(
        "/nodes/pve1/config",
        &[("delete", "description"), ("digest", digest)],
    )
    .await;
    let stale = [("description", "x"), ("digest", digest)];
    let (status, text) = root
        .refused(Method::PUT, "/nodes/pve1/config", &stale)
        .await;
    assert!(
        status == 500 && text.starts_with("detected modified configuration"),
        "{text}"
    );
    assert!(
        root.get("/nodes/pve1/config")
            .await
            .get("description")
            .is_none()
    );

    root.put("/nodes/pve1/time", &[("timezone", "Europe/Vienna")])
        .await;
    assert_eq!(
        root.get("/nodes/pve1/time").await["timezone"],
        "Europe/Vienna"
    );
    assert_eq!(root.get("/nodes/pve2/time").await["timezone"], "UTC");

    root.data(
        Method::POST,
        "/nodes/pve1/hosts",
        &[("data", "127.0.0.1 localhost\n")],
    )
    .await;
    let hosts = root.get("/nodes/pve1/hosts").await;
    assert_eq!(hosts["data"], "127.0.0.1 localhost\n");

    let key = [("key", "pve1c-0123456789")];
    let (_, text) = root
        .refused(Method::PUT, "/nodes/pve1/subscription", &key)
        .await;
    assert_eq!(text, "wrong number of sockets (1 < 2)");
    root.put("/nodes/pve1/subscription", &[("key", "pve2c-0123456789")])
        .await;
    assert_eq!(root.get("/nodes/pve1/subscription").await["level"], "c");
}

#[tokio::test(start_paused = true)]
async fn a_service_is_stopped_and_started() {
    let (_, root) = pve9().await;
    let state = "/nodes/pve1/services/pve-firewall/state";
    assert_eq!(root.get(state).await["active-state"], "active");
    root.ok(Method::POST, "/nodes/pve1/services/pve-firewall/stop", &[])
        .await;
    assert_eq!(root.get(state).await["state"], "dead");
    root.ok(
        Method::POST,
        "/nodes/pve1/services/pve-firewall/restart",
        &[],
    )
    .await;
    assert_eq!(root.get(state).await["state"], "running");
    let api = root
        .run(Method::POST, "/nodes/pve1/services/pveproxy/stop", &[])
        .await;
    assert_ne!(api.exit, "OK");
    let unknown = root.try_get("/nodes/pve1/services/nginx/state").await;
    assert_eq!(unknown.status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_node_changes_where_its_packages_come_from() {
    let (_, root) = pve9().await;
    let path = "/nodes/pve1/apt/repositories";
    let before = root.get(path).await;
    assert_eq!(before["standard-repos"][0]["status"], 1);
    root.put(path, &[("handle", "no-subscription")]).await;
    let twice = root.try_put(path, &[("handle", "no-subscription")]).await;
    assert_eq!(twice.message(), "standard repository already configured");
    let after = root.get(path).await;
    let file = after["files"][0]["path"].as_str().unwrap();
    let off = [("path", file), ("index", "0"), ("enabled", "0")];
    root.data(Method::POST, path, &off).await;
    let listed = &root.get(path).await["files"][0]["repositories"];
    assert_eq!(
        (&listed[0]["Enabled"], &listed[1]["Enabled"]),
        (&0.into(), &1.into())
    );
    let versions = root.get("/nodes/pve1/apt/versions").await;
    assert_eq!(versions[1]["Version"], "9.2.11");
}

#[tokio::test(start_paused = true)]
async fn media_are_those_below_the_local_storages() {
    let (_, root) = pve9().await;
    let disks = root.get("/nodes/pve1/disks/list").await;
    let disks = disks.as_array().unwrap();
    let used: Vec<_> = disks
        .iter()
        .map(|disk| disk["used"].as_str().unwrap())
        .collect();
    assert_eq!(used, ["BIOS boot", "ext4", "LVM", "ZFS"]);
    let last = disks[3]["devpath"].as_str().unwrap();
    let smart = format!("/nodes/pve1/disks/smart?disk={last}");
    assert_eq!(root.get(&smart).await["health"], "PASSED");
    assert_eq!(root.get("/nodes/pve1/scan/zfs").await[0]["pool"], "tank");
    let pool = root.get("/nodes/pve1/disks/zfs/tank").await;
    assert_eq!(pool["children"][0]["children"][0]["name"], last);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_off_is_woken_through_the_network() {
    let (cluster, root) = pve9().await;
    let (_, text) = root
        .refused(Method::POST, "/nodes/pve3/wakeonlan", &[])
        .await;
    assert_eq!(text, "Parameter verification failed.");
    root.put("/nodes/pve3/config", &[("wakeonlan", "BC:24:11:00:00:03")])
        .await;
    cluster.kill_node("pve3");
    let mac = root.data(Method::POST, "/nodes/pve3/wakeonlan", &[]).await;
    assert_eq!(mac, "BC:24:11:00:00:03");
    for _ in 0..100 {
        if root.try_get("/nodes/pve3/status").await.status == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    panic!("pve3 stays off");
}

#[tokio::test(start_paused = true)]
async fn a_node_leaves_the_cluster_and_its_guests_stay_known() {
    let (cluster, root) = pve9().await;
    let member = |node: &str| format!("/cluster/config/nodes/{node}");
    let (_, text) = root.refused(Method::DELETE, &member("pve1"), &[]).await;
    assert_eq!(text, "Cannot delete myself from cluster!");
    let (_, text) = root.refused(Method::DELETE, &member("pve9"), &[]).await;
    assert!(text.contains("not a known host of the cluster"), "{text}");
    let guest = [("vmid", "150"), ("memory", "512")];
    root.ok(Method::POST, "/nodes/pve3/qemu", &guest).await;

    cluster.kill_node("pve3");
    root.data(Method::DELETE, &member("pve3"), &[]).await;
    assert_eq!(root.get("/nodes").await.as_array().unwrap().len(), 2);
    let rows = root.get("/cluster/resources?type=vm").await;
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["vmid"] == 150).unwrap();
    assert_eq!(row["node"], "pve3");
    let (_, text) = root.refused(Method::POST, "/nodes/pve1/qemu", &guest).await;
    assert!(text.contains("already exists"), "{text}");
    let answer = root.try_get("/nodes/pve3/qemu/150/config").await;
    assert_eq!(answer.status, 500);
}

#[tokio::test(start_paused = true)]
async fn the_log_of_a_node_tells_its_tasks() {
    let (_, root) = pve9().await;
    root.create(150, &[]).await;
    let lines = root.get("/nodes/pve1/journal?lastentries=1").await;
    let line = lines[1].as_str().unwrap();
    assert!(
        line.contains("end task UPID:pve1:") && line.ends_with(" OK"),
        "{line}"
    );
    let syslog = root.get("/nodes/pve1/syslog?service=pvedaemon").await;
    assert!(syslog.as_array().unwrap().len() >= 2);
    assert_eq!(
        root.get("/nodes/pve1/syslog?since=2100-01-01")
            .await
            .as_array()
            .unwrap()
            .len(),
        0
    );
}
