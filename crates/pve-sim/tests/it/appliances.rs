//! Guests made of open virtual appliances.

use http::Method;
use serde_json::json;

use crate::client::pve9;

const OVF: &str = r#"<Envelope xmlns:ovf="o" xmlns:rasd="r">
<References><File ovf:id="f" ovf:href="web-disk1.vmdk"/></References>
<DiskSection><Disk ovf:capacity="3" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="d" ovf:fileRef="f"/></DiskSection>
<VirtualSystem ovf:id="web"><Name>web</Name><VirtualHardwareSection>
<Item><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
<Item><rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>1024</rasd:VirtualQuantity></Item>
<Item><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceType>6</rasd:ResourceType></Item>
<Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:HostResource>ovf:/disk/d</rasd:HostResource><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
</VirtualHardwareSection></VirtualSystem></Envelope>"#;

/// A tar file as `tar` would write it.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in files {
        let mut header = vec![0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = b'0';
        archive.extend(header);
        archive.extend(*content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_made_of_a_disk_inside_an_appliance() {
    let (_, root) = pve9().await;
    let archive = tar(&[("web.ovf", OVF.as_bytes()), ("web-disk1.vmdk", &[7; 9000])]);
    let path = "/nodes/pve1/storage/local/upload";
    let upload = root
        .upload(path, &[("content", "import")], "web.ova", &archive)
        .await;
    assert_eq!(root.exit_of(&upload).await, "OK");
    let listed = root
        .get("/nodes/pve1/storage/local/content?content=import")
        .await;
    let mut listed = listed.as_array().unwrap().iter();
    let row = listed.find(|row| row["volid"] == "local:import/web.ova");
    assert_eq!(row.unwrap()["format"], "ova");

    let path = "/nodes/pve1/storage/local/import-metadata";
    let found = root
        .data(Method::GET, path, &[("volume", "import/web.ova")])
        .await;
    assert_eq!(
        found,
        json!({
            "type": "vm", "source": "import/web.ova",
            "create-args": { "name": "web", "cores": "2", "memory": "1024", "ostype": "l26" },
            "disks": { "scsi0": { "volid": "local:import/web.ova/web-disk1.vmdk", "size": 3_u64 << 30 } },
            "net": {}, "warnings": [{ "type": "ova-needs-extracting" }],
        })
    );

    let disk = "ceph:0,import-from=local:import/web.ova/web-disk1.vmdk";
    let options = [("vmid", "150"), ("scsi0", disk)];
    let refused = root.try_post("/nodes/pve1/qemu", &options).await;
    assert_eq!(
        refused.error("import-working-storage"),
        "import working storage 'local' does not support 'images' content type or is not file based."
    );
    root.create(150, &[("scsi0", disk), ("import-working-storage", "data")])
        .await;
    assert_eq!(
        root.config(150).await["scsi0"],
        "ceph:vm-150-disk-0,size=3G"
    );

    let absent = "ceph:0,import-from=local:import/web.ova/other.vmdk";
    let options = [
        ("vmid", "151"),
        ("scsi0", absent),
        ("import-working-storage", "data"),
    ];
    let ended = root.run(Method::POST, "/nodes/pve1/qemu", &options).await;
    assert!(ended.exit.contains("other.vmdk"), "{}", ended.exit);
    let text = "ceph:0,import-from=local:import/web.ova/readme.txt";
    let (status, _) = root
        .refused(
            Method::POST,
            "/nodes/pve1/qemu",
            &[("vmid", "152"), ("scsi0", text)],
        )
        .await;
    assert_eq!(status, 500, "only disks have names inside an appliance");
}
