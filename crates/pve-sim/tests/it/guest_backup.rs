use http::Method;
use pve_sim::{Action, Fault};

use crate::client::{pve9, ubuntu};

#[tokio::test(start_paused = true)]
async fn a_backup_brings_a_guest_back() {
    let (_, pve) = pve9().await;
    ubuntu(
        &pve,
        300,
        &[("name", "precious"), ("ide2", "ceph:cloudinit")],
    )
    .await;
    let before = pve.config(300).await;
    let missing = pve.call(Method::POST, "/nodes/pve1/vzdump", &[]).await;
    assert_eq!(missing.body["errors"]["vmid"], "property is missing");
    let params = [
        ("vmid", "300"),
        ("storage", "nfs"),
        ("compress", "zstd"),
        ("mode", "stop"),
    ];
    let ended = pve.ok(Method::POST, "/nodes/pve1/vzdump", &params).await;
    assert!(
        ended
            .log
            .contains(&"INFO: Backup job finished successfully".to_owned())
    );
    assert!(pve.config(300).await.get("lock").is_none());
    let list = pve
        .data(
            Method::GET,
            "/nodes/pve1/storage/nfs/content",
            &[("content", "backup")],
        )
        .await;
    let archive = list[0]["volid"].as_str().unwrap().to_owned();
    assert!(archive.starts_with("nfs:backup/vzdump-qemu-300-") && archive.ends_with(".vma.zst"));
    pve.ok(Method::DELETE, "/nodes/pve1/qemu/300", &[]).await;
    let restore = [
        ("vmid", "300"),
        ("archive", archive.as_str()),
        ("storage", "tank"),
    ];
    pve.ok(Method::POST, "/nodes/pve1/qemu", &restore).await;
    let after = pve.config(300).await;
    assert_eq!(after["name"], "precious");
    assert_eq!(
        after["net0"], before["net0"],
        "addresses are kept unless `unique` is asked for"
    );
    assert_eq!(after["scsi0"], "tank:vm-300-disk-0,size=4G");
    pve.boot(300).await;
    let again = pve
        .refused(Method::POST, "/nodes/pve1/qemu", &restore)
        .await;
    assert_eq!(
        again.1,
        "unable to restore VM 300 - VM 300 already exists on node 'pve1'"
    );
}

#[tokio::test(start_paused = true)]
async fn a_restore_that_fails_leaves_a_bare_guest_without_a_lock() {
    let (cluster, pve) = pve9().await;
    ubuntu(&pve, 300, &[("name", "precious")]).await;
    let params = [("vmid", "300"), ("storage", "nfs")];
    pve.ok(Method::POST, "/nodes/pve1/vzdump", &params).await;
    let list = "/nodes/pve1/storage/nfs/content";
    let list = pve.data(Method::GET, list, &[("content", "backup")]).await;
    let archive = list[0]["volid"].as_str().unwrap().to_owned();
    let exit = "no space left on device".to_owned();
    let route = "POST /nodes/{node}/qemu";
    cluster
        .control()
        .inject(Fault::once(route, Action::FailTask { exit }));
    let restore = [
        ("vmid", "301"),
        ("archive", archive.as_str()),
        ("description", "ours"),
    ];
    let ended = pve.run(Method::POST, "/nodes/pve1/qemu", &restore).await;
    assert_eq!(ended.exit, "no space left on device");
    let left = pve.config(301).await;
    let keys: Vec<&String> = left.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["digest", "memory"], "{left}");
    assert_eq!(left["memory"].as_str(), Some("128"));
    let list = "/nodes/pve1/storage/ceph/content";
    let list = pve.data(Method::GET, list, &[]).await.to_string();
    assert!(!list.contains("vm-301-"), "{list}");
    pve.ok(Method::DELETE, "/nodes/pve1/qemu/301", &[]).await;
}
