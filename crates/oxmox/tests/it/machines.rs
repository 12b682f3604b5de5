//! `oxmox vm …` against the demo: every command, and what it says when it cannot.

use std::path::Path;
use std::process::Stdio;

use api::vm::{Provider, VirtualMachine};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::harness::{OXMOX, PATIENCE, Running, Sim, adopt_line, client};

struct Demo {
    _running: Running,
    data: tempfile::TempDir,
}

impl Demo {
    /// A demo whose machines are all ready.
    async fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let directory = data.path().to_str().unwrap();
        let running = Running::start(&["up", "--demo", "--data-dir", directory], &[]);
        running.says("Try next").await;
        Self {
            _running: running,
            data,
        }
    }

    fn kubeconfig(&self) -> &Path {
        self.data.path()
    }

    async fn vm(&self, args: &[&str]) -> (bool, String) {
        self.typed(args, "").await
    }

    /// Runs `oxmox vm …` with something typed into it.
    async fn typed(&self, args: &[&str], input: &str) -> (bool, String) {
        let mut child = Command::new(OXMOX)
            .arg("vm")
            .args(args)
            .env("KUBECONFIG", self.kubeconfig().join("kubeconfig"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let ended = tokio::time::timeout(PATIENCE, child.wait_with_output());
        let output = ended.await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    async fn succeeds(&self, args: &[&str]) -> String {
        let (ok, said) = self.vm(args).await;
        assert!(ok, "{args:?}: {said}");
        said
    }

    async fn fails(&self, args: &[&str], fix: &str) {
        let (ok, said) = self.vm(args).await;
        assert!(!ok && said.contains(fix), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn every_command_does_what_it_says_and_says_what_to_do_when_it_cannot() {
    let demo = Demo::start().await;
    let listed = demo.succeeds(&["list"]).await;
    assert!(
        listed.contains("web-1") && listed.contains("Running"),
        "{listed}"
    );
    let all = demo.succeeds(&["list", "-A", "--json"]).await;
    assert!(all.contains("\"name\": \"db-1\""), "{all}");
    let nothing = demo.succeeds(&["list", "-n", "elsewhere"]).await;
    assert!(nothing.contains("no machines in elsewhere"), "{nothing}");
    let described = demo.succeeds(&["describe", "web-1"]).await;
    assert!(described.contains("/console/default/web-1"), "{described}");
    assert!(!described.contains("token="), "{described}");

    for command in [
        "start", "stop", "restart", "pause", "delete", "describe", "console",
    ] {
        demo.fails(
            &[command, "web-9"],
            "`oxmox vm list -A` shows those there are",
        )
        .await;
        demo.fails(
            &[command, "web-1", "-n", "elsewhere"],
            "in namespace \"elsewhere\", but there is one in \"default\": add `-n default`",
        )
        .await;
        demo.fails(&[command], "<NAME>").await;
    }
    demo.fails(
        &["move", "web-9", "--to", "pve2"],
        "there is no machine \"web-9\"",
    )
    .await;
    demo.fails(&["move", "web-1"], "--to").await;
    demo.fails(&["stop", "web-1", "--timeout", "5"], "--wait")
        .await;

    demo.succeeds(&["pause", "web-1", "--wait"]).await;
    let paused = demo.succeeds(&["describe", "web-1"]).await;
    assert!(paused.contains("powerState: Paused"), "{paused}");
    demo.succeeds(&["start", "web-1", "--wait"]).await;
    demo.succeeds(&["restart", "web-1", "--wait"]).await;
    demo.succeeds(&["stop", "web-1", "--hard", "--wait"]).await;
    let off = demo.succeeds(&["describe", "web-1"]).await;
    assert!(
        off.contains("powerState: Off") || off.contains("powerState: \"Off\""),
        "{off}"
    );

    let node = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with("node: "));
        line.map(|line| line.trim().to_owned())
    };
    let before = node(&demo.succeeds(&["describe", "web-2"]).await);
    let to = if before.as_deref() == Some("node: pve2") {
        "pve3"
    } else {
        "pve2"
    };
    demo.succeeds(&["move", "web-2", "--to", to, "--wait"])
        .await;
    let after = demo.succeeds(&["describe", "web-2"]).await;
    assert_eq!(
        after.matches(&format!("node: {to}")).count().min(1),
        1,
        "{after}"
    );

    let immovable = ["move", "web-2", "--to", "pve9", "--wait"];
    demo.fails(&immovable, "the cluster has no node 'pve9'")
        .await;

    let taken = demo
        .succeeds(&["snapshot", "first", "--vm", "web-2", "--wait"])
        .await;
    assert!(taken.contains("/first taken"), "{taken}");
    demo.fails(
        &["snapshot", "second", "--vm", "web-9"],
        "there is no machine \"web-9\"",
    )
    .await;

    demo.succeeds(&["delete", "web-2", "--wait"]).await;
    let left = demo.succeeds(&["list"]).await;
    assert!(!left.contains("web-2") && left.contains("db-1"), "{left}");
}

#[tokio::test]
async fn a_console_is_opened_through_the_operator_once_per_permit() {
    let demo = Demo::start().await;
    let (ok, said) = demo
        .typed(&["console", "web-1"], "joe\rsecret\rhostname\r")
        .await;
    assert!(ok, "{said}");
    assert!(said.contains("web-1 login: joe"), "{said}");
    assert!(!said.contains("secret"), "a password is not echoed: {said}");
    assert!(
        said.contains("joe@web-1:~$ hostname\r\nweb-1\r\n"),
        "{said}"
    );
    assert!(said.contains("left the console"), "{said}");

    let url = demo.succeeds(&["console", "web-1", "--url"]).await;
    let (address, token) = url.trim().split_once("?token=").unwrap();
    assert!(address.ends_with("/console/default/web-1"), "{url}");
    let described = demo.succeeds(&["describe", "web-1"]).await;
    assert!(
        !described.contains(token),
        "only the digest is kept: {described}"
    );
    assert_eq!(visit(address, None).await, 401);
    assert_eq!(visit(address, Some("wrong")).await, 403);
    assert_eq!(
        visit(&address.replace("web-1", "web-9"), Some(token)).await,
        403
    );
    let (permit, secret) = token.split_once('.').unwrap();
    assert_eq!(visit(address, Some(secret)).await, 403);
    let other = format!("{permit}x.{secret}");
    assert_eq!(visit(address, Some(&other)).await, 403);
    assert_eq!(visit(address, Some(token)).await, 101);
    assert_eq!(
        visit(address, Some(token)).await,
        403,
        "a token is good once"
    );

    demo.succeeds(&["stop", "web-1", "--hard", "--wait"]).await;
    let (_, off) = demo.typed(&["console", "web-1"], "\r").await;
    assert!(off.contains("not running"), "{off}");
}

#[tokio::test]
async fn a_viewer_sees_the_screen_through_the_operator_with_a_password_for_one_visit() {
    use tokio::io::AsyncReadExt as _;
    let demo = Demo::start().await;
    let kubeconfig = demo.kubeconfig().join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let mut shown = Running::start(&["vm", "--kubeconfig", kubeconfig, "vnc", "web-1"], &[]);
    let place = shown.says("web-1's screen is at ").await;
    let place = place.split(' ').next().unwrap();
    let password = shown.says("for this visit only: ").await;
    assert_eq!(password.len(), 8, "{password}");

    let mut viewer = tokio::net::TcpStream::connect(place).await.unwrap();
    let mut version = [0; 12];
    viewer.read_exact(&mut version).await.unwrap();
    assert_eq!(&version, b"RFB 003.008\n");
    viewer.write_all(&version).await.unwrap();
    let mut security = [0; 2];
    viewer.read_exact(&mut security).await.unwrap();
    assert_eq!(security, [1, 2], "a password is asked for");
    drop(viewer);
    assert!(shown.end().await.success(), "{}", shown.said());

    demo.succeeds(&["stop", "web-1", "--hard", "--wait"]).await;
    demo.fails(&["vnc", "web-1"], "does the machine run?").await;
    demo.fails(&["vnc", "web-9"], "there is no machine").await;
}

/// An `oxmox up` that looks after a Proxmox VE by a token.
async fn looked_after(sim: &Sim) -> Demo {
    let data = tempfile::tempdir().unwrap();
    let running = sim.looked_after(data.path());
    running.says("Try next").await;
    Demo {
        _running: running,
        data,
    }
}

#[tokio::test]
async fn a_token_that_may_open_no_serial_line_is_told_what_does() {
    let sim = Sim::with_line("8.4").await;
    let up = looked_after(&sim).await;
    adopt_line(&client(up.data.path()).await, "default").await;
    up.fails(&["console", "line"], "lets no API token open a serial line")
        .await;
    let url = up.succeeds(&["console", "line", "--url"]).await;
    let (address, token) = url.trim().split_once("?token=").unwrap();
    let screen = format!("{address}/screen");
    assert_eq!(visit(&screen, Some(token)).await, 101);
}

#[tokio::test]
async fn a_namespace_that_may_not_use_a_provider_any_more_sees_no_console_there() {
    let sim = Sim::with_line("9.2").await;
    let up = looked_after(&sim).await;
    let client = client(up.data.path()).await;
    let team = serde_json::from_value(json!({ "metadata": { "name": "team" } })).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let created = namespaces.create(&PostParams::default(), &team).await;
    created.unwrap();
    let providers: Api<Provider> = Api::namespaced(client.clone(), "default");
    let allow = async |who: serde_json::Value| {
        let change = Patch::Merge(json!({ "spec": { "allowedNamespaces": who } }));
        let how = PatchParams::default();
        providers.patch("default", &how, &change).await.unwrap();
    };
    allow(json!(["team"])).await;
    adopt_line(&client, "team").await;
    let visit = async || {
        let url = ["console", "line", "--url", "-n", "team"];
        let url = up.succeeds(&url).await;
        let (address, token) = url.trim().split_once("?token=").unwrap();
        visit(address, Some(token)).await
    };
    assert_eq!(visit().await, 101);
    allow(json!([])).await;
    assert_eq!(visit().await, 403);
}

/// Asks for a WebSocket; the status of the answer.
async fn visit(address: &str, token: Option<&str>) -> u16 {
    use tokio::io::AsyncReadExt as _;
    let (host, path) = address
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .unwrap();
    let mut socket = tokio::net::TcpStream::connect(host).await.unwrap();
    let query = token
        .map(|token| format!("?token={token}"))
        .unwrap_or_default();
    let request = format!(
        "GET /{path}{query} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(2).any(|two| two == b"\r\n") {
        let mut part = [0; 512];
        let length = socket.read(&mut part).await.unwrap();
        assert!(length > 0, "no answer");
        answer.extend_from_slice(&part[..length]);
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn whom_the_api_server_refuses_is_told_why_and_sees_what_they_may() {
    let data = tempfile::tempdir().unwrap();
    let mut config = apiserver::Config::new(data.path());
    config.tokens = vec![("sesame".into(), apiserver::User::named("joe"))];
    let server = apiserver::Server::start(config).await.unwrap();
    let admin = client(data.path()).await;
    let as_bearer = |token: &str| {
        let mut read = Kubeconfig::read_from(server.kubeconfig_path()).unwrap();
        let who = json!({ "token": token });
        read.auth_infos[0].auth_info = serde_json::from_value(who).unwrap();
        let file = data.path().join(token);
        std::fs::write(&file, serde_json::to_string(&read).unwrap()).unwrap();
        file
    };
    let vm = async |kubeconfig: &Path, args: &[&str]| {
        let mut run = Command::new(OXMOX);
        run.args(["vm", "--kubeconfig"]).arg(kubeconfig).args(args);
        let output = run.output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&text).into_owned();
        (output.status.success(), said)
    };
    let refused = async |kubeconfig: &Path, args: &[&str], why: &str| {
        let (ok, said) = vm(kubeconfig, args).await;
        assert!(!ok && said.contains(why), "{args:?}: {said}");
        assert!(!said.contains("did not answer"), "{args:?}: {said}");
    };
    let (all, joe) = (server.kubeconfig_path(), as_bearer("sesame"));
    for args in [&["list"][..], &["describe", "web"], &["start", "web"]] {
        refused(all, args, "oxmox crds | kubectl apply").await;
        refused(&as_bearer("wrong"), args, "does not know you").await;
        refused(&joe, args, "does not let you").await;
    }

    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for crd in api::crds() {
        let created = definitions.create(&PostParams::default(), &crd).await;
        let name = created.unwrap().name_any();
        let served = kube::runtime::conditions::is_crd_established();
        let served = await_condition(definitions.clone(), &name, served);
        served.await.unwrap();
    }
    let machines: Api<VirtualMachine> = Api::default_namespaced(admin.clone());
    let machine = json!({
        "metadata": { "name": "web" },
        "spec": { "providerRef": { "name": "pve" }, "adopt": { "vmid": 100 } },
    });
    let machine = serde_json::from_value(machine).unwrap();
    let created = machines.create(&PostParams::default(), &machine).await;
    created.unwrap();
    let rights = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "looks" },
        "rules": [{
            "apiGroups": ["infra.virtrigaud.io"], "resources": ["virtualmachines"],
            "verbs": ["get", "list", "patch"],
        }],
    });
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let rights = serde_json::from_value(rights).unwrap();
    let created = roles.create(&PostParams::default(), &rights).await;
    created.unwrap();
    let bound = json!({
        "metadata": { "name": "joe-looks" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe" }],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(admin);
    let bound = serde_json::from_value(bound).unwrap();
    let created = bindings.create(&PostParams::default(), &bound).await;
    created.unwrap();
    let (ok, described) = vm(&joe, &["describe", "web"]).await;
    assert!(ok && described.contains("vmid: 100"), "{described}");
    assert!(
        described.contains("its events are not shown: the API server does not let you"),
        "{described}"
    );
    refused(all, &["start", "web-9"], "there is no machine").await;
    refused(&joe, &["delete", "web"], "web is not deleted").await;
    refused(&joe, &["delete", "web"], "does not let you").await;
    refused(&joe, &["start", "web", "--wait"], "cannot be watched").await;
    refused(&joe, &["start", "web", "--wait"], "does not let you").await;
    let snapshot = ["snapshot", "first", "--vm", "web"];
    refused(&joe, &snapshot, "first is not taken").await;
    server.shutdown().await;

    let gone = ["list"];
    let (ok, said) = vm(&joe, &gone).await;
    assert!(!ok && said.contains("did not answer"), "{said}");
}
