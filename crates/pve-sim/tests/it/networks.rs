//! Firewalls, staged networks, mappings, node networks.

use pve_sim::Simulator;

use crate::caller::Client;

async fn root() -> (Simulator, Client) {
    let simulator = Simulator::builder().build();
    let root = Client::root(&simulator).await;
    (simulator, root)
}

#[tokio::test(start_paused = true)]
async fn a_new_rule_is_always_the_first() {
    let (_simulator, root) = root().await;
    let groups = "/cluster/firewall/groups";
    root.post(groups, &[("group", "g1")]).await.data();
    assert_eq!(
        root.post(groups, &[("group", "g1")]).await.error("group"),
        "Security group 'g1' already exists"
    );
    let ssh = [
        ("type", "in"),
        ("action", "ACCEPT"),
        ("proto", "tcp"),
        ("dport", "22,80:90"),
        ("enable", "1"),
    ];
    root.post("/cluster/firewall/groups/g1", &ssh).await.data();
    let drop = [("type", "in"), ("action", "DROP"), ("pos", "5")];
    root.post("/cluster/firewall/groups/g1", &drop).await.data();
    let rules = root.get("/cluster/firewall/groups/g1").await.data();
    assert_eq!(
        (rules[0]["action"].as_str(), rules[1]["action"].as_str()),
        (Some("DROP"), Some("ACCEPT"))
    );
    assert_eq!(
        root.put("/cluster/firewall/groups/g1/9", &[("comment", "x")])
            .await
            .message(),
        "no rule at position 9"
    );
    assert_eq!(
        root.delete("/cluster/firewall/groups/g1").await.message(),
        "Security group 'g1' is not empty"
    );
    let port = [
        ("type", "in"),
        ("action", "ACCEPT"),
        ("dport", "abc def"),
        ("proto", "tcp"),
    ];
    let bad = root
        .post("/nodes/pve2/qemu/100/firewall/rules", &port)
        .await;
    assert_eq!(
        bad.error("dport"),
        "invalid format - invalid port 'abc def'\n"
    );
    let set = [("type", "in"), ("action", "DROP"), ("source", "+nope")];
    assert_eq!(
        root.post("/cluster/firewall/rules", &set)
            .await
            .error("source"),
        "no such ipset 'nope'"
    );
}

#[tokio::test(start_paused = true)]
async fn the_firewall_of_a_guest_goes_with_it() {
    let (_simulator, root) = root().await;
    root.exit_of(&root.post("/nodes/pve1/qemu", &[("vmid", "200")]).await)
        .await;
    let rules = "/nodes/pve1/qemu/200/firewall/rules";
    root.post(
        rules,
        &[("type", "group"), ("action", "g1"), ("enable", "1")],
    )
    .await
    .data();
    root.exit_of(&root.delete("/nodes/pve1/qemu/200").await)
        .await;
    root.exit_of(&root.post("/nodes/pve1/qemu", &[("vmid", "200")]).await)
        .await;
    assert_eq!(root.get(rules).await.data(), serde_json::json!([]));
}

#[tokio::test(start_paused = true)]
async fn networks_are_staged_until_they_are_applied() {
    let (_simulator, root) = root().await;
    root.post("/cluster/sdn/zones", &[("zone", "z1"), ("type", "simple")])
        .await
        .data();
    root.post("/cluster/sdn/vnets", &[("vnet", "vn1"), ("zone", "z1")])
        .await
        .data();
    let long = root
        .post(
            "/cluster/sdn/vnets",
            &[("vnet", "toolongname"), ("zone", "z1")],
        )
        .await;
    assert_eq!(long.error("vnet"), "value may only be 8 characters long");
    let pending = root
        .query("/cluster/sdn/vnets", &[("pending", "1")])
        .await
        .data();
    let new = pending
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["vnet"] == "vn1")
        .unwrap();
    assert_eq!(
        (new["state"].as_str(), new["pending"]["zone"].as_str()),
        (Some("new"), Some("z1"))
    );
    let create = [("vmid", "200"), ("net0", "virtio,bridge=vn1")];
    root.exit_of(&root.post("/nodes/pve1/qemu", &create).await)
        .await;
    let start = "/nodes/pve1/qemu/200/status/start";
    assert_eq!(
        root.exit_of(&root.post(start, &[]).await).await,
        "bridge 'vn1' does not exist"
    );
    assert_eq!(
        root.exit_of(&root.put("/cluster/sdn", &[]).await).await,
        "OK"
    );
    assert_eq!(root.exit_of(&root.post(start, &[]).await).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn mappings_name_devices_of_several_nodes() {
    let (_simulator, root) = root().await;
    let map = [
        ("id", "gpu"),
        ("map", "node=pve1,path=0000:01:00.0,id=10de:2230"),
    ];
    root.post("/cluster/mapping/pci", &map).await.data();
    assert!(
        root.post("/cluster/mapping/pci", &map)
            .await
            .message()
            .ends_with("already defined")
    );
    let rows = root
        .query("/cluster/mapping/pci", &[("check-node", "pve2")])
        .await
        .data();
    assert_eq!(rows[0]["checks"][0]["severity"], "warning");
}

#[tokio::test(start_paused = true)]
async fn a_bridge_can_be_made_and_used() {
    let (_simulator, root) = root().await;
    let bridges = root
        .query("/nodes/pve1/network", &[("type", "any_bridge")])
        .await
        .data();
    let names: Vec<_> = bridges
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["iface"].clone())
        .collect();
    assert_eq!(names, ["vmbr0", "vmbr1", "vmbr2", "tenant"]);
    root.post(
        "/nodes/pve1/network",
        &[("iface", "vmbr9"), ("type", "bridge")],
    )
    .await
    .data();
    let create = [("vmid", "200"), ("net0", "virtio,bridge=vmbr9")];
    root.exit_of(&root.post("/nodes/pve1/qemu", &create).await)
        .await;
    assert_eq!(
        root.exit_of(&root.post("/nodes/pve1/qemu/200/status/start", &[]).await)
            .await,
        "OK"
    );
}

#[tokio::test(start_paused = true)]
async fn networks_are_changed_by_the_holder_of_the_lock_alone() {
    let (_simulator, root) = root().await;
    let token = root.post("/cluster/sdn/lock", &[]).await.data();
    let token = token.as_str().unwrap();
    let zone = [("zone", "z1"), ("type", "simple")];
    let refused = root.post("/cluster/sdn/zones", &zone).await;
    assert!(
        refused
            .message()
            .starts_with("create sdn zone object failed: invalid lock token provided!"),
        "{refused:?}"
    );
    let with_token = [zone[0], zone[1], ("lock-token", token)];
    root.post("/cluster/sdn/zones", &with_token).await.data();
    let give_up = [("lock-token", token), ("release-lock", "1")];
    root.post("/cluster/sdn/rollback", &give_up).await.data();
    assert_eq!(root.get("/cluster/sdn/zones/z1").await.status, 500);
    root.post("/cluster/sdn/zones", &zone).await.data();
    let pending = root.post("/cluster/sdn/lock", &[]).await;
    assert!(
        pending
            .message()
            .ends_with("configuration already has pending changes")
    );
}
