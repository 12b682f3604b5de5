use http::Method;
use pve_sim::Quirks;

use crate::client::{pve9, ubuntu};

#[path = "../../src/guest/iso9660/testing.rs"]
mod iso;

fn ipv4(interfaces: &serde_json::Value, name: &str) -> Vec<String> {
    let rows = interfaces["result"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no {name}"));
    let addresses = row["ip-addresses"].as_array().unwrap().iter();
    addresses
        .filter(|address| address["ip-address-type"] == "ipv4")
        .map(|address| {
            format!(
                "{}/{}",
                address["ip-address"].as_str().unwrap(),
                address["prefix"]
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_guest_takes_name_and_addresses_from_its_uploaded_seed() {
    let (cluster, pve) = pve9().await;
    let network = "version: 2\nethernets:\n  eth0:\n    match:\n      macaddress: bc:24:11:00:00:42\n    set-name: eth0\n    addresses: [10.7.0.42/24]\n";
    let image = iso::image(
        "cidata",
        &[
            ("user-data", b"#cloud-config\nhostname: worker-1\n"),
            ("meta-data", b"instance-id: i-42\n"),
            ("network-config", network.as_bytes()),
        ],
        true,
        true,
    );
    let answer = pve
        .upload(
            "/nodes/pve1/storage/nfs/upload",
            &[("content", "iso")],
            "seed-300.iso",
            &image,
        )
        .await;
    let upid = answer.body["data"].as_str().unwrap().to_owned();
    assert_eq!(pve.ended(&upid).await.exit, "OK");
    let mut boots = cluster.boots();
    ubuntu(
        &pve,
        300,
        &[
            ("net0", "virtio=BC:24:11:00:00:42,bridge=vmbr0"),
            ("ide2", "nfs:iso/seed-300.iso,media=cdrom"),
        ],
    )
    .await;
    pve.boot(300).await;
    let boot = boots.try_recv().expect("the boot was announced");
    assert_eq!(
        (boot.vmid, boot.hostname.as_str(), boot.first),
        (300, "worker-1", true)
    );
    let seed = boot.seed.expect("the seed was read");
    assert!(seed.user_data.contains("hostname: worker-1"));
    assert_eq!(seed.meta_data, "instance-id: i-42\n");
    assert_eq!(seed.network_config.as_deref(), Some(network));
    let interfaces = pve
        .get("/nodes/pve1/qemu/300/agent/network-get-interfaces")
        .await;
    assert_eq!(ipv4(&interfaces, "eth0"), ["10.7.0.42/24"]);
    let name = pve.get("/nodes/pve1/qemu/300/agent/get-host-name").await;
    assert_eq!(name["result"]["host-name"], "worker-1");

    pve.ok(Method::POST, "/nodes/pve1/qemu/300/status/reboot", &[])
        .await;
    tokio::time::sleep(std::time::Duration::from_mins(2)).await;
    let again = boots.try_recv().expect("the second boot was announced");
    assert!(!again.first, "the same instance is configured once");

    // Without its image it stays what it was told to be.
    pve.put(
        "/nodes/pve1/qemu/300/config",
        &[("ide2", "none,media=cdrom")],
    )
    .await;
    pve.ok(Method::POST, "/nodes/pve1/qemu/300/status/reboot", &[])
        .await;
    tokio::time::sleep(std::time::Duration::from_mins(2)).await;
    let third = boots.try_recv().expect("the third boot was announced");
    assert_eq!((third.hostname.as_str(), third.first), ("worker-1", false));
    let interfaces = pve
        .get("/nodes/pve1/qemu/300/agent/network-get-interfaces")
        .await;
    assert_eq!(ipv4(&interfaces, "eth0"), ["10.7.0.42/24"]);
}

#[tokio::test(start_paused = true)]
async fn a_guest_reads_the_drive_pve_writes() {
    let (cluster, pve) = pve9().await;
    let options = [
        ("name", "node-7"),
        ("ide2", "ceph:cloudinit"),
        ("ciuser", "admin"),
        ("ipconfig0", "ip=10.8.0.7/16,gw=10.8.0.1"),
    ];
    ubuntu(&pve, 300, &options).await;
    assert_eq!(
        pve.config(300).await["ide2"],
        "ceph:vm-300-cloudinit,media=cdrom"
    );
    let mut boots = cluster.boots();
    pve.boot(300).await;
    let interfaces = pve
        .get("/nodes/pve1/qemu/300/agent/network-get-interfaces")
        .await;
    assert_eq!(ipv4(&interfaces, "eth0"), ["10.8.0.7/16"]);
    assert_eq!(boots.try_recv().unwrap().hostname, "node-7");
    let dump = [("type", "user")];
    let shown = pve
        .data(Method::GET, "/nodes/pve1/qemu/300/cloudinit/dump", &dump)
        .await;
    pve.put("/nodes/pve1/qemu/300/config", &[("ciuser", "other")])
        .await;
    let rows = pve.get("/nodes/pve1/qemu/300/cloudinit").await;
    assert_eq!(
        rows[0],
        serde_json::json!({"key": "ciuser", "value": "admin", "pending": "other"})
    );
    assert!(shown.as_str().unwrap().contains("user: admin\n"));
}

#[tokio::test(start_paused = true)]
async fn without_a_seed_the_first_card_gets_a_lease_of_its_own() {
    let (cluster, pve) = pve9().await;
    let mut seen = Vec::new();
    for vmid in [300, 301] {
        ubuntu(&pve, vmid, &[]).await;
        pve.boot(vmid).await;
        let interfaces = cluster.interfaces(vmid).unwrap();
        seen.push(interfaces[1].addresses[0]);
    }
    assert_ne!(seen[0], seen[1]);
    pve.ok(Method::POST, "/nodes/pve1/qemu/300/status/stop", &[])
        .await;
    assert_eq!(cluster.interfaces(300).unwrap(), []);
    pve.boot(300).await;
    assert_eq!(cluster.interfaces(300).unwrap()[1].addresses[0], seen[0]);
}

#[tokio::test(start_paused = true)]
async fn a_guest_can_be_told_to_hang_at_boot_or_to_have_no_agent() {
    let (cluster, pve) = pve9().await;
    let mut boots = cluster.boots();
    for (vmid, quirks) in [
        (
            300,
            Quirks {
                hang_at_boot: true,
                ..Quirks::default()
            },
        ),
        (
            301,
            Quirks {
                no_agent: true,
                boot_seconds: Some(5),
                ..Quirks::default()
            },
        ),
    ] {
        ubuntu(&pve, vmid, &[]).await;
        cluster.set_quirks(vmid, quirks).unwrap();
        pve.ok(
            Method::POST,
            &format!("/nodes/pve1/qemu/{vmid}/status/start"),
            &[],
        )
        .await;
    }
    tokio::time::sleep(std::time::Duration::from_mins(10)).await;
    assert_eq!(boots.try_recv().unwrap().vmid, 301);
    assert!(boots.try_recv().is_err(), "300 never came up");
    let refused = pve
        .refused(Method::POST, "/nodes/pve1/qemu/301/agent/ping", &[])
        .await;
    assert_eq!(refused.1, "QEMU guest agent is not running");
}

#[tokio::test(start_paused = true)]
async fn a_full_thin_pool_stops_the_guest_with_an_io_error() {
    let (cluster, pve) = pve9().await;
    let disk = [
        ("scsi0", "local-lvm:0,import-from=ceph:base-9000-disk-0"),
        ("agent", "1"),
    ];
    pve.create(300, &disk).await;
    pve.ok(
        Method::PUT,
        "/nodes/pve1/qemu/300/resize",
        &[("disk", "scsi0"), ("size", "4T")],
    )
    .await;
    pve.boot(300).await;
    let before = pve.get("/nodes/pve1/storage/local-lvm/status").await["avail"]
        .as_u64()
        .unwrap();
    cluster.fill_disk(300, 10 << 30).unwrap();
    let after = pve.get("/nodes/pve1/storage/local-lvm/status").await["avail"]
        .as_u64()
        .unwrap();
    assert_eq!(before - after, 10 << 30);
    cluster.fill_disk(300, 2 << 40).unwrap();
    let current = pve.get("/nodes/pve1/qemu/300/status/current").await;
    assert_eq!(current["qmpstatus"], "io-error");
}
