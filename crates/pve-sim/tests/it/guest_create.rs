use http::Method;
use pve_sim::Release;

use crate::client::{fresh, pve9};

#[tokio::test(start_paused = true)]
async fn a_new_vm_gets_addresses_ids_and_a_boot_order() {
    let (_, pve) = pve9().await;
    let options = [
        ("name", "tmpl"),
        ("memory", "512"),
        ("scsi0", "data:1,format=qcow2,discard=on,iothread=1,ssd=1"),
        ("ide2", "data:cloudinit"),
        ("net0", "virtio,bridge=vmbr0,firewall=1"),
        ("onboot", "1"),
    ];
    pve.create(200, &options).await;
    let config = pve.config(200).await;
    assert_eq!(
        config["scsi0"],
        "data:200/vm-200-disk-0.qcow2,discard=on,iothread=1,size=1G,ssd=1"
    );
    assert_eq!(
        config["ide2"],
        "data:200/vm-200-cloudinit.qcow2,media=cdrom"
    );
    assert_eq!(config["boot"], "order=scsi0;ide2;net0");
    assert_eq!(config["memory"], "512");
    assert_eq!(config["onboot"], 1);
    let net = config["net0"].as_str().unwrap();
    assert!(
        net.starts_with("virtio=BC:24:11:") && net.ends_with(",bridge=vmbr0,firewall=1"),
        "{net}"
    );
    assert!(config["smbios1"].as_str().unwrap().starts_with("uuid="));
    assert!(config.get("cores").is_none(), "defaults are not echoed");
    assert!(config.get("lock").is_none());
}

#[tokio::test(start_paused = true)]
async fn efi_and_tpm_disks_count_in_the_order_of_option_names() {
    let (_, pve) = pve9().await;
    let options = [
        ("scsi0", "data:1,format=qcow2"),
        ("efidisk0", "data:1,efitype=4m,pre-enrolled-keys=0"),
        ("tpmstate0", "data:1,version=v2.0"),
    ];
    pve.create(200, &options).await;
    let config = pve.config(200).await;
    assert_eq!(
        config["efidisk0"],
        "data:200/vm-200-disk-0.raw,efitype=4m,pre-enrolled-keys=0,size=528K"
    );
    assert_eq!(config["scsi0"], "data:200/vm-200-disk-1.qcow2,size=1G");
    assert_eq!(
        config["tpmstate0"],
        "data:200/vm-200-disk-2.raw,size=4M,version=v2.0"
    );
}

#[tokio::test(start_paused = true)]
async fn an_id_is_taken_by_the_call_itself() {
    let (_, pve) = pve9().await;
    let first = pve
        .data(Method::POST, "/nodes/pve1/qemu", &[("vmid", "200")])
        .await;
    let (status, text) = pve
        .refused(Method::POST, "/nodes/pve2/qemu", &[("vmid", "200")])
        .await;
    assert_eq!(status, 500);
    assert_eq!(
        text,
        "unable to create VM 200 - VM 200 already exists on node 'pve1'"
    );
    assert_eq!(pve.ended(first.as_str().unwrap()).await.exit, "OK");
}

#[tokio::test(start_paused = true)]
async fn a_failed_creation_leaves_nothing_behind() {
    let (_, pve) = pve9().await;
    // The second disk cannot be made: its volume does not exist.
    let params = [
        ("vmid", "200"),
        ("scsi0", "data:1"),
        ("scsi1", "data:200/vm-200-disk-9.raw"),
    ];
    let ended = pve.run(Method::POST, "/nodes/pve1/qemu", &params).await;
    assert_eq!(
        ended.exit,
        "unable to create VM 200 - volume 'data:200/vm-200-disk-9.raw' does not exist"
    );
    let (_, text) = pve
        .refused(Method::GET, "/nodes/pve1/qemu/200/config", &[])
        .await;
    assert_eq!(
        text,
        "Configuration file 'nodes/pve1/qemu-server/200.conf' does not exist"
    );
    let left = pve
        .data(
            Method::GET,
            "/nodes/pve1/storage/data/content",
            &[("vmid", "200")],
        )
        .await;
    assert_eq!(left.as_array().unwrap().len(), 0);
    pve.create(200, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn mistakes_in_drives_are_refused_on_the_call() {
    let (_, pve) = pve9().await;
    let refuse = |drive: &'static str| {
        let pve = pve.clone();
        async move {
            pve.refused(
                Method::POST,
                "/nodes/pve1/qemu",
                &[("vmid", "200"), ("scsi0", drive)],
            )
            .await
        }
    };
    assert_eq!(
        refuse("nostore:1").await,
        (500, "storage 'nostore' does not exist".into())
    );
    assert_eq!(
        refuse("data:4M").await,
        (500, "unable to parse directory volume name '4M'".into())
    );
    assert_eq!(
        refuse("local-lvm:x").await,
        (500, "unable to parse lvm volume name 'x'".into())
    );
    assert_eq!(refuse("local:1").await.0, 400);
    assert_eq!(refuse("data:iso/x.iso").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn one_call_copies_configures_and_starts() {
    let (_, pve) = pve9().await;
    let params = [
        ("vmid", "300"),
        ("name", "node-1"),
        ("scsi0", "local-lvm:0,import-from=ceph:base-9000-disk-0"),
        ("agent", "1"),
        ("net0", "virtio,bridge=vmbr0"),
        ("description", "owner: me"),
        ("start", "1"),
    ];
    let ended = pve.ok(Method::POST, "/nodes/pve1/qemu", &params).await;
    assert!(ended.log.contains(&"Execute autostart".to_owned()));
    assert_eq!(
        pve.config(300).await["scsi0"],
        "local-lvm:vm-300-disk-0,size=4G"
    );
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        if pve.get("/nodes/pve1/qemu/300/status/current").await["status"] == "running" {
            return;
        }
    }
    panic!("the new guest was not started");
}

#[tokio::test(start_paused = true)]
async fn releases_differ_in_how_they_store_tags_at_creation() {
    for (release, stored) in [(Release::V9_2, "a;b"), (Release::V8_4, "b;a")] {
        let (_, pve) = fresh(release).await;
        pve.create(200, &[("tags", "b;a")]).await;
        assert_eq!(pve.config(200).await["tags"], stored);
        pve.put("/nodes/pve1/qemu/200/config", &[("tags", "d,c")])
            .await;
        assert_eq!(pve.config(200).await["tags"], "c;d");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_makes_the_same_machine() {
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (_, pve) = pve9().await;
        pve.create(200, &[("net0", "virtio,bridge=vmbr0"), ("scsi0", "tank:1")])
            .await;
        seen.push(pve.config(200).await);
    }
    assert_eq!(seen[0], seen[1]);
}
