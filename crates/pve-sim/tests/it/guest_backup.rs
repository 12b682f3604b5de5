use http::Method;

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
