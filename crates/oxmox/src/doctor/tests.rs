//! The doctor examines the simulated Proxmox VE.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use clap::Parser;
use pve::api::access::AclChange;
use pve::privilege::{Feature, Plan, Scope};
use pve::{Client, CreateQemu, Credentials, GuestConfig};
use pve_sim::{Cluster, Release, Server, Simulator, Tls};

use super::report::{Report, State};
use super::{Wanted, diagnose, examine, render};

/// The calendar second at which the simulation begins.
async fn now(client: &Client) -> u64 {
    client
        .node(&"pve1".parse().unwrap())
        .time()
        .await
        .unwrap()
        .time
}

fn simulated(release: Release) -> (Cluster, Client) {
    let simulator = Simulator::builder()
        .release(release)
        .root_password("geheim")
        .build();
    let cluster = simulator.cluster("pve").unwrap().clone();
    let client = client(
        &cluster,
        Credentials::password("root@pam", "geheim").unwrap(),
    );
    (cluster, client)
}

fn client(cluster: &Cluster, credentials: Credentials) -> Client {
    Client::builder()
        .service(cluster.endpoint("pve1"))
        .credentials(credentials)
        .build()
        .unwrap()
}

fn everything() -> Wanted {
    Wanted {
        features: Vec::new(),
        scope: Scope::default(),
    }
}

/// A token of a new user without any rights.
async fn poor_token(cluster: &Cluster, root: &Client) -> Client {
    let access = root.access();
    access
        .create_user(&"oxmox@pve".parse().unwrap(), Some("geheim123"), None)
        .await
        .unwrap();
    let token = access
        .create_token(&"oxmox@pve!main".parse().unwrap(), true, None)
        .await
        .unwrap();
    let secret = secrecy::ExposeSecret::expose_secret(&token.value).to_owned();
    client(
        cluster,
        Credentials::token("oxmox@pve!main", secret).unwrap(),
    )
}

fn failed(report: &Report) -> Vec<&str> {
    report
        .checks
        .iter()
        .filter(|check| check.state == State::Fail)
        .map(|check| check.text.as_str())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn root_on_a_healthy_cluster_has_no_problem() {
    for release in [Release::V8_4, Release::V9_2] {
        let (_cluster, root) = simulated(release);
        tokio::time::sleep(std::time::Duration::from_secs(15)).await;
        let mut report = Report::default();
        let now = now(&root).await;
        examine::examine(&root, "root@pam", &everything(), now, &mut report).await;
        assert_eq!(failed(&report), Vec::<&str>::new(), "{release}");
        assert!(report.commands.is_empty(), "{:?}", report.commands);
        assert_eq!(report.nodes.len(), 3);
        assert!(
            report
                .storages
                .iter()
                .any(|storage| storage.name == "ceph" && storage.shared)
        );
        assert!(
            report
                .templates
                .iter()
                .any(|template| template.vmid == 9000)
        );
        assert!(
            report
                .bridges
                .iter()
                .any(|bridge| bridge.name == "vmbr0" && bridge.nodes.len() == 3)
        );
        let text = render::text(&report);
        assert!(
            text.contains("STORAGE") && text.contains("no problems"),
            "{text}"
        );
    }
}

/// The simulated Proxmox VE, but for its word that it is 7.4.
#[tokio::test(start_paused = true)]
async fn an_old_release_is_examined_and_said_to_be_old() {
    let (cluster, _root) = simulated(Release::V8_4);
    let endpoint = cluster.endpoint("pve1");
    let old = tower::service_fn(move |request: axum::http::Request<pve::Body>| {
        let mut endpoint = endpoint.clone();
        async move {
            if request.uri().path().ends_with("/version") {
                let text = r#"{"data":{"version":"7.4-16","release":"7.4","repoid":"0"}}"#;
                let body = http_body_util::Full::from(text);
                return Ok(axum::http::Response::new(body));
            }
            tower::Service::call(&mut endpoint, request).await
        }
    });
    let root = Client::builder()
        .service(old)
        .credentials(Credentials::password("root@pam", "geheim").unwrap())
        .build()
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(15)).await;
    let mut report = Report::default();
    let now = now(&root).await;
    examine::examine(&root, "root@pam", &everything(), now, &mut report).await;
    assert_eq!(failed(&report), Vec::<&str>::new());
    let old = report
        .checks
        .iter()
        .find(|check| check.subject == "release");
    let old = old.unwrap();
    assert!(
        old.state == State::Warn && old.text.contains("7.4-16 is old"),
        "{old:?}"
    );
    assert_eq!(report.nodes.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_told_where_it_opens_no_serial_line() {
    for (release, told) in [(Release::V8_4, true), (Release::V9_2, false)] {
        let (cluster, root) = simulated(release);
        let poor = poor_token(&cluster, &root).await;
        let now = now(&root).await;
        let mut report = Report::default();
        examine::examine(&poor, "oxmox@pve!main", &everything(), now, &mut report).await;
        let mut subjects = report.checks.iter().map(|check| check.subject);
        assert_eq!(subjects.any(|it| it == "consoles"), told, "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_is_a_problem() {
    let (_cluster, root) = simulated(Release::V9_2);
    let now = now(&root).await;
    let mut report = Report::default();
    examine::examine(&root, "root@pam", &everything(), now + 3600, &mut report).await;
    assert!(
        failed(&report)
            .iter()
            .any(|text| text.contains("clock of pve1")),
        "{report:?}"
    );
}

/// What the printed commands do, done through the API.
async fn obey(root: &Client, commands: &[String]) {
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["pveum", "role", "add", role, "--privs", privs, ..] => {
                let privs: BTreeSet<String> = privs.split(',').map(str::to_owned).collect();
                root.access().create_role(role, &privs).await.unwrap();
            }
            ["pveum", "acl", "modify", path, kind, who, "--roles", role] => {
                let who = who.trim_matches('\'');
                let change = AclChange {
                    path: (*path).to_owned(),
                    roles: vec![(*role).to_owned()],
                    users: if *kind == "--users" {
                        vec![who.parse().unwrap()]
                    } else {
                        Vec::new()
                    },
                    tokens: if *kind == "--tokens" {
                        vec![who.parse().unwrap()]
                    } else {
                        Vec::new()
                    },
                    groups: Vec::new(),
                    propagate: true,
                    delete: false,
                };
                root.access().change_acl(&change).await.unwrap();
            }
            other => panic!("a command nobody taught the test: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_commands_grant_exactly_what_is_missing() {
    for release in [Release::V8_4, Release::V9_2] {
        let (cluster, root) = simulated(release);
        let line = GuestConfig::new().with("serial0", "socket");
        let line = CreateQemu::new("700".parse().unwrap(), line);
        let node = "pve1".parse().unwrap();
        let made = root.node(&node).create_qemu(&line).await.unwrap();
        root.wait(&made).await.unwrap();
        let poor = poor_token(&cluster, &root).await;
        let now = now(&root).await;
        let mut before = Report::default();
        examine::examine(&poor, "oxmox@pve!main", &everything(), now, &mut before).await;
        assert!(
            failed(&before)
                .iter()
                .any(|text| text.starts_with("machines: missing")),
            "{before:?}"
        );
        assert!(!before.commands.is_empty());
        let fixes = before
            .checks
            .iter()
            .filter_map(|check| check.fix.as_deref());
        // `pvesm set --content` replaces the list: it must not be advised for what cannot be seen.
        assert!(fixes.into_iter().all(|fix| !fix.contains("pvesm set")));

        obey(&root, &before.commands).await;
        let release = poor.release().await.unwrap();
        let held = poor.access().permissions(None, None).await.unwrap();
        let plan = Plan::new(&Feature::ALL, release, &Scope::default(), &held);
        assert!(plan.is_complete(), "{release}: {:?}", plan.missing);
        let machine = poor.node(&node).qemu("700".parse().unwrap());
        machine.terminal().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wanted_feature_that_is_missing_is_a_problem() {
    let (cluster, root) = simulated(Release::V9_2);
    let poor = poor_token(&cluster, &root).await;
    let wanted = Wanted {
        features: vec![Feature::HighAvailability],
        scope: Scope::default(),
    };
    let now = now(&root).await;
    let mut report = Report::default();
    examine::examine(&poor, "oxmox@pve!main", &wanted, now, &mut report).await;
    assert!(
        failed(&report)
            .iter()
            .any(|text| text.starts_with("high-availability: missing")),
        "{report:?}"
    );
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    doctor: super::Doctor,
}

async fn over_tls(arguments: &[&str]) -> (Report, String) {
    let simulator = Simulator::builder()
        .root_password("geheim")
        .clock(pve_sim::Clock::of_this_machine())
        .build();
    let tls = Tls::self_signed(&["localhost".to_owned()]).unwrap();
    let fingerprint = tls.fingerprint().to_owned();
    let endpoint = simulator.cluster("pve").unwrap().endpoint("pve1");
    let server = Server::start(endpoint, (Ipv4Addr::LOCALHOST, 0).into(), Some(tls))
        .await
        .unwrap();
    let url = format!("https://localhost:{}", server.address().port());
    let mut line = vec![
        "doctor",
        "--endpoint",
        &url,
        "--user",
        "root@pam",
        "--password",
        "geheim",
    ];
    line.extend(arguments.iter().map(|argument| {
        if *argument == "FINGERPRINT" {
            fingerprint.as_str()
        } else {
            argument
        }
    }));
    let doctor = Line::try_parse_from(line)
        .unwrap_or_else(|error| panic!("{error}"))
        .doctor;
    let report = diagnose(&doctor.connection, &everything()).await.unwrap();
    (report, fingerprint)
}

#[tokio::test]
async fn a_certificate_nobody_knows_ends_the_examination_and_says_what_to_pin() {
    let (report, fingerprint) = over_tls(&[]).await;
    assert!(report.has_failed());
    assert_eq!(report.release, None, "nothing is asked of somebody unknown");
    let fix = report
        .checks
        .iter()
        .find_map(|check| check.fix.clone())
        .unwrap();
    assert!(fix.contains(&fingerprint), "{fix}");
}

#[tokio::test]
async fn a_pinned_certificate_opens_the_way() {
    let (report, _) = over_tls(&["--fingerprint", "FINGERPRINT"]).await;
    assert_eq!(failed(&report), Vec::<&str>::new());
    assert_eq!(report.release.as_deref(), Some("9.2.11"));
}

#[tokio::test]
async fn a_report_for_programs_has_no_secret() {
    let (report, _) = over_tls(&["--insecure"]).await;
    let json = serde_json::to_string(&report).unwrap();
    assert!(json.contains("\"state\":\"warn\"") && !json.contains("geheim"));
}
