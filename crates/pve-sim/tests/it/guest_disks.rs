use http::Method;

use crate::client::pve9;

#[tokio::test(start_paused = true)]
async fn disks_grow_and_never_shrink() {
    let (_, pve) = pve9().await;
    pve.create(
        200,
        &[
            ("scsi0", "data:1,format=qcow2"),
            ("ide2", "none,media=cdrom"),
        ],
    )
    .await;
    let resize = |disk: &'static str, size: &'static str| {
        let pve = pve.clone();
        async move {
            let params = [("disk", disk), ("size", size)];
            pve.run(Method::PUT, "/nodes/pve1/qemu/200/resize", &params)
                .await
                .exit
        }
    };
    assert_eq!(resize("scsi0", "+1G").await, "OK");
    assert_eq!(
        pve.config(200).await["scsi0"],
        "data:200/vm-200-disk-0.qcow2,size=2G"
    );
    assert_eq!(
        resize("scsi0", "1G").await,
        "shrinking disks is not supported"
    );
    assert_eq!(resize("scsi0", "2G").await, "OK");
    assert_eq!(resize("scsi9", "2G").await, "disk 'scsi9' does not exist");
    assert_eq!(resize("ide2", "2G").await, "you can't resize a cdrom");
}

#[tokio::test(start_paused = true)]
async fn a_moved_disk_leaves_its_source_unless_told_to_delete_it() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1,format=qcow2,ssd=1")])
        .await;
    let path = "/nodes/pve1/qemu/200/move_disk";
    let answer = pve.call(Method::POST, path, &[("disk", "scsi0")]).await;
    assert_eq!(answer.status, 400);
    let same = pve
        .refused(
            Method::POST,
            path,
            &[("disk", "scsi0"), ("storage", "data")],
        )
        .await;
    assert_eq!(
        same.1,
        "you can't move to the same storage with same format"
    );
    pve.ok(
        Method::POST,
        path,
        &[("disk", "scsi0"), ("storage", "local-lvm")],
    )
    .await;
    let config = pve.config(200).await;
    assert_eq!(config["scsi0"], "local-lvm:vm-200-disk-0,size=1G,ssd=1");
    assert_eq!(config["unused0"], "data:200/vm-200-disk-0.qcow2");
    let params = [("disk", "scsi0"), ("storage", "tank"), ("delete", "1")];
    pve.ok(Method::POST, path, &params).await;
    assert_eq!(
        pve.config(200).await["scsi0"],
        "tank:vm-200-disk-0,size=1G,ssd=1"
    );
    let left = pve
        .data(
            Method::GET,
            "/nodes/pve1/storage/local-lvm/content",
            &[("vmid", "200")],
        )
        .await;
    assert_eq!(left.as_array().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_disk_can_change_hands() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi1", "data:1")]).await;
    pve.create(201, &[]).await;
    let params = [
        ("disk", "scsi1"),
        ("target-vmid", "201"),
        ("target-disk", "virtio0"),
    ];
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/move_disk", &params)
        .await;
    assert!(pve.config(200).await.get("scsi1").is_none());
    assert_eq!(
        pve.config(201).await["virtio0"],
        "data:201/vm-201-disk-0.raw,size=1G"
    );
}

#[tokio::test(start_paused = true)]
async fn destroying_takes_what_belongs_to_the_guest_and_nothing_else() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1"), ("ide2", "data:cloudinit")])
        .await;
    pve.put("/nodes/pve1/qemu/200/config", &[("delete", "scsi0")])
        .await;
    let alloc = |name: &'static str| {
        let pve = pve.clone();
        async move {
            let params = [("vmid", "200"), ("filename", name), ("size", "1G")];
            pve.data(Method::POST, "/nodes/pve1/storage/data/content", &params)
                .await;
        }
    };
    alloc("vm-200-disk-7.raw").await;
    pve.ok(Method::DELETE, "/nodes/pve1/qemu/200", &[]).await;
    let left = pve.get("/nodes/pve1/storage/data/content").await;
    assert_eq!(
        left[0]["volid"], "data:200/vm-200-disk-7.raw",
        "unreferenced disks stay"
    );
    assert_eq!(left.as_array().unwrap().len(), 1);
    pve.create(200, &[]).await;
    let all = [("destroy-unreferenced-disks", "1"), ("purge", "1")];
    let ended = pve.ok(Method::DELETE, "/nodes/pve1/qemu/200", &all).await;
    assert_eq!(ended.log[0], "purging VM 200 from related configurations..");
    let left = pve.get("/nodes/pve1/storage/data/content").await;
    assert_eq!(left.as_array().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn features_follow_the_storage() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("scsi0", "data:1")]).await;
    pve.create(201, &[("scsi0", "ceph:1")]).await;
    let feature = |vmid: u32, name: &'static str| {
        let pve = pve.clone();
        async move {
            let path = format!("/nodes/pve1/qemu/{vmid}/feature");
            pve.data(Method::GET, &path, &[("feature", name)]).await
        }
    };
    assert_eq!(feature(200, "snapshot").await["hasFeature"], 0);
    assert_eq!(
        feature(200, "copy").await["nodes"],
        serde_json::json!(["pve1"])
    );
    let shared = feature(201, "snapshot").await;
    assert_eq!(shared["hasFeature"], 1);
    assert_eq!(shared["nodes"].as_array().unwrap().len(), 3);
}
