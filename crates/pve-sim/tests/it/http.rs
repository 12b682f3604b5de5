//! The way of a request: order of checks, encodings, error shapes.

use http::Method;
use pve_sim::{Release, Simulator};
use serde_json::json;

use crate::client::Client;

fn simulator() -> Simulator {
    Simulator::builder().build()
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_asked_for_a_ticket_before_anything_else() {
    let simulator = simulator();
    let stranger = Client::root(&simulator).await.without("Cookie");
    for path in ["/nodes", "/nope"] {
        let answer = stranger.try_get(path).await;
        assert_eq!(
            (answer.status, answer.reason.as_str(), answer.text.as_str()),
            (401, "No ticket", "")
        );
    }
    assert_eq!(stranger.try_get("/access/domains").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn only_what_the_first_parts_of_a_path_tell_is_told_to_strangers() {
    let simulator = simulator();
    let root = Client::root(&simulator).await;
    let stranger = root.clone().without("Cookie");
    let ask = async |who: &Client, uri: &str| {
        let answer = who.send(Method::GET, uri, None, "").await.unwrap();
        (answer.status, answer.reason)
    };
    for uri in ["/api2", "/api2/", "/api2/x", "/api2/9/nodes"] {
        assert_eq!(ask(&stranger, uri).await, (501, "no such uri".to_owned()));
    }
    let before = tokio::time::Instant::now();
    ask(&stranger, "/api2").await;
    assert!(
        before.elapsed().is_zero(),
        "what is no API is no login that failed"
    );
    let (status, reason) = ask(&stranger, "/api2/yaml/nodes").await;
    assert_eq!((status, reason.as_str()), (401, "No ticket"));
    let (status, reason) = ask(&root, "/api2/yaml/nodes").await;
    assert_eq!(
        (status, reason.as_str()),
        (501, "no formatter for uri /nodes, format yaml")
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_with_a_ticket_needs_the_csrf_token() {
    let simulator = simulator();
    let root = Client::root(&simulator).await;
    let without = root.clone().without("CSRFPreventionToken");
    let refused = without.try_post("/pools", &[("poolid", "p")]).await;
    assert_eq!(refused.reason, "Permission denied - invalid csrf token");
    assert_eq!(without.try_get("/pools").await.status, 200);
    assert_eq!(
        root.try_post("/pools", &[("poolid", "p")]).await.status,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn refused_logins_take_their_time_if_wanted() {
    let simulator = Simulator::builder().slow_refusals(true).build();
    let stranger = Client::root(&simulator).await.without("Cookie");
    let before = tokio::time::Instant::now();
    stranger.try_get("/version").await;
    let waited = before.elapsed();
    Client::root(&simulator).await.try_get("/version").await;
    assert!(waited >= std::time::Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_and_verbs_are_not_implemented() {
    let root = Client::root(&simulator()).await;
    let answer = root.try_get("/nope").await;
    assert_eq!(answer.status, 501);
    assert_eq!(
        answer.body,
        json!({ "data": null, "message": "Method 'GET /nope' not implemented" })
    );
    assert_eq!(
        root.try_post("/version", &[]).await.message(),
        "Method 'POST /version' not implemented"
    );
    let patch = root
        .send(Method::PATCH, "/api2/json/version", None, String::new())
        .await
        .unwrap();
    assert_eq!(
        (patch.status, patch.reason.as_str()),
        (501, "method 'PATCH' not available")
    );
}

#[tokio::test(start_paused = true)]
async fn rights_are_checked_before_parameters() {
    let simulator = simulator();
    let root = Client::root(&simulator).await;
    root.try_post(
        "/access/users",
        &[("userid", "u@pve"), ("password", "secret12")],
    )
    .await
    .data();
    let cluster = simulator.clusters().next().unwrap();
    let user = Client::login(cluster.endpoint("pve1"), "u@pve", "secret12").await;
    let bad = "/nodes/pve1/status?bogus=1";
    assert_eq!(
        user.try_get(bad).await.message(),
        "Permission check failed (/nodes/pve1, Sys.Audit)"
    );
    assert_eq!(root.try_get(bad).await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn all_parameter_errors_come_together() {
    let root = Client::root(&simulator()).await;
    let params = [
        ("vmid", "5"),
        ("memory", "abc"),
        ("bogus", "1"),
        ("cores", "0"),
    ];
    let answer = root.try_post("/nodes/pve1/qemu", &params).await;
    assert_eq!(
        (answer.status, answer.reason.as_str()),
        (400, "Parameter verification failed.")
    );
    assert_eq!(
        answer.error("vmid"),
        "invalid format - value does not look like a valid VM ID\n"
    );
    assert_eq!(
        answer.error("cores"),
        "value must have a minimum value of 1"
    );
    assert_eq!(
        answer.error("memory"),
        "invalid format - format error\nmemory.current: type check ('integer') failed - got 'abc'\n"
    );
    assert!(
        answer
            .error("bogus")
            .starts_with("property is not defined in schema")
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_are_forms_or_json_and_nothing_else() {
    let root = Client::root(&simulator()).await;
    let put = |kind: &'static str, body: &str| {
        let root = root.clone();
        let body = body.to_owned();
        async move {
            root.send(Method::PUT, "/api2/json/pools/p", Some(kind), body)
                .await
                .unwrap()
        }
    };
    root.try_post("/pools", &[("poolid", "p")]).await.data();
    assert_eq!(
        put("application/json", r#"{"comment":"x"}"#).await.status,
        200
    );
    let malformed = put("application/json", "{bad").await;
    assert_eq!(malformed.status, 500);
    assert!(
        malformed
            .reason
            .starts_with("'\"' expected, at character offset 1"),
        "{malformed:?}"
    );
    let other = put("text/plain", "a=b").await;
    assert_eq!(
        (other.status, other.reason.as_str()),
        (506, "upload 'Content-Type 'text/plain' not implemented")
    );
    let body = root
        .send(Method::DELETE, "/api2/json/pools/p", None, "x=1")
        .await
        .unwrap();
    assert_eq!(
        (body.status, body.reason.as_str()),
        (501, "Unexpected content for method 'DELETE'")
    );
}

#[tokio::test(start_paused = true)]
async fn a_parameter_must_not_contradict_the_path() {
    let root = Client::root(&simulator()).await;
    root.try_post("/pools", &[("poolid", "p")]).await.data();
    let answer = root.try_put("/pools/p", &[("poolid", "q")]).await;
    assert_eq!(
        answer.error("poolid"),
        "duplicate parameter (already defined in URI) with conflicting values!"
    );
}

#[tokio::test(start_paused = true)]
async fn extjs_answers_are_always_200() {
    let root = Client::root(&simulator()).await;
    let ok = root
        .send(Method::GET, "/api2/extjs/version", None, String::new())
        .await
        .unwrap();
    assert_eq!(ok.body["success"], 1);
    let path = "/api2/extjs/nodes/pve1/qemu/999/config";
    let failed = root
        .send(Method::GET, path, None, String::new())
        .await
        .unwrap();
    assert_eq!(failed.status, 200);
    assert_eq!(failed.body["success"], 0);
    assert_eq!(failed.body["status"], 500);
    let outside = root
        .send(Method::GET, "/nonsense", None, String::new())
        .await
        .unwrap();
    assert_eq!(
        (outside.status, outside.text.as_str()),
        (500, "no such file '/nonsense'")
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_node_cannot_be_asked() {
    let root = Client::root(&simulator()).await;
    let answer = root.try_get("/nodes/pve9/status").await;
    assert_eq!(answer.status, 500);
    assert!(
        answer
            .message()
            .starts_with("hostname lookup 'pve9' failed"),
        "{answer:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_release_decides_what_exists() {
    for (release, version) in [(Release::V8_4, "8.4.21"), (Release::V9_2, "9.2.11")] {
        let simulator = Simulator::builder().release(release).build();
        let root = Client::root(&simulator).await;
        assert_eq!(root.try_get("/version").await.data()["version"], version);
        let rules = root.try_get("/cluster/ha/rules").await.status;
        assert_eq!(rules, if release == Release::V9_2 { 200 } else { 501 });
        let role = root
            .try_post("/access/roles", &[("roleid", "R"), ("privs", "VM.Monitor")])
            .await;
        assert_eq!(
            role.status,
            if release == Release::V9_2 { 400 } else { 200 }
        );
    }
}
