//! Firewalls, staged networks, mappings, node networks.

use http::Method;
use pve_sim::Simulator;

use crate::client::Client;

async fn root() -> (Simulator, Client) {
    let simulator = Simulator::builder().build();
    let root = Client::root(&simulator).await;
    (simulator, root)
}

#[tokio::test(start_paused = true)]
async fn a_new_rule_is_always_the_first() {
    let (_simulator, root) = root().await;
    let groups = "/cluster/firewall/groups";
    root.try_post(groups, &[("group", "g1")]).await.data();
    assert_eq!(
        root.try_post(groups, &[("group", "g1")])
            .await
            .error("group"),
        "Security group 'g1' already exists"
    );
    let ssh = [
        ("type", "in"),
        ("action", "ACCEPT"),
        ("proto", "tcp"),
        ("dport", "22,80:90"),
        ("enable", "1"),
    ];
    root.try_post("/cluster/firewall/groups/g1", &ssh)
        .await
        .data();
    let drop = [("type", "in"), ("action", "DROP"), ("pos", "5")];
    root.try_post("/cluster/firewall/groups/g1", &drop)
        .await
        .data();
    let rules = root.try_get("/cluster/firewall/groups/g1").await.data();
    assert_eq!(
        (rules[0]["action"].as_str(), rules[1]["action"].as_str()),
        (Some("DROP"), Some("ACCEPT"))
    );
    assert_eq!(
        root.try_put("/cluster/firewall/groups/g1/9", &[("comment", "x")])
            .await
            .message(),
        "no rule at position 9"
    );
    assert_eq!(
        root.try_delete("/cluster/firewall/groups/g1")
            .await
            .message(),
        "Security group 'g1' is not empty"
    );
    let port = [
        ("type", "in"),
        ("action", "ACCEPT"),
        ("dport", "abc def"),
        ("proto", "tcp"),
    ];
    let bad = root
        .try_post("/nodes/pve2/qemu/100/firewall/rules", &port)
        .await;
    assert_eq!(
        bad.error("dport"),
        "invalid format - invalid port 'abc def'\n"
    );
    let set = [("type", "in"), ("action", "DROP"), ("source", "+nope")];
    assert_eq!(
        root.try_post("/cluster/firewall/rules", &set)
            .await
            .error("source"),
        "no such ipset 'nope'"
    );
}

#[tokio::test(start_paused = true)]
async fn the_firewall_of_a_guest_goes_with_it() {
    let (_simulator, root) = root().await;
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &[("vmid", "200")]).await)
        .await;
    let rules = "/nodes/pve1/qemu/200/firewall/rules";
    root.try_post(
        rules,
        &[("type", "group"), ("action", "g1"), ("enable", "1")],
    )
    .await
    .data();
    root.exit_of(&root.try_delete("/nodes/pve1/qemu/200").await)
        .await;
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &[("vmid", "200")]).await)
        .await;
    assert_eq!(root.try_get(rules).await.data(), serde_json::json!([]));
}

#[tokio::test(start_paused = true)]
async fn networks_are_staged_until_they_are_applied() {
    let (_simulator, root) = root().await;
    root.try_post("/cluster/sdn/zones", &[("zone", "z1"), ("type", "simple")])
        .await
        .data();
    root.try_post("/cluster/sdn/vnets", &[("vnet", "vn1"), ("zone", "z1")])
        .await
        .data();
    let long = root
        .try_post(
            "/cluster/sdn/vnets",
            &[("vnet", "toolongname"), ("zone", "z1")],
        )
        .await;
    assert_eq!(long.error("vnet"), "value may only be 8 characters long");
    let pending = root
        .try_query("/cluster/sdn/vnets", &[("pending", "1")])
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
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &create).await)
        .await;
    let start = "/nodes/pve1/qemu/200/status/start";
    assert_eq!(
        root.exit_of(&root.try_post(start, &[]).await).await,
        "bridge 'vn1' does not exist"
    );
    assert_eq!(
        root.exit_of(&root.try_put("/cluster/sdn", &[]).await).await,
        "OK"
    );
    assert_eq!(root.exit_of(&root.try_post(start, &[]).await).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn mappings_name_devices_of_several_nodes() {
    let (_simulator, root) = root().await;
    let map = [
        ("id", "gpu"),
        ("map", "node=pve1,path=0000:01:00.0,id=10de:2230"),
    ];
    root.try_post("/cluster/mapping/pci", &map).await.data();
    assert!(
        root.try_post("/cluster/mapping/pci", &map)
            .await
            .message()
            .ends_with("already defined")
    );
    let rows = root
        .try_query("/cluster/mapping/pci", &[("check-node", "pve2")])
        .await
        .data();
    assert_eq!(rows[0]["checks"][0]["severity"], "warning");
}

#[tokio::test(start_paused = true)]
async fn a_bridge_can_be_made_and_used() {
    let (_simulator, root) = root().await;
    let bridges = root
        .try_query("/nodes/pve1/network", &[("type", "any_bridge")])
        .await
        .data();
    let names: Vec<_> = bridges
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["iface"].clone())
        .collect();
    assert_eq!(names, ["vmbr0", "vmbr1", "vmbr2", "tenant"]);
    root.try_post(
        "/nodes/pve1/network",
        &[("iface", "vmbr9"), ("type", "bridge")],
    )
    .await
    .data();
    let create = [("vmid", "200"), ("net0", "virtio,bridge=vmbr9")];
    root.exit_of(&root.try_post("/nodes/pve1/qemu", &create).await)
        .await;
    assert_eq!(
        root.exit_of(
            &root
                .try_post("/nodes/pve1/qemu/200/status/start", &[])
                .await
        )
        .await,
        "OK"
    );
}

#[tokio::test(start_paused = true)]
async fn networks_are_changed_by_the_holder_of_the_lock_alone() {
    let (_simulator, root) = root().await;
    let token = root.try_post("/cluster/sdn/lock", &[]).await.data();
    let token = token.as_str().unwrap();
    let zone = [("zone", "z1"), ("type", "simple")];
    let refused = root.try_post("/cluster/sdn/zones", &zone).await;
    assert!(
        refused
            .message()
            .starts_with("create sdn zone object failed: invalid lock token provided!"),
        "{refused:?}"
    );
    let with_token = [zone[0], zone[1], ("lock-token", token)];
    root.try_post("/cluster/sdn/zones", &with_token)
        .await
        .data();
    let give_up = [("lock-token", token), ("release-lock", "1")];
    root.try_post("/cluster/sdn/rollback", &give_up)
        .await
        .data();
    assert_eq!(root.try_get("/cluster/sdn/zones/z1").await.status, 500);
    root.try_post("/cluster/sdn/zones", &zone).await.data();
    let pending = root.try_post("/cluster/sdn/lock", &[]).await;
    assert!(
        pending
            .message()
            .ends_with("configuration already has pending changes")
    );
}

#[tokio::test(start_paused = true)]
async fn addresses_of_a_network_are_given_out_once() {
    let (_simulator, root) = root().await;
    let subnet = [
        ("subnet", "10.9.0.0/24"),
        ("type", "subnet"),
        ("gateway", "10.9.0.1"),
        (
            "dhcp-range",
            "start-address=10.9.0.10,end-address=10.9.0.20",
        ),
        (
            "dhcp-range",
            "start-address=10.9.0.30,end-address=10.9.0.40",
        ),
    ];
    root.data(Method::POST, "/cluster/sdn/vnets/tenant/subnets", &subnet)
        .await;
    let listed = root.get("/cluster/sdn/vnets/tenant/subnets").await;
    assert_eq!(listed[0]["dhcp-range"].as_array().unwrap().len(), 2);
    root.ok(Method::PUT, "/cluster/sdn", &[]).await;
    let path = "/cluster/sdn/vnets/tenant/ips";
    let zone = root.get("/cluster/sdn/vnets/tenant").await["zone"]
        .as_str()
        .unwrap()
        .to_owned();
    let card = |ip: &'static str, mac: &'static str| {
        [
            ("zone", zone.clone()),
            ("ip", ip.to_owned()),
            ("mac", mac.to_owned()),
        ]
    };
    let give = async |method: Method, ip, mac| {
        let params = card(ip, mac);
        let params: Vec<(&str, &str)> = params.iter().map(|(k, v)| (*k, v.as_str())).collect();
        root.call(method, path, &params).await
    };
    let (one, two) = ("BC:24:11:00:00:01", "BC:24:11:00:00:02");
    assert_eq!(give(Method::POST, "10.9.0.7", one).await.status, 200);
    let taken = give(Method::POST, "10.9.0.7", two).await;
    assert_eq!(taken.message(), "IP '10.9.0.7' already exists");
    let outside = give(Method::POST, "10.8.0.7", two).await;
    assert_eq!(outside.message(), "can't find any subnet for ip 10.8.0.7");
    assert_eq!(give(Method::PUT, "10.9.0.8", one).await.status, 200);
    let rows = root.get("/cluster/sdn/ipams/pve/status").await;
    let ips: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["ip"])
        .collect();
    assert_eq!(ips, ["10.9.0.1", "10.9.0.8"]);
    assert_eq!(give(Method::DELETE, "10.9.0.8", one).await.status, 200);
    assert_eq!(give(Method::DELETE, "10.9.0.8", one).await.status, 500);
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_staged_like_the_zones_that_use_it() {
    let (_simulator, root) = root().await;
    let path = "/cluster/sdn/controllers";
    let missing = root
        .try_post(path, &[("controller", "bgp1"), ("type", "evpn")])
        .await;
    assert_eq!(
        missing.error("asn"),
        "property is missing and it is not optional"
    );
    root.data(
        Method::POST,
        path,
        &[("controller", "bgp1"), ("type", "evpn"), ("asn", "65000")],
    )
    .await;
    let pending = root.get("/cluster/sdn/controllers?pending=1").await;
    assert_eq!(pending[0]["state"], "new");
    let zone = [
        ("zone", "far"),
        ("type", "evpn"),
        ("controller", "bgp1"),
        ("vrf-vxlan", "10"),
    ];
    root.data(Method::POST, "/cluster/sdn/zones", &zone).await;
    let used = root.try_delete("/cluster/sdn/controllers/bgp1").await;
    assert!(
        used.message().ends_with("controller bgp1 is used by far"),
        "{}",
        used.message()
    );
    root.ok(Method::PUT, "/cluster/sdn", &[]).await;
    assert_eq!(
        root.get("/cluster/sdn/controllers/bgp1").await["asn"],
        65000
    );
}

#[tokio::test(start_paused = true)]
async fn a_virtual_network_has_a_firewall_of_its_own() {
    let (_simulator, root) = root().await;
    let base = "/cluster/sdn/vnets/tenant/firewall";
    root.data(
        Method::POST,
        &format!("{base}/rules"),
        &[("type", "forward"), ("action", "DROP")],
    )
    .await;
    root.put(
        &format!("{base}/options"),
        &[("enable", "1"), ("policy_forward", "DROP")],
    )
    .await;
    assert_eq!(
        root.get(&format!("{base}/rules")).await[0]["action"],
        "DROP"
    );
    assert_eq!(
        root.get(&format!("{base}/options")).await["policy_forward"],
        "DROP"
    );
    assert_eq!(
        root.get("/cluster/firewall/rules")
            .await
            .as_array()
            .unwrap()
            .len(),
        0
    );
    let none = root.try_get("/cluster/sdn/vnets/nope/firewall/rules").await;
    assert_eq!(none.message(), "sdn vnet 'nope' does not exist");
}
