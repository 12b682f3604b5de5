//! Injected faults and counted requests.

use http::Method;
use pve_sim::{Action, Cluster, Fault, Lost, Simulator};
use serde_json::json;

use crate::client::Client;

async fn setup() -> (Simulator, Cluster, Client) {
    let simulator = Simulator::builder().build();
    let root = Client::root(&simulator).await;
    let cluster = simulator.clusters().next().unwrap().clone();
    (simulator, cluster, root)
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_its_effect() {
    let (_simulator, cluster, root) = setup().await;
    cluster
        .control()
        .inject(Fault::once("POST /pools", Action::DropAnswer));
    let lost = root
        .try_call(Method::POST, "/pools", &[("poolid", "p")])
        .await;
    assert_eq!(lost.unwrap_err(), Lost::Closed);
    assert_eq!(root.try_get("/pools/p").await.status, 200);
    cluster
        .control()
        .inject(Fault::once("POST /pools", Action::DropRequest));
    let lost = root
        .try_call(Method::POST, "/pools", &[("poolid", "q")])
        .await;
    assert_eq!(lost.unwrap_err(), Lost::Closed);
    assert_eq!(root.try_get("/pools/q").await.status, 500);
}

#[tokio::test(start_paused = true)]
async fn an_error_or_a_proxy_status_can_be_answered_instead() {
    let (_simulator, cluster, root) = setup().await;
    let control = cluster.control();
    control.inject(Fault::once("GET /version", Action::die("got timeout")));
    assert_eq!(root.try_get("/version").await.message(), "got timeout");
    assert_eq!(root.try_get("/version").await.status, 200);
    control.inject(Fault::once("POST /pools", Action::Proxy { status: 596 }));
    assert_eq!(
        root.try_post("/pools", &[("poolid", "p")]).await.status,
        596
    );
    assert_eq!(root.try_get("/pools/p").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_task_can_die_and_cleans_up() {
    let (_simulator, cluster, root) = setup().await;
    let exit = "storage 'ceph' is not online".to_owned();
    cluster.control().inject(Fault::once(
        "POST *",
        Action::FailTask { exit: exit.clone() },
    ));
    let path = "/nodes/pve1/qemu/9000/clone";
    let clone = root.try_post(path, &[("newid", "200")]).await;
    assert_eq!(root.exit_of(&clone).await, exit);
    assert_eq!(
        root.try_get("/nodes/pve1/qemu/200/config").await.status,
        500
    );
    assert_eq!(cluster.control().hits()["fail-task"], 1);
    let clone = root.try_post(path, &[("newid", "200")]).await;
    assert_eq!(root.exit_of(&clone).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn the_nth_call_can_be_hit() {
    let (_simulator, cluster, root) = setup().await;
    cluster
        .control()
        .inject(Fault::nth("GET /nodes/*", 3, Action::die("now")));
    let mut failed = Vec::new();
    for number in 1..=5 {
        if root.try_get("/nodes/pve1/status").await.status == 500 {
            failed.push(number);
        }
    }
    assert_eq!(failed, [3]);
}

#[tokio::test(start_paused = true)]
async fn a_share_of_calls_can_be_hit_and_repeats_by_seed() {
    let pattern = || async {
        let (_simulator, cluster, root) = setup().await;
        cluster
            .control()
            .inject(Fault::sometimes("GET /version", 0.3, Action::die("x")));
        let mut hits = Vec::new();
        for _ in 0..100 {
            hits.push(root.try_get("/version").await.status == 500);
        }
        hits
    };
    let first = pattern().await;
    let count = first.iter().filter(|hit| **hit).count();
    assert!((15..=45).contains(&count), "{count} of 100");
    assert_eq!(first, pattern().await);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_ends_only_by_the_clients_patience() {
    let (_simulator, cluster, root) = setup().await;
    cluster
        .control()
        .inject(Fault::once("GET /version", Action::Hang));
    let patience = std::time::Duration::from_hours(1);
    assert!(
        tokio::time::timeout(patience, root.try_get("/version"))
            .await
            .is_err()
    );
    assert_eq!(root.try_get("/version").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_route() {
    let (_simulator, cluster, root) = setup().await;
    cluster.control().reset_counts();
    root.try_get("/nodes/pve1/status").await;
    root.try_get("/nodes/pve2/status").await;
    root.try_get("/version").await;
    let counts = cluster.control().counts();
    assert_eq!(counts["GET /nodes/{node}/status"], 2);
    assert_eq!(counts["GET /version"], 1);
    assert_eq!(cluster.control().total(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_control_surface_speaks_http() {
    let (_simulator, _cluster, root) = setup().await;
    let sim = |method: Method, path: &'static str, body: String| {
        let root = root.clone();
        async move { root.send(method, path, None, body).await.unwrap() }
    };
    let fault = json!({ "route": "GET /version", "times": 1, "action": "error", "status": 500, "message": "no" });
    let made = sim(Method::POST, "/sim/faults", fault.to_string()).await;
    assert_eq!(made.body["id"], 1);
    assert_eq!(root.try_get("/version").await.message(), "no");
    assert_eq!(
        sim(Method::GET, "/sim/faults", String::new()).await.body,
        json!({})
    );
    let bad = sim(Method::POST, "/sim/faults", "{}".to_owned()).await;
    assert_eq!(bad.status, 400);
    assert_eq!(
        sim(Method::POST, "/sim/nodes/pve2/kill", String::new())
            .await
            .status,
        200
    );
    assert_eq!(root.try_get("/nodes/pve2/status").await.status, 595);
    assert_eq!(
        sim(Method::POST, "/sim/nodes/pve2/revive", String::new())
            .await
            .status,
        200
    );
    assert_eq!(root.try_get("/nodes/pve2/status").await.status, 200);
    let state = sim(Method::GET, "/sim/state", String::new()).await;
    assert_eq!(state.body["nodes"]["pve2"]["up"], true);
    assert_eq!(
        sim(Method::GET, "/sim/nothing", String::new()).await.status,
        404
    );
}
