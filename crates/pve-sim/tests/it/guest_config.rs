use http::Method;
use pve_sim::Quirks;
use serde_json::{Value, json};

use crate::client::{Client, pve9, ubuntu};

const CONFIG: &str = "/nodes/pve1/qemu/200/config";

async fn pending(pve: &Client, key: &str) -> Value {
    let rows = pve.get("/nodes/pve1/qemu/200/pending").await;
    rows.as_array()
        .unwrap()
        .iter()
        .find(|row| row["key"] == key)
        .cloned()
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_running_guest_keeps_values_pending_until_it_stops() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 200, &[("cores", "2")]).await;
    pve.boot(200).await;
    pve.put(
        CONFIG,
        &[("memory", "2048"), ("cores", "4"), ("name", "now")],
    )
    .await;
    assert_eq!(
        pending(&pve, "cores").await,
        json!({"key": "cores", "value": 2, "pending": 4})
    );
    assert_eq!(
        pending(&pve, "name").await,
        json!({"key": "name", "value": "now"})
    );
    let current = pve.data(Method::GET, CONFIG, &[("current", "1")]).await;
    assert_eq!(
        (current["memory"].as_str(), current["cores"].as_i64()),
        (Some("1024"), Some(2))
    );
    assert_eq!(pve.config(200).await["cores"], 4);
    pve.put(CONFIG, &[("revert", "memory")]).await;
    assert_eq!(
        pending(&pve, "memory").await,
        json!({"key": "memory", "value": "1024"})
    );
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/status/stop", &[])
        .await;
    assert_eq!(
        pending(&pve, "cores").await,
        json!({"key": "cores", "value": 4})
    );
}

#[tokio::test(start_paused = true)]
async fn a_device_the_guest_keeps_stays_pending_and_bothers_no_later_change() {
    let (cluster, pve) = pve9().await;
    ubuntu(&pve, 200, &[("scsihw", "virtio-scsi-single")]).await;
    pve.boot(200).await;
    pve.put(
        CONFIG,
        &[("scsi1", "data:1"), ("net1", "virtio,bridge=vmbr0")],
    )
    .await;
    assert_eq!(
        pending(&pve, "scsi1").await["value"],
        "data:200/vm-200-disk-0.raw,size=1G"
    );
    cluster
        .set_quirks(
            200,
            Quirks {
                keep_devices: true,
                ..Quirks::default()
            },
        )
        .unwrap();
    let answer = pve
        .call(Method::PUT, CONFIG, &[("delete", "scsi1,net1")])
        .await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.body["errors"],
        json!({
            "scsi1": "hotplug problem - error on hot-unplugging device 'virtioscsi1' - still busy in guest?\n",
            "net1": "hotplug problem - error on hot-unplugging device 'net1' - still busy in guest?\n",
        })
    );
    assert_eq!(pending(&pve, "scsi1").await["delete"], 1);
    pve.put(CONFIG, &[("description", "still works")]).await;
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/status/stop", &[])
        .await;
    let config = pve.config(200).await;
    assert_eq!(config["unused0"], "data:200/vm-200-disk-0.raw");
    assert!(config.get("net1").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_boot_disk_is_not_unplugged() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 200, &[]).await;
    pve.boot(200).await;
    let answer = pve.call(Method::PUT, CONFIG, &[("delete", "scsi0")]).await;
    assert_eq!(
        answer.body["errors"]["scsi0"],
        "hotplug problem - can't unplug bootdisk 'scsi0'\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stale_digest_is_refused_and_a_fresh_one_is_not() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("name", "a")]).await;
    let digest = pve.config(200).await["digest"].as_str().unwrap().to_owned();
    pve.put(CONFIG, &[("name", "b"), ("digest", &digest)]).await;
    let (status, text) = pve
        .refused(Method::PUT, CONFIG, &[("name", "c"), ("digest", &digest)])
        .await;
    assert_eq!(
        (status, text.as_str()),
        (500, "checksum mismatch (file change by other user?)")
    );
    assert_eq!(pve.config(200).await["name"], "b");
}

#[tokio::test(start_paused = true)]
async fn detached_disks_are_kept_as_unused_until_they_are_deleted() {
    let (_, pve) = pve9().await;
    pve.create(
        200,
        &[("scsi0", "data:1"), ("scsi1", "data:2,format=qcow2")],
    )
    .await;
    pve.put(CONFIG, &[("delete", "scsi0")]).await;
    let config = pve.config(200).await;
    assert_eq!(config["unused0"], "data:200/vm-200-disk-0.raw");
    assert_eq!(config["boot"], " ");
    pve.put(CONFIG, &[("scsi5", "data:200/vm-200-disk-0.raw")])
        .await;
    let config = pve.config(200).await;
    assert!(config.get("unused0").is_none());
    assert_eq!(config["scsi5"], "data:200/vm-200-disk-0.raw,size=1G");
    pve.put(
        "/nodes/pve1/qemu/200/unlink",
        &[("idlist", "scsi5"), ("force", "1")],
    )
    .await;
    let volumes = pve.get("/nodes/pve1/storage/data/content").await;
    assert_eq!(volumes.as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_locked_guest_refuses_on_the_call_or_in_the_task() {
    let (_, pve) = pve9().await;
    pve.create(200, &[]).await;
    pve.put(CONFIG, &[("lock", "backup")]).await;
    let locked = (500, "VM is locked (backup)".to_owned());
    assert_eq!(
        pve.refused(Method::PUT, CONFIG, &[("name", "z")]).await,
        locked
    );
    let clone = pve
        .refused(
            Method::POST,
            "/nodes/pve1/qemu/200/clone",
            &[("newid", "201")],
        )
        .await;
    assert_eq!(clone, locked);
    for (method, path) in [
        (Method::POST, "/nodes/pve1/qemu/200/status/start"),
        (Method::DELETE, "/nodes/pve1/qemu/200"),
    ] {
        assert_eq!(
            pve.run(method, path, &[]).await.exit,
            "VM is locked (backup)"
        );
    }
    assert_eq!(
        pve.run(Method::POST, "/nodes/pve1/qemu/200/status/stop", &[])
            .await
            .exit,
        "OK"
    );
    pve.put(CONFIG, &[("delete", "lock"), ("skiplock", "1")])
        .await;
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/status/start", &[])
        .await;
}

#[tokio::test(start_paused = true)]
async fn post_answers_nothing_when_it_is_done_in_time() {
    let (_, pve) = pve9().await;
    pve.create(200, &[]).await;
    let done = pve
        .data(
            Method::POST,
            CONFIG,
            &[("cores", "2"), ("background_delay", "5")],
        )
        .await;
    assert_eq!(done, Value::Null);
    let ended = pve.ok(Method::POST, CONFIG, &[("scsi1", "data:1")]).await;
    assert_eq!(ended.log[0], "update VM 200: -scsi1 data:1");
}

#[tokio::test(start_paused = true)]
async fn passwords_are_hashed_when_changed_and_never_shown() {
    let (_, pve) = pve9().await;
    pve.create(200, &[("ide2", "data:cloudinit"), ("cipassword", "first")])
        .await;
    let dump = [("type", "user")];
    let path = "/nodes/pve1/qemu/200/cloudinit/dump";
    let text = pve.data(Method::GET, path, &dump).await;
    assert!(text.as_str().unwrap().contains("password: first\n"));
    pve.put(CONFIG, &[("cipassword", "second")]).await;
    let text = pve.data(Method::GET, path, &dump).await;
    assert!(text.as_str().unwrap().contains("password: $5$"));
    assert_eq!(pve.config(200).await["cipassword"], "**********");
}

#[tokio::test(start_paused = true)]
async fn a_boot_order_that_comes_with_a_new_cd_drive_is_lost_now_and_then() {
    let (_, pve) = pve9().await;
    let net = ("net0", "virtio,bridge=vmbr0");
    pve.create(200, &[("scsi0", "data:1"), net]).await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        pve.put(CONFIG, &[("boot", "order=net0"), ("delete", "ide2")])
            .await;
        let both = [("boot", "order=scsi0"), ("ide2", "none,media=cdrom")];
        pve.put(CONFIG, &both).await;
        seen.insert(pve.config(200).await["boot"].as_str().unwrap().to_owned());
        // A drive that is in the order is not appended, and what is sent holds.
        pve.put(CONFIG, &[("boot", "order=ide2;net0")]).await;
        pve.put(CONFIG, &both).await;
        assert_eq!(pve.config(200).await["boot"], "order=scsi0");
    }
    let seen: Vec<String> = seen.into_iter().collect();
    assert_eq!(seen, ["order=net0;ide2", "order=scsi0"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_disk_was_attached_with_waits_for_a_start_with_the_size_of_its_moment() {
    let (_, pve) = pve9().await;
    ubuntu(&pve, 200, &[]).await;
    pve.boot(200).await;
    pve.put(CONFIG, &[("scsi1", "data:1")]).await;
    let disk = "data:200/vm-200-disk-0.raw";
    let with = |options: &str| format!("{disk},{options}");
    pve.put(CONFIG, &[("scsi1", &with("backup=0"))]).await;
    let row = pending(&pve, "scsi1").await;
    assert_eq!(row["value"], with("backup=0,size=1G"));
    assert_eq!(row["pending"], Value::Null);
    pve.put(CONFIG, &[("scsi1", &with("backup=1,ssd=1"))]).await;
    let grow = [("disk", "scsi1"), ("size", "2G")];
    pve.ok(Method::PUT, "/nodes/pve1/qemu/200/resize", &grow)
        .await;
    let row = pending(&pve, "scsi1").await;
    assert_eq!(row["value"], with("backup=0,size=2G"));
    assert_eq!(row["pending"], with("backup=1,size=1G,ssd=1"));
    pve.ok(Method::POST, "/nodes/pve1/qemu/200/status/stop", &[])
        .await;
    assert_eq!(
        pve.config(200).await["scsi1"],
        with("backup=1,size=1G,ssd=1")
    );
    // Growing to what it has writes nothing; setting the drive writes the size it has.
    pve.ok(Method::PUT, "/nodes/pve1/qemu/200/resize", &grow)
        .await;
    assert_eq!(
        pve.config(200).await["scsi1"],
        with("backup=1,size=1G,ssd=1")
    );
    pve.put(CONFIG, &[("scsi1", &with("ssd=1"))]).await;
    assert_eq!(pve.config(200).await["scsi1"], with("size=2G,ssd=1"));
}
