use http::Method;

use crate::client::{Client, pve9};

async fn token(pve: &Client, role: &str, path: &str) -> Client {
    let user = [("userid", "k8s@pve")];
    pve.call(Method::POST, "/access/users", &user).await;
    let made = pve
        .data(
            Method::POST,
            "/access/users/k8s@pve/token/t1",
            &[("privsep", "0")],
        )
        .await;
    pve.put(
        "/access/acl",
        &[("path", path), ("roles", role), ("users", "k8s@pve")],
    )
    .await;
    pve.with_token("k8s@pve!t1", made["value"].as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn each_option_takes_its_own_privilege() {
    let (_, pve) = pve9().await;
    pve.create(200, &[]).await;
    let user = token(&pve, "PVEVMUser", "/vms/200").await;
    let config = "/nodes/pve1/qemu/200/config";
    for (option, value, privilege) in [
        ("memory", "700", "VM.Config.Memory"),
        ("cores", "2", "VM.Config.CPU"),
        ("description", "x", "VM.Config.Options"),
        ("machine", "q35", "VM.Config.HWType"),
    ] {
        let refused = user.refused(Method::PUT, config, &[(option, value)]).await;
        assert_eq!(
            refused,
            (
                403,
                format!("Permission check failed (/vms/200, {privilege})")
            )
        );
    }
    user.put(config, &[("ciuser", "x")]).await;
    let other = user
        .refused(Method::GET, "/nodes/pve1/qemu/9000/config", &[])
        .await;
    assert_eq!(other.1, "Permission check failed (/vms/9000, VM.Audit)");
    assert_eq!(
        user.get("/nodes/pve1/qemu").await.as_array().unwrap().len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn disks_and_bridges_need_rights_of_their_own() {
    let (_, pve) = pve9().await;
    let admin = token(&pve, "PVEVMAdmin", "/vms").await;
    let disk = [("vmid", "200"), ("scsi0", "data:1")];
    let refused = admin.refused(Method::POST, "/nodes/pve1/qemu", &disk).await;
    assert_eq!(
        refused.1,
        "Permission check failed (/storage/data, Datastore.AllocateSpace)"
    );
    let net = [("vmid", "200"), ("net0", "virtio,bridge=vmbr0")];
    let refused = admin.refused(Method::POST, "/nodes/pve1/qemu", &net).await;
    assert_eq!(
        refused.1,
        "Permission check failed (/sdn/zones/localnetwork/vmbr0, SDN.Use)"
    );
    admin
        .ok(Method::POST, "/nodes/pve1/qemu", &[("vmid", "200")])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_root_token_is_not_root() {
    let (_, pve) = pve9().await;
    pve.create(200, &[]).await;
    let made = pve
        .data(
            Method::POST,
            "/access/users/root@pam/token/full",
            &[("privsep", "0")],
        )
        .await;
    let token = pve.with_token("root@pam!full", made["value"].as_str().unwrap());
    let config = "/nodes/pve1/qemu/200/config";
    for (option, value, text) in [
        ("affinity", "0-1", "only root can set 'affinity' config"),
        ("hugepages", "2", "only root can set 'hugepages' config"),
        ("args", "-foo", "only root can set 'args' config"),
        (
            "usb0",
            "host=1234:5678",
            "only root can set 'usb0' config for real devices",
        ),
        (
            "hostpci0",
            "0000:00:01.0",
            "only root can set 'hostpci0' config for non-mapped devices",
        ),
    ] {
        let refused = token.refused(Method::PUT, config, &[(option, value)]).await;
        assert_eq!(refused, (500, text.to_owned()));
    }
    token
        .put(
            config,
            &[
                ("numa", "1"),
                ("numa0", "cpus=0,memory=512"),
                ("serial0", "socket"),
            ],
        )
        .await;
    let destroy = token
        .call(Method::DELETE, "/nodes/pve1/qemu/200", &[("skiplock", "1")])
        .await;
    assert_eq!(
        destroy.body["errors"]["skiplock"],
        "Only root may use this option."
    );
    pve.put(config, &[("affinity", "0-1")]).await;
}

#[tokio::test(start_paused = true)]
async fn the_datacenter_decides_who_may_use_which_tags() {
    let (_, pve) = pve9().await;
    pve.create(300, &[("tags", "prod")]).await;
    let op = token(&pve, "PVEVMAdmin", "/vms").await;
    let path = "/nodes/pve1/qemu/300/config";
    op.put(path, &[("tags", "prod;anything")]).await;
    pve.put(
        "/cluster/options",
        &[("user-tag-access", "user-allow=existing")],
    )
    .await;
    let (status, text) = op.refused(Method::PUT, path, &[("tags", "prod;new")]).await;
    assert_eq!(status, 403);
    assert_eq!(
        text,
        "Permission check failed (/, Sys.Modify for modifying tag 'new')"
    );
    op.put(path, &[("tags", "prod")]).await;
    pve.put("/cluster/options", &[("registered-tags", "prod")])
        .await;
    let (status, _) = op.refused(Method::PUT, path, &[("delete", "tags")]).await;
    assert_eq!(status, 403, "registered tags need rights on the datacenter");
    pve.put(path, &[("tags", "new")]).await;
}

#[tokio::test(start_paused = true)]
async fn features_of_containers_but_nesting_are_for_root() {
    let (_, pve) = pve9().await;
    let admin = token(&pve, "Administrator", "/").await;
    let template = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";
    let make = |vmid, unprivileged, features| {
        [
            ("vmid", vmid),
            ("ostemplate", template),
            ("rootfs", "local-lvm:4"),
            ("unprivileged", unprivileged),
            ("features", features),
        ]
    };
    let path = "/nodes/pve1/lxc";
    let but_nesting = "Permission check failed (changing feature flags (except nesting) is only allowed for root@pam)";
    let privileged = "Permission check failed (changing feature flags for privileged container is only allowed for root@pam)";
    let wished = make("400", "1", "keyctl=1,nesting=1");
    let refused = admin.refused(Method::POST, path, &wished).await;
    assert_eq!(refused, (403, but_nesting.to_owned()));
    let wished = make("400", "0", "nesting=1");
    let refused = admin.refused(Method::POST, path, &wished).await;
    assert_eq!(refused, (403, privileged.to_owned()));
    let wished = make("400", "1", "nesting=1");
    admin.ok(Method::POST, path, &wished).await;
    let config = "/nodes/pve1/lxc/400/config";
    pve.put(config, &[("features", "keyctl=1,nesting=1")]).await;
    admin.put(config, &[("features", "keyctl=1")]).await;
    let refused = admin.refused(Method::PUT, config, &[("delete", "features")]);
    assert_eq!(refused.await, (403, but_nesting.to_owned()));
}
