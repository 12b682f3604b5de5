//! Logins with a second factor.

use http::Method;
use pve_sim::{Release, Simulator, WorldFile};

use crate::client::{Client, fresh};

/// The secret of RFC 6238's examples.
const WORLD: &str = "clusters: [{ name: pve, users: [{ id: p@pve, password: secret12, totp: GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ }] }]";

fn person() -> (pve_sim::Cluster, Client) {
    let file = WorldFile::parse(WORLD).unwrap();
    // The clock of the RFC's example whose code is 07081804: a period that ends in it.
    let clock = pve_sim::Clock::starting_at(1_111_111_109);
    let simulator = Simulator::builder().world(file).clock(clock).build();
    let cluster = simulator.clusters().next().unwrap().clone();
    let client = Client::stranger(cluster.endpoint("pve1"));
    (cluster, client)
}

#[tokio::test(start_paused = true)]
async fn a_password_alone_gets_a_challenge_that_opens_nothing() {
    let (cluster, stranger) = person();
    let given = [("username", "p@pve"), ("password", "secret12")];
    let data = stranger.data(Method::POST, "/access/ticket", &given).await;
    assert_eq!(data["NeedTFA"], 1);
    assert!(data.get("cap").is_none());
    let challenge = data["ticket"].as_str().unwrap();
    assert!(
        challenge.starts_with("PVE:!tfa!%7B%22totp%22%3Atrue%7D:"),
        "{challenge}"
    );
    let with = Client::stranger(cluster.endpoint("pve1"))
        .with("Cookie", &format!("PVEAuthCookie={challenge}"));
    assert_eq!(with.try_get("/version").await.status, 401);

    let answer = |code: &'static str| {
        [
            ("username", "p@pve"),
            ("tfa-challenge", challenge),
            ("password", code),
        ]
    };
    let wrong = stranger
        .try_post("/access/ticket", &answer("totp:000000"))
        .await;
    assert_eq!(
        (wrong.status, wrong.message().as_str()),
        (401, "authentication failure")
    );
    let right = stranger
        .try_post("/access/ticket", &answer("totp:081804"))
        .await;
    let ticket = right.data()["ticket"].as_str().unwrap().to_owned();
    assert!(ticket.starts_with("PVE:p@pve:"), "{ticket}");
    let with = Client::stranger(cluster.endpoint("pve1"))
        .with("Cookie", &format!("PVEAuthCookie={ticket}"));
    assert_eq!(with.try_get("/version").await.status, 200);
    let again = stranger
        .try_post("/access/ticket", &answer("totp:081804"))
        .await;
    assert_eq!(again.status, 401, "a code is good once");
}

#[tokio::test(start_paused = true)]
async fn a_code_beside_the_password_is_enough() {
    let (_, stranger) = person();
    let given = [
        ("username", "p@pve"),
        ("password", "secret12"),
        ("otp", "081804"),
    ];
    let data = stranger.data(Method::POST, "/access/ticket", &given).await;
    assert!(data["ticket"].as_str().unwrap().starts_with("PVE:p@pve:"));
}

#[tokio::test(start_paused = true)]
async fn recovery_keys_are_shown_once_and_good_once() {
    let (cluster, root) = fresh(Release::V9_2).await;
    let user = [("userid", "u@pve"), ("password", "secret12")];
    root.data(Method::POST, "/access/users", &user).await;
    let user = Client::login(cluster.endpoint("pve1"), "u@pve", "secret12").await;
    let unproven = user
        .try_post("/access/tfa/u@pve", &[("type", "recovery")])
        .await;
    assert_eq!(
        unproven.error("password"),
        "password is required to modify TFA data"
    );
    let wanted = [("type", "recovery"), ("password", "secret12")];
    let made = user.data(Method::POST, "/access/tfa/u@pve", &wanted).await;
    let keys = made["recovery"].as_array().unwrap();
    assert_eq!(keys.len(), 10);
    assert_eq!(user.get("/access/tfa/u@pve").await[0]["type"], "recovery");
    assert_eq!(root.get("/access/tfa").await[0]["userid"], "u@pve");

    let stranger = Client::stranger(cluster.endpoint("pve1"));
    let given = [("username", "u@pve"), ("password", "secret12")];
    let data = stranger.data(Method::POST, "/access/ticket", &given).await;
    let key = format!("recovery:{}", keys[0].as_str().unwrap());
    let answer = [
        ("username", "u@pve"),
        ("tfa-challenge", data["ticket"].as_str().unwrap()),
        ("password", key.as_str()),
    ];
    assert_eq!(
        stranger.try_post("/access/ticket", &answer).await.status,
        200
    );
    assert_eq!(
        stranger.try_post("/access/ticket", &answer).await.status,
        401
    );
    root.data(Method::DELETE, "/access/tfa/u@pve/recovery", &[])
        .await;
    Client::login(cluster.endpoint("pve1"), "u@pve", "secret12").await;
}
