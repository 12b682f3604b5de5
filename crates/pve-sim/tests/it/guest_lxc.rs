use http::Method;

use crate::client::{Client, pve9};

const TEMPLATE: &str = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";

async fn container(pve: &Client, storage: &str) {
    let root = format!("{storage}:8");
    let params = [
        ("vmid", "400"),
        ("ostemplate", TEMPLATE),
        ("hostname", "ct-1"),
        ("rootfs", &root),
        ("net0", "name=eth0,bridge=vmbr0,ip=10.9.0.4/24"),
        ("memory", "256"),
    ];
    pve.ok(Method::POST, "/nodes/pve1/lxc", &params).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_from_a_template_and_tells_its_addresses() {
    let (_, pve) = pve9().await;
    container(&pve, "local-lvm").await;
    let config = pve.get("/nodes/pve1/lxc/400/config").await;
    assert_eq!(config["rootfs"], "local-lvm:vm-400-disk-0,size=8G");
    assert_eq!(
        (config["ostype"].as_str(), config["memory"].as_i64()),
        (Some("debian"), Some(256))
    );
    assert_eq!(config["unprivileged"], 1);
    pve.ok(Method::POST, "/nodes/pve1/lxc/400/status/start", &[])
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let interfaces = pve.get("/nodes/pve1/lxc/400/interfaces").await;
    let eth0 = interfaces
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == "eth0")
        .unwrap();
    assert_eq!(eth0["inet"], "10.9.0.4/24");
    let again = pve
        .refused(Method::POST, "/nodes/pve1/lxc/400/status/start", &[])
        .await;
    assert_eq!(again, (500, "CT 400 already running".to_owned()));
    let destroy = pve
        .refused(Method::DELETE, "/nodes/pve1/lxc/400", &[])
        .await;
    assert_eq!(destroy.0, 500);
    pve.ok(Method::POST, "/nodes/pve1/lxc/400/status/shutdown", &[])
        .await;
    pve.ok(Method::DELETE, "/nodes/pve1/lxc/400", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn ids_are_shared_with_vms_and_missing_templates_fail_the_task() {
    let (_, pve) = pve9().await;
    let params = [("vmid", "9000"), ("ostemplate", TEMPLATE)];
    let refused = pve.refused(Method::POST, "/nodes/pve1/lxc", &params).await;
    assert_eq!(refused.0, 500);
    let params = [
        ("vmid", "400"),
        ("ostemplate", "local:vztmpl/x.tar.zst"),
        ("rootfs", "local-lvm:4"),
    ];
    let ended = pve.run(Method::POST, "/nodes/pve1/lxc", &params).await;
    assert_eq!(
        ended.exit,
        "unable to create CT 400 - volume 'local:vztmpl/x.tar.zst' does not exist"
    );
    let gone = pve
        .refused(Method::GET, "/nodes/pve1/lxc/400/config", &[])
        .await;
    assert_eq!(
        gone.1,
        "Configuration file 'nodes/pve1/lxc/400.conf' does not exist"
    );
}

#[tokio::test(start_paused = true)]
async fn a_container_is_changed_grown_snapshotted_cloned_and_moved() {
    let (_, pve) = pve9().await;
    container(&pve, "tank").await;
    let config = "/nodes/pve1/lxc/400/config";
    assert_eq!(
        pve.get(config).await["rootfs"],
        "tank:subvol-400-disk-0,size=8G"
    );
    pve.put(config, &[("mp0", "ceph:2,mp=/data"), ("cores", "2")])
        .await;
    assert_eq!(
        pve.get(config).await["mp0"],
        "ceph:vm-400-disk-0,mp=/data,size=2G"
    );
    let grow = [("disk", "mp0"), ("size", "+1G")];
    pve.ok(Method::PUT, "/nodes/pve1/lxc/400/resize", &grow)
        .await;
    assert_eq!(
        pve.get(config).await["mp0"],
        "ceph:vm-400-disk-0,mp=/data,size=3G"
    );
    let snapshots = "/nodes/pve1/lxc/400/snapshot";
    pve.ok(Method::POST, snapshots, &[("snapname", "s1")]).await;
    pve.put(config, &[("hostname", "other")]).await;
    pve.ok(Method::POST, &format!("{snapshots}/s1/rollback"), &[])
        .await;
    assert_eq!(pve.get(config).await["hostname"], "ct-1");
    pve.ok(Method::DELETE, &format!("{snapshots}/s1"), &[])
        .await;
    let params = [
        ("newid", "401"),
        ("hostname", "ct-2"),
        ("full", "1"),
        ("storage", "ceph"),
    ];
    pve.ok(Method::POST, "/nodes/pve1/lxc/400/clone", &params)
        .await;
    let clone = pve.get("/nodes/pve1/lxc/401/config").await;
    assert_eq!(clone["rootfs"], "ceph:vm-401-disk-0,size=8G");
    pve.ok(Method::POST, "/nodes/pve1/lxc/401/status/start", &[])
        .await;
    let path = "/nodes/pve1/lxc/401/migrate";
    let refused = pve.refused(Method::POST, path, &[("target", "pve2")]).await;
    assert_eq!(
        refused.1,
        "can't migrate running container without --online or --restart"
    );
    pve.ok(Method::POST, path, &[("target", "pve2"), ("restart", "1")])
        .await;
    let current = pve.get("/nodes/pve2/lxc/401/status/current").await;
    assert_eq!(current["status"], "running");
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_of_a_template_that_the_vendor_offers() {
    let (_, root) = pve9().await;
    let offered = root.get("/nodes/pve1/aplinfo").await;
    let template = offered[0]["template"].as_str().unwrap();
    let unknown = [("storage", "local"), ("template", "none")];
    let unknown = root.try_post("/nodes/pve1/aplinfo", &unknown).await;
    assert_eq!(unknown.error("template"), "no such template");
    let nowhere = [("storage", "ceph"), ("template", template)];
    let (_, text) = root
        .refused(Method::POST, "/nodes/pve1/aplinfo", &nowhere)
        .await;
    assert_eq!(text, "storage 'ceph' does not support templates");
    let wanted = [("storage", "local"), ("template", template)];
    root.ok(Method::POST, "/nodes/pve1/aplinfo", &wanted).await;
    let archive = format!("local:vztmpl/{template}");
    let options = [
        ("vmid", "250"),
        ("ostemplate", archive.as_str()),
        ("rootfs", "ceph:4"),
        ("hostname", "offered"),
    ];
    root.ok(Method::POST, "/nodes/pve1/lxc", &options).await;
    let places = root.get("/nodes/pve1/lxc/250/migrate").await;
    assert_eq!(places["allowed-nodes"], serde_json::json!(["pve2", "pve3"]));
}

/// A call of which a part fails changes nothing, unlike those of virtual machines.
#[tokio::test(start_paused = true)]
async fn a_mount_point_without_room_refuses_the_whole_call() {
    let (_, pve) = pve9().await;
    pve.put("/storage/tank", &[("sparse", "0")]).await;
    container(&pve, "tank").await;
    let config = "/nodes/pve1/lxc/400/config";
    let before = pve.get(config).await;
    for power in ["stop", "start"] {
        if power == "start" {
            let start = "/nodes/pve1/lxc/400/status/start";
            pve.ok(Method::POST, start, &[]).await;
        }
        let wish = [("mp0", "tank:900000,mp=/data"), ("hostname", "other")];
        let refused = pve.try_put(config, &wish).await;
        let text = refused.error("mp0");
        let begins = match power {
            "start" => "unable to hotplug mp0: zfs error",
            _ => "unable to apply pending change mp0 : zfs error",
        };
        assert!(text.starts_with(begins), "{text}");
        assert_eq!(pve.get(config).await, before);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_mounted_in_a_running_container_is_taken_out_or_replaced_by_a_restart() {
    let (_, pve) = pve9().await;
    container(&pve, "local-lvm").await;
    let config = "/nodes/pve1/lxc/400/config";
    let power = |what: &str| format!("/nodes/pve1/lxc/400/status/{what}");
    let current = "/nodes/pve1/lxc/400/config?current=1";
    pve.ok(Method::POST, &power("start"), &[]).await;
    let wish = [("mp0", "local-lvm:1,mp=/a"), ("mp1", "local-lvm:1,mp=/b")];
    pve.put(config, &wish).await;
    let made = pve.get(current).await;
    assert_eq!(made["mp0"], "local-lvm:vm-400-disk-1,mp=/a,size=1G");
    // Taken out and set again it stays.
    pve.put(config, &[("delete", "mp0")]).await;
    assert!(pve.get(config).await["mp0"].is_null());
    assert_eq!(pve.get(current).await["mp0"], made["mp0"]);
    let back = made["mp0"].as_str().unwrap();
    pve.put(config, &[("mp0", back)]).await;
    let rows = pve.get("/nodes/pve1/lxc/400/pending").await;
    let waits = |row: &serde_json::Value| row.get("pending").or(row.get("delete")).is_some();
    assert!(!rows.as_array().unwrap().iter().any(waits), "{rows}");

    pve.put(config, &[("delete", "mp0"), ("mp1", "local-lvm:2,mp=/b")])
        .await;
    assert_eq!(pve.get(current).await, {
        let mut same = made.clone();
        same["digest"] = pve.get(current).await["digest"].clone();
        same
    });
    pve.ok(Method::POST, &power("reboot"), &[]).await;
    let after = pve.get(current).await;
    assert!(after["mp0"].is_null(), "{after}");
    assert_eq!(after["unused0"], "local-lvm:vm-400-disk-1");
    assert_eq!(after["unused1"], "local-lvm:vm-400-disk-2");
    assert_eq!(after["mp1"], "local-lvm:vm-400-disk-3,mp=/b,size=2G");
}

#[tokio::test(start_paused = true)]
async fn a_replaced_mount_point_of_a_stopped_container_stays_with_it_unused() {
    let (_, pve) = pve9().await;
    container(&pve, "local-lvm").await;
    let config = "/nodes/pve1/lxc/400/config";
    pve.put(config, &[("mp0", "local-lvm:1,mp=/a")]).await;
    let digest = pve.get(config).await["digest"].clone();
    let digest = digest.as_str().unwrap();
    pve.put(config, &[("mp0", "local-lvm:1,mp=/a")]).await;
    let after = pve.get(config).await;
    assert_eq!(after["mp0"], "local-lvm:vm-400-disk-2,mp=/a,size=1G");
    assert_eq!(after["unused0"], "local-lvm:vm-400-disk-1");
    let late = [("mp1", "local-lvm:1,mp=/b"), ("digest", digest)];
    let refused = pve.refused(Method::PUT, config, &late).await;
    assert_eq!(refused.1, "checksum mismatch (file change by other user?)");
}
