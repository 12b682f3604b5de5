use http::Method;

use crate::client::{pve9, ubuntu};

const MIGRATE: &str = "/nodes/pve1/qemu/300/migrate";

#[tokio::test(start_paused = true)]
async fn a_running_guest_on_shared_disks_moves_with_its_memory() {
    let (cluster, pve) = pve9().await;
    ubuntu(&pve, 300, &[]).await;
    pve.boot(300).await;
    let addresses = cluster.interfaces(300).unwrap();
    let refused = pve
        .refused(Method::POST, MIGRATE, &[("target", "pve2")])
        .await;
    assert_eq!(refused.1, "can't migrate running VM without --online");
    pve.ok(
        Method::POST,
        MIGRATE,
        &[("target", "pve2"), ("online", "1")],
    )
    .await;
    let old = pve
        .refused(Method::GET, "/nodes/pve1/qemu/300/config", &[])
        .await;
    assert_eq!(
        old.1,
        "Configuration file 'nodes/pve1/qemu-server/300.conf' does not exist"
    );
    let current = pve.get("/nodes/pve2/qemu/300/status/current").await;
    assert_eq!(current["status"], "running");
    assert_eq!(
        cluster.interfaces(300).unwrap(),
        addresses,
        "the system did not notice"
    );
    assert!(
        pve.get("/nodes/pve2/qemu/300/config")
            .await
            .get("lock")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn local_disks_are_carried_only_when_asked_and_may_change_storage() {
    let (_, pve) = pve9().await;
    let disk = [
        ("scsi0", "local-lvm:0,import-from=ceph:base-9000-disk-0"),
        ("agent", "1"),
    ];
    pve.create(300, &disk).await;
    pve.boot(300).await;
    let online = [("target", "pve2"), ("online", "1")];
    let ended = pve.run(Method::POST, MIGRATE, &online).await;
    assert_eq!(ended.exit, "migration aborted");
    assert!(
        ended
            .log
            .iter()
            .any(|line| line.contains("without with-local-disks option"))
    );
    assert!(pve.config(300).await.get("lock").is_none());
    let with_disks = [
        ("target", "pve2"),
        ("online", "1"),
        ("with-local-disks", "1"),
        ("targetstorage", "local-lvm:tank"),
    ];
    pve.ok(Method::POST, MIGRATE, &with_disks).await;
    let config = pve.get("/nodes/pve2/qemu/300/config").await;
    assert_eq!(config["scsi0"], "tank:vm-300-disk-0,size=4G");
    let left = pve
        .data(
            Method::GET,
            "/nodes/pve1/storage/local-lvm/content",
            &[("vmid", "300")],
        )
        .await;
    assert_eq!(left.as_array().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_stands_in_the_way_is_found_by_the_worker() {
    let (_, pve) = pve9().await;
    pve.ok(
        Method::POST,
        "/nodes/pve1/qemu/9010/clone",
        &[("newid", "300")],
    )
    .await;
    pve.ok(Method::POST, MIGRATE, &[("target", "pve2")]).await;
    let back = pve
        .refused(
            Method::POST,
            "/nodes/pve2/qemu/300/migrate",
            &[("target", "pve2")],
        )
        .await;
    assert_eq!(back.0, 400);
    // A linked clone on a directory cannot leave its base.
    pve.create(310, &[("scsi0", "data:1,format=qcow2")]).await;
    pve.ok(Method::POST, "/nodes/pve1/qemu/310/template", &[])
        .await;
    pve.ok(
        Method::POST,
        "/nodes/pve1/qemu/310/clone",
        &[("newid", "311")],
    )
    .await;
    let ended = pve
        .run(
            Method::POST,
            "/nodes/pve1/qemu/311/migrate",
            &[("target", "pve2")],
        )
        .await;
    assert_eq!(ended.exit, "migration aborted");
    assert!(
        ended
            .log
            .iter()
            .any(|line| line.contains("as it's a clone of")),
        "{:?}",
        ended.log
    );
}

#[tokio::test(start_paused = true)]
async fn the_precondition_lists_local_disks_and_possible_nodes() {
    let (_, pve) = pve9().await;
    pve.create(300, &[("scsi0", "local-lvm:1"), ("scsi1", "ceph:1")])
        .await;
    let answer = pve.get(MIGRATE).await;
    assert_eq!(answer["running"], 0);
    assert_eq!(answer["allowed_nodes"], serde_json::json!(["pve2", "pve3"]));
    assert_eq!(answer["local_disks"].as_array().unwrap().len(), 1);
    assert_eq!(answer["local_disks"][0]["drivename"], "scsi0");
}

/// PVE stops a container before it looks whether that can move.
#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_move_is_stopped_for_it_and_started_where_it_was() {
    let (_, pve) = pve9().await;
    let params = [
        ("vmid", "400"),
        (
            "ostemplate",
            "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst",
        ),
        ("rootfs", "local-lvm:4"),
        ("memory", "256"),
    ];
    pve.ok(Method::POST, "/nodes/pve1/lxc", &params).await;
    let of = |what: &str| format!("/nodes/pve1/lxc/400/{what}");
    pve.ok(Method::POST, &of("status/start"), &[]).await;
    let snapshot = [("snapname", "before")];
    pve.ok(Method::POST, &of("snapshot"), &snapshot).await;
    tokio::time::sleep(std::time::Duration::from_mins(5)).await;
    let restart = [("target", "pve2"), ("restart", "1")];
    let ended = pve.run(Method::POST, &of("migrate"), &restart).await;
    assert_eq!(ended.exit, "migration aborted");
    let at = |words: &str| ended.log.iter().position(|line| line.contains(words));
    let order = [
        at("shutdown CT 400"),
        at("starting migration of CT 400"),
        at("non-migratable snapshot exists"),
        at("start container on source node"),
    ];
    assert!(
        order.is_sorted() && order[0].is_some(),
        "{order:?} {:?}",
        ended.log
    );
    let current = pve.get(&of("status/current")).await;
    assert_eq!(current["status"], "running");
    assert!(current["uptime"].as_u64().unwrap() < 60, "{current}");
    assert!(pve.get(&of("config")).await.get("lock").is_none());
}
