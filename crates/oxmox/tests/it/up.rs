//! `oxmox up`: the first minute, and coming back.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use testbed::{Kubectl, assets_or_skip};

use crate::harness::{Running, Sim, adopt_line, client};

#[tokio::test]
async fn the_demo_brings_its_machines_up_ends_well_and_finds_them_again() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let mut tables = Vec::new();
    for _ in 0..2 {
        let mut demo = Running::start(&["up", "--demo", "--until-ready", "--data-dir", data], &[]);
        let status = demo.end().await;
        let said = demo.said();
        assert!(status.success(), "{said}");
        assert!(said.contains("3 machines ready after"), "{said}");
        let rows = ["db-1", "web-1", "web-2"].map(|name| {
            let mut lines = said.lines().map(str::trim);
            let row = lines.find(|line| line.starts_with(name) && line.contains("Running"));
            row.unwrap_or_else(|| panic!("{name} has no row in\n{said}"))
                .to_owned()
        });
        tables.push(rows);
    }
    assert_eq!(tables[0], tables[1], "the same guests are there");
}

#[tokio::test]
async fn a_machine_that_can_never_be_ends_no_demo() {
    let Some(assets) = assets_or_skip("up", &["kubectl"]) else {
        return;
    };
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_str().unwrap();
    let args = ["up", "--demo", "--data-dir", directory];
    let mut demo = Running::start(&args, &[]);
    demo.says("Proxmox VE").await;
    let kubectl = Kubectl::new(&assets, &data.path().join("kubeconfig")).unwrap();
    let wrong = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VirtualMachine
metadata: { name: wrong }
spec:
  providerRef: { name: demo }
  classRef: { name: small }
  imageRef: { name: ubuntu-24 }
  networks: [{ name: nowhere }]
";
    let apply = ["apply", "-f", "-"];
    kubectl.run(&apply, wrong).await.unwrap().success();
    demo.says("Try next").await;
    let failed = ["wait", "--for=jsonpath={.status.phase}=Failed", "vm/wrong"];
    kubectl.run(&failed, "").await.unwrap().success();
    demo.signal("INT").await;
    assert!(demo.end().await.success(), "{}", demo.said());

    // It is in the store now, and still ends nothing; who waits for all machines is told.
    let mut again = Running::start(&args, &[]);
    again.says("wrong cannot come up as declared").await;
    again.says("Try next").await;
    again.signal("INT").await;
    assert!(again.end().await.success(), "{}", again.said());
    let mut script = Running::start(&[&args[..], &["--until-ready"]].concat(), &[]);
    assert_eq!(script.end().await.code(), Some(1), "{}", script.said());
}

#[tokio::test]
async fn a_real_pve_is_looked_after_across_restarts() {
    let Some(assets) = assets_or_skip("up", &["kubectl"]) else {
        return;
    };
    let sim = Sim::start().await;
    let data = tempfile::tempdir().unwrap();
    let args = [
        "up",
        "--pve",
        &sim.url,
        "--token",
        "virtrigaud@pve!vrtg-token=11111111-2222-3333-4444-555555555555",
        "--fingerprint",
        &sim.fingerprint,
        "--data-dir",
        data.path().to_str().unwrap(),
    ];
    let mut first = Running::start(&args, &[]);
    first.says("(9.2.").await;
    first.says("Try next").await;
    let kubeconfig = data.path().join("kubeconfig");
    let kubectl = Kubectl::new(&assets, &kubeconfig).unwrap();
    let run = async |args: &[&str], input: &str| kubectl.run(args, input).await.unwrap().success();
    run(
        &[
            "wait",
            "--for=condition=Ready",
            "provider/default",
            "--timeout=60s",
        ],
        "",
    )
    .await;
    for name in ["class-small", "image"] {
        run(&["apply", "-f", "-"], &sim.manifest(name)).await;
    }
    let machine = sim.manifest("machine").replace("proxmox-prod", "default");
    run(&["apply", "-f", "-"], &machine).await;
    run(
        &[
            "wait",
            "--for=condition=Ready",
            "vm/web-server",
            "--timeout=150s",
        ],
        "",
    )
    .await;
    let uid = run(
        &["get", "vm", "web-server", "-o", "jsonpath={.metadata.uid}"],
        "",
    )
    .await;
    first.signal("INT").await;
    assert!(first.end().await.success(), "{}", first.said());
    assert_eq!(sim.guests().await, ["web-server"], "machines outlive us");

    // What was made before is known again, and nothing is made twice. What a Provider's runtime.env knows does here, too.
    let args = ["up", "--data-dir", data.path().to_str().unwrap()];
    let secret = "11111111-2222-3333-4444-555555555555";
    let variables = [
        ("PVE_ENDPOINT", sim.url.as_str()),
        ("PVE_TOKEN_ID", "virtrigaud@pve!vrtg-token"),
        ("PVE_TOKEN_SECRET", secret),
        ("PVE_INSECURE_SKIP_VERIFY", "true"),
        ("PVE_NODE_SELECTOR", "pve1, pve2"),
    ];
    let variables = variables.map(|(name, value)| (name, Path::new(value)));
    let mut second = Running::start(&args, &variables);
    second.says("Try next").await;
    assert!(!second.said().contains(secret), "{}", second.said());
    let again = Kubectl::new(&assets, &kubeconfig).unwrap();
    let ready = ["wait", "--for=condition=Ready", "provider/default"];
    again.run(&ready, "").await.unwrap().success();
    let path = "jsonpath={.spec.nodeSelector}";
    let nodes = ["get", "provider", "default", "-o", path];
    let nodes = again.run(&nodes, "").await.unwrap().success();
    assert_eq!(nodes, r#"["pve1","pve2"]"#);
    let shown = ["get", "vm", "web-server", "-o", "jsonpath={.metadata.uid}"];
    assert_eq!(again.run(&shown, "").await.unwrap().success(), uid);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(sim.guests().await, ["web-server"]);
    let gone = ["delete", "vm", "web-server", "--timeout=150s"];
    again.run(&gone, "").await.unwrap().success();
    assert_eq!(sim.guests().await, Vec::<String>::new());
    second.signal("TERM").await;
    assert!(second.end().await.success(), "{}", second.said());
    assert!(Path::new(&kubeconfig).exists());
}

#[tokio::test]
async fn who_is_not_let_in_is_told_at_once() {
    let sim = Sim::start().await;
    let data = tempfile::tempdir().unwrap();
    let secret = "99999999-2222-3333-4444-555555555555";
    let token = format!("virtrigaud@pve!vrtg-token={secret}");
    let data = data.path().to_str().unwrap();
    let args = ["up", "--pve", &sim.url, "--token", &token, "--until-ready"];
    let known = ["--fingerprint", sim.fingerprint.as_str()];
    for (trust, word) in [(&known[..], "not authenticated"), (&[], "certificate")] {
        let mut up = Running::start(&[&args[..], trust, &["--data-dir", data]].concat(), &[]);
        assert_eq!(up.end().await.code(), Some(1), "{}", up.said());
        let said = up.said();
        assert!(
            said.contains(word) && said.contains("oxmox doctor"),
            "{said}"
        );
        assert!(!said.contains(secret), "{said}");
    }
}

#[tokio::test]
async fn who_waits_for_machines_is_not_told_what_the_last_run_saw() {
    let mut sim = Sim::with_line("9.2").await;
    let data = tempfile::tempdir().unwrap();
    let mut first = sim.looked_after(data.path());
    first.says("Try next").await;
    adopt_line(&client(data.path()).await, "default").await;
    first.signal("INT").await;
    assert!(first.end().await.success(), "{}", first.said());

    let again = ["up", "--until-ready", "--data-dir"];
    let again = [&again[..], &[data.path().to_str().unwrap()]].concat();
    let mut there = Running::start(&again, &[]);
    there.says("1 machines ready").await;
    assert!(there.end().await.success(), "{}", there.said());
    sim.running.child.kill().await.unwrap();
    let mut gone = Running::start(&again, &[]);
    gone.says("0 of 1 machines ready").await;
    gone.says("default/default does not answer").await;
    assert_eq!(gone.end().await.code(), Some(1), "{}", gone.said());
}

#[tokio::test]
async fn a_demo_has_nothing_to_do_with_the_data_of_real_machines() {
    let data = tempfile::tempdir().unwrap();
    let named = [("OXMOX_DATA_DIR", data.path())];
    let mut demo = Running::start(&["up", "--demo"], &named);
    demo.says("web-1").await;
    demo.signal("INT").await;
    assert!(demo.end().await.success(), "{}", demo.said());
    assert_eq!(data.path().read_dir().unwrap().count(), 0);

    let sim = Sim::start().await;
    let mut real = sim.looked_after(data.path());
    real.says("Try next").await;
    real.signal("INT").await;
    assert!(real.end().await.success(), "{}", real.said());
    let typed = ["up", "--demo", "--data-dir", data.path().to_str().unwrap()];
    let mut demo = Running::start(&typed, &[]);
    demo.says("Provider default is there already").await;
    assert_eq!(demo.end().await.code(), Some(1), "{}", demo.said());
}

#[tokio::test]
async fn who_waits_for_machines_and_stops_before_they_are_ready_has_failed() {
    let mut demo = Running::start(&["up", "--demo", "--until-ready"], &[]);
    demo.says("linked copy of").await;
    demo.signal("INT").await;
    demo.says("not every machine was ready yet").await;
    assert_eq!(demo.end().await.code(), Some(1), "{}", demo.said());
}

#[tokio::test]
async fn who_asks_twice_to_stop_does_not_wait_for_what_is_under_way() {
    let data = tempfile::tempdir().unwrap();
    let args = ["up", "--data-dir", data.path().to_str().unwrap()];
    let mut up = Running::start(&args, &[]);
    let address = up.says("https://").await;
    up.says("Try next").await;
    // Somebody who says nothing is waited for, as long as a handshake may take. Who comes later is answered later.
    let _silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let client = client(data.path()).await;
    client.apiserver_version().await.unwrap();
    up.signal("INT").await;
    up.says("another Ctrl-C ends at once").await;
    up.signal("INT").await;
    up.says("ended at once").await;
    assert_eq!(up.end().await.code(), Some(1), "{}", up.said());
}

#[tokio::test]
async fn its_api_server_is_believed_by_every_name_it_was_given() {
    let data = tempfile::tempdir().unwrap();
    let args = ["up", "--data-dir", data.path().to_str().unwrap()];
    let named = [
        "--listen-name",
        "up.example.com",
        "--listen-name",
        "192.0.2.1",
    ];
    let up = Running::start(&[&args[..], &named].concat(), &[]);
    up.says("Try next").await;
    let known_as = async |name: &str| {
        let mut read = Kubeconfig::read_from(data.path().join("kubeconfig")).unwrap();
        let cluster = read.clusters[0].cluster.as_mut().unwrap();
        cluster.tls_server_name = Some(name.to_owned());
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(read, &options).await;
        let client = kube::Client::try_from(config.unwrap()).unwrap();
        client.apiserver_version().await.is_ok()
    };
    for name in ["localhost", "up.example.com", "192.0.2.1"] {
        assert!(known_as(name).await, "{name}");
    }
    assert!(!known_as("other.example.com").await);
}
