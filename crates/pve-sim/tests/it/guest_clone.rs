use futures::future::join_all;
use http::Method;

use crate::client::{Client, pve9};

async fn template(pve: &Client, vmid: u32, disk: &str) {
    pve.create(
        vmid,
        &[
            ("scsi0", disk),
            ("net0", "virtio,bridge=vmbr0"),
            ("name", "tmpl"),
        ],
    )
    .await;
    pve.ok(
        Method::POST,
        &format!("/nodes/pve1/qemu/{vmid}/template"),
        &[],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn linked_clones_are_named_by_their_storage_and_hold_their_base() {
    let (_, pve) = pve9().await;
    for (vmid, disk, base, linked, holds) in [
        (
            200,
            "data:1,format=qcow2",
            "data:200/base-200-disk-0.qcow2",
            "data:200/base-200-disk-0.qcow2/201/vm-201-disk-0.qcow2",
            true,
        ),
        (
            210,
            "tank:1",
            "tank:base-210-disk-0",
            "tank:base-210-disk-0/vm-211-disk-0",
            true,
        ),
        (
            220,
            "ceph:1",
            "ceph:base-220-disk-0",
            "ceph:base-220-disk-0/vm-221-disk-0",
            true,
        ),
        (
            230,
            "local-lvm:1",
            "local-lvm:base-230-disk-0",
            "local-lvm:vm-231-disk-0",
            false,
        ),
    ] {
        template(&pve, vmid, disk).await;
        let newid = (vmid + 1).to_string();
        pve.ok(
            Method::POST,
            &format!("/nodes/pve1/qemu/{vmid}/clone"),
            &[("newid", &newid)],
        )
        .await;
        let config = pve.config(vmid + 1).await;
        assert_eq!(config["scsi0"], format!("{linked},size=1G"));
        assert_eq!(config["name"], "Copy-of-VM-tmpl");
        assert!(config.get("template").is_none());
        let ended = pve
            .run(Method::DELETE, &format!("/nodes/pve1/qemu/{vmid}"), &[])
            .await;
        if holds {
            assert_eq!(
                ended.exit,
                format!("base volume '{base}' is still in use by linked cloned")
            );
            pve.ok(Method::DELETE, &format!("/nodes/pve1/qemu/{newid}"), &[])
                .await;
            pve.ok(Method::DELETE, &format!("/nodes/pve1/qemu/{vmid}"), &[])
                .await;
        } else {
            assert_eq!(ended.exit, "OK");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_clones_of_one_template_go_side_by_side() {
    let (_, pve) = pve9().await;
    let clones = (300..306).map(|newid: u32| {
        let pve = pve.clone();
        async move {
            let newid = newid.to_string();
            pve.run(
                Method::POST,
                "/nodes/pve1/qemu/9000/clone",
                &[("newid", &newid)],
            )
            .await
            .exit
        }
    });
    assert_eq!(join_all(clones).await, vec!["OK"; 6]);
}

#[tokio::test(start_paused = true)]
async fn clones_that_race_for_an_id_leave_one_winner() {
    let (_, pve) = pve9().await;
    let taken = "unable to create VM 310: config file already exists";
    let mut started = Vec::new();
    for _ in 0..3 {
        let answer = pve
            .call(
                Method::POST,
                "/nodes/pve1/qemu/9000/clone",
                &[("newid", "310")],
            )
            .await;
        if answer.status == 200 {
            started.push(answer.body["data"].as_str().unwrap().to_owned());
        } else {
            assert_eq!(answer.body["message"].as_str().unwrap().trim_end(), taken);
        }
    }
    let mut exits = Vec::new();
    for upid in started {
        exits.push(pve.ended(&upid).await.exit);
    }
    assert_eq!(exits.iter().filter(|exit| *exit == "OK").count(), 1);
    assert!(
        exits.iter().all(|exit| exit == "OK" || exit == taken),
        "{exits:?}"
    );
    assert!(
        pve.config(310).await["scsi0"]
            .as_str()
            .unwrap()
            .contains("vm-310-disk-0")
    );
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_somebody_else() {
    let (_, pve) = pve9().await;
    let source = pve.config(9000).await;
    let params = [("newid", "300"), ("name", "n1"), ("description", "mine")];
    pve.ok(Method::POST, "/nodes/pve1/qemu/9000/clone", &params)
        .await;
    let clone = pve.config(300).await;
    for option in ["net0", "smbios1", "vmgenid"] {
        assert_ne!(clone[option], source[option], "{option}");
    }
    assert_eq!(
        (clone["name"].as_str(), clone["description"].as_str()),
        (Some("n1"), Some("mine"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_clone_cannot_do_is_refused_on_the_call() {
    let (_, pve) = pve9().await;
    let refuse = |params: &'static [(&'static str, &'static str)]| {
        let pve = pve.clone();
        async move {
            let mut all = vec![("newid", "300")];
            all.extend(params);
            pve.refused(Method::POST, "/nodes/pve1/qemu/9010/clone", &all)
                .await
                .1
        }
    };
    assert_eq!(
        refuse(&[("storage", "data")]).await,
        "parameter 'storage' not allowed for linked clones"
    );
    assert_eq!(
        refuse(&[("target", "pve2")]).await,
        "can't clone VM to node 'pve2' (VM uses local storage)"
    );
    assert_eq!(
        refuse(&[("target", "pve9")]).await,
        "no such cluster node 'pve9'"
    );
    assert_eq!(
        refuse(&[("full", "1"), ("snapname", "nosnap")]).await,
        "snapshot 'nosnap' does not exist"
    );
    assert_eq!(
        refuse(&[("pool", "nopool")]).await,
        "Permission check failed (pool 'nopool' does not exist)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_shared_disks_can_be_born_on_another_node() {
    let (_, pve) = pve9().await;
    let params = [("newid", "300"), ("target", "pve3")];
    pve.ok(Method::POST, "/nodes/pve1/qemu/9000/clone", &params)
        .await;
    let config = pve.get("/nodes/pve3/qemu/300/config").await;
    assert_eq!(
        config["scsi0"],
        "ceph:base-9000-disk-0/vm-300-disk-0,discard=on,size=4G"
    );
    let (_, text) = pve
        .refused(Method::GET, "/nodes/pve1/qemu/300/config", &[])
        .await;
    assert_eq!(
        text,
        "Configuration file 'nodes/pve1/qemu-server/300.conf' does not exist"
    );
}
