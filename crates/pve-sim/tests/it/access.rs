//! Users, tokens and what they may do.

use pve_sim::{Cluster, Simulator};

use crate::client::Client;

async fn setup() -> (Simulator, Cluster, Client) {
    let simulator = Simulator::builder().build();
    let root = Client::root(&simulator).await;
    let cluster = simulator.clusters().next().unwrap().clone();
    (simulator, cluster, root)
}

async fn token(root: &Client, user: &str, name: &str, privsep: &str) -> String {
    let path = format!("/access/users/{user}/token/{name}");
    let data = root.try_post(&path, &[("privsep", privsep)]).await.data();
    format!("{user}!{name}={}", data["value"].as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_token_works_until_it_expires() {
    let (_simulator, cluster, root) = setup().await;
    let secret = token(&root, "root@pam", "t1", "0").await;
    let client = Client::token(cluster.endpoint("pve1"), &secret);
    assert_eq!(client.try_get("/version").await.status, 200);
    let dup = root.try_post("/access/users/root@pam/token/t1", &[]).await;
    assert_eq!(dup.error("tokenid"), "Token already exists.");
    root.try_put("/access/users/root@pam/token/t1", &[("expire", "1")])
        .await
        .data();
    assert_eq!(
        client.try_get("/version").await.reason,
        "Authentication failed!"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_of_root_is_refused_what_only_root_may() {
    let (_simulator, cluster, root) = setup().await;
    let secret = token(&root, "root@pam", "full", "0").await;
    let client = Client::token(cluster.endpoint("pve1"), &secret);
    let config = "/nodes/pve2/qemu/100/config";
    assert_eq!(
        client
            .try_put(config, &[("affinity", "0-1")])
            .await
            .message(),
        "only root can set 'affinity' config"
    );
    assert_eq!(
        root.try_put(config, &[("affinity", "0-1")]).await.status,
        200
    );
    let login = [("username", "root@pam"), ("password", "oxmox")];
    let refused = client.try_post("/access/ticket", &login).await;
    assert_eq!(refused.status, 403);
    assert!(
        refused.message().contains("not available with API token"),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_separated_token_needs_rights_of_its_own() {
    let (_simulator, cluster, root) = setup().await;
    let secret = token(&root, "root@pam", "sep", "1").await;
    let client = Client::token(cluster.endpoint("pve1"), &secret);
    let config = "/nodes/pve2/qemu/100/config";
    assert_eq!(
        client.try_get(config).await.message(),
        "Permission check failed (/vms/100, VM.Audit)"
    );
    let entry = [
        ("path", "/vms"),
        ("roles", "PVEAuditor"),
        ("tokens", "root@pam!sep"),
    ];
    root.try_put("/access/acl", &entry).await.data();
    assert_eq!(client.try_get(config).await.status, 200);
    let permissions = client.try_get("/access/permissions").await.data();
    assert_eq!(permissions["/vms"]["VM.Audit"], 1);
}

#[tokio::test(start_paused = true)]
async fn lists_leave_out_what_a_caller_may_not_see() {
    let (_simulator, cluster, root) = setup().await;
    root.try_post(
        "/access/users",
        &[("userid", "u@pve"), ("password", "secret12")],
    )
    .await
    .data();
    let user = Client::login(cluster.endpoint("pve1"), "u@pve", "secret12").await;
    let rows = user.try_get("/cluster/resources").await.data();
    let kinds: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["type"].clone())
        .collect();
    assert_eq!(kinds, ["node", "node", "node"]);
    assert!(rows[0].get("maxcpu").is_none());
    let entry = [
        ("path", "/vms/100"),
        ("roles", "PVEVMUser"),
        ("users", "u@pve"),
    ];
    root.try_put("/access/acl", &entry).await.data();
    let rows = user
        .try_query("/cluster/resources", &[("type", "vm")])
        .await
        .data();
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert_eq!(rows[0]["vmid"], 100);
}

#[tokio::test(start_paused = true)]
async fn entries_need_a_role_and_a_path_that_exist() {
    let (_simulator, _cluster, root) = setup().await;
    let put = |path: &'static str, roles: &'static str| {
        let root = root.clone();
        async move {
            root.try_put(
                "/access/acl",
                &[("path", path), ("roles", roles), ("users", "root@pam")],
            )
            .await
        }
    };
    assert_eq!(
        put("/vms/1000", "NoRole").await.message(),
        "ACL update failed: role 'NoRole' does not exist"
    );
    assert_eq!(
        put("/bogus", "PVEAuditor").await.error("path"),
        "invalid ACL path '/bogus'"
    );
    let reserved = root
        .try_post(
            "/access/roles",
            &[("roleid", "PVEX"), ("privs", "VM.Audit")],
        )
        .await;
    assert!(
        reserved
            .error("roleid")
            .starts_with("cannot use role ID starting with")
    );
}

#[tokio::test(start_paused = true)]
async fn a_ticket_renews_itself_and_ends_after_two_hours() {
    let (_simulator, cluster, root) = setup().await;
    let stranger = Client::stranger(cluster.endpoint("pve1"));
    let login = |password: String| {
        let stranger = stranger.clone();
        async move {
            let params = [("username", "root@pam"), ("password", password.as_str())];
            stranger.try_post("/access/ticket", &params).await
        }
    };
    let ticket = login("oxmox".into()).await.data()["ticket"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(login(ticket.clone()).await.status, 200);
    tokio::time::advance(std::time::Duration::from_hours(2)).await;
    assert_eq!(login(ticket).await.message(), "authentication failure");
    assert_eq!(
        root.try_get("/version").await.reason,
        "Authentication failed!"
    );
}

#[tokio::test(start_paused = true)]
async fn pools_hold_a_guest_once() {
    let (_simulator, _cluster, root) = setup().await;
    for pool in ["p1", "p2", "p1/sub"] {
        root.try_post("/pools", &[("poolid", pool)]).await.data();
    }
    root.try_put("/pools", &[("poolid", "p1"), ("vms", "100")])
        .await
        .data();
    let again = root
        .try_put("/pools", &[("poolid", "p1"), ("vms", "100")])
        .await;
    assert_eq!(
        again.message(),
        "update pools failed: VM 100 is already a pool member"
    );
    let other = root
        .try_put("/pools", &[("poolid", "p2"), ("vms", "100")])
        .await;
    assert_eq!(
        other.message(),
        "update pools failed: VM 100 belongs already to pool 'p1' and 'allow-move' is not set"
    );
    let full = root.try_delete("/pools/p1").await;
    assert_eq!(
        full.message(),
        "delete pool failed: pool 'p1' is not empty (contains VM 100)"
    );
    let moved = [("poolid", "p2"), ("vms", "100"), ("allow-move", "1")];
    root.try_put("/pools", &moved).await.data();
    let members = root.try_query("/pools", &[("poolid", "p2")]).await.data();
    assert_eq!(members[0]["members"][0]["vmid"], 100);
}

#[tokio::test(start_paused = true)]
async fn changes_of_what_is_not_there_say_which_act_failed() {
    let (_, _, root) = setup().await;
    let cases = [
        (
            "/access/roles/nor",
            "delete role failed: role 'nor' does not exist",
        ),
        (
            "/access/groups/nog",
            "delete group failed: group 'nog' does not exist",
        ),
    ];
    for (path, text) in cases {
        assert_eq!(root.try_delete(path).await.message(), text);
    }
    let answer = root
        .try_put("/access/users/nobody@pve", &[("comment", "x")])
        .await;
    assert_eq!(
        answer.message(),
        "update user failed: no such user ('nobody@pve')"
    );
    assert_eq!(
        root.try_delete("/access/users/nobody@pve").await.status,
        200
    );
    let nobody = root
        .try_put("/access/acl", &[("path", "/vms"), ("roles", "PVEAdmin")])
        .await;
    assert_eq!(nobody.error("groups"), nobody.error("users"));
    assert!(!nobody.error("tokens").is_empty());
}
