//! The Helm chart: valid to a real server, and its permissions are enough.

use std::path::Path;

use testbed::Helm;

use crate::harness::{Kubernetes, Operator, Sim};

fn chart() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/oxmox");
    path.canonicalize().unwrap().display().to_string()
}

#[tokio::test]
async fn the_chart_installs_and_its_service_account_can_do_the_work() {
    let Some(k8s) = Kubernetes::start("chart").await else {
        return;
    };
    let helm = Helm::new(&k8s.assets, &k8s.plane.kubeconfig()).unwrap();
    let install = [
        "install",
        "oxmox",
        &chart(),
        "--namespace",
        "oxmox-system",
        "--create-namespace",
    ];
    helm.run(&install).await.unwrap().success();
    let shown = k8s
        .run(&[
            "get",
            "deploy,pdb,networkpolicy,sa,svc",
            "-n",
            "oxmox-system",
            "-o",
            "name",
        ])
        .await;
    for object in [
        "deployment.apps/oxmox",
        "poddisruptionbudget.policy/oxmox",
        "networkpolicy.networking.k8s.io/oxmox",
        "serviceaccount/oxmox",
        "service/oxmox",
    ] {
        assert!(shown.contains(object), "{object} is not in {shown}");
    }

    // Seeing consoles is a right of its own.
    for (user, role) in [("editor", "oxmox-edit"), ("guard", "oxmox-console")] {
        let (role, who) = (format!("--clusterrole={role}"), format!("--user={user}"));
        k8s.run(&["create", "rolebinding", user, &role, &who]).await;
    }
    for (user, verb, kind, may) in [
        ("editor", "patch", "virtualmachines", true),
        ("editor", "create", "vmconsoles", false),
        ("guard", "create", "vmconsoles", true),
        ("guard", "patch", "virtualmachines", false),
    ] {
        let kind = format!("{kind}.infra.virtrigaud.io");
        let ask = ["auth", "can-i", verb, &kind, "--as", user];
        let said = k8s.kubectl.run(&ask, "").await.unwrap();
        assert_eq!(said.stdout.trim() == "yes", may, "{user} {verb} {kind}");
    }

    // The operator runs with exactly what the chart grants.
    let token = k8s
        .run(&["create", "token", "oxmox", "-n", "oxmox-system"])
        .await;
    let kubeconfig = k8s.kubeconfig_of(token.trim()).await;
    let sim = Sim::start().await;
    let operator = Operator::start(&kubeconfig, "robot", "oxmox-system").await;
    operator.until_leading().await;
    for name in [
        "secret-token",
        "provider-token",
        "class-small",
        "image",
        "machine",
    ] {
        k8s.apply(&sim.manifest(name)).await;
    }
    k8s.ready("vm/web-server").await;
    let move_it = r#"-p={"spec":{"node":"pve3"}}"#;
    k8s.run(&["patch", "vm", "web-server", "--type=merge", move_it])
        .await;
    let moved = [
        "wait",
        "vm/web-server",
        "--for=jsonpath={.status.node}=pve3",
        "--timeout=150s",
    ];
    k8s.run(&moved).await;
    // After the move: Proxmox VE moves no local disk that has snapshots while its guest runs.
    k8s.apply(&sim.manifest("snapshot-memory")).await;
    k8s.ready("vmsnapshot/before-upgrade").await;
    k8s.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMSet
metadata: { name: web }
spec:
  replicas: 1
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec: { classRef: { name: small }, imageRef: { name: ubuntu-22 } }
",
    )
    .await;
    k8s.ready("vmset/web").await;
    let events = k8s.run(&["get", "events", "-o", "name"]).await;
    assert!(!events.is_empty(), "events are written");
    k8s.run(&["delete", "vmsnapshot", "before-upgrade", "--timeout=150s"])
        .await;
    k8s.run(&["delete", "vm", "web-server", "--timeout=150s"])
        .await;
    let said = operator.running.said();
    assert!(!said.contains("forbidden"), "{said}");
}

#[tokio::test]
async fn every_variant_of_the_chart_is_valid_to_the_server() {
    let Some(k8s) = Kubernetes::start("chart").await else {
        return;
    };
    let helm = Helm::new(&k8s.assets, &k8s.plane.kubeconfig()).unwrap();
    let template = |more: &[&str]| {
        let mut args = vec!["template", "oxmox"];
        let chart: &str = Box::leak(chart().into_boxed_str());
        args.push(chart);
        args.extend(["--namespace", "default", "--kube-version", "1.36.0"]);
        args.extend(
            more.iter()
                .map(|arg| &*Box::leak((*arg).to_owned().into_boxed_str())),
        );
        args
    };
    for more in [
        &[][..],
        &[
            "--set",
            "networkPolicy.pveCidrs={10.0.0.0/24}",
            "--set",
            "replicas=3",
        ],
        &[
            "--set",
            "podDisruptionBudget.enabled=false",
            "--set",
            "networkPolicy.enabled=false",
        ],
    ] {
        let rendered = helm.run(&template(more)).await.unwrap().success();
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        k8s.kubectl.run(&apply, &rendered).await.unwrap().success();
    }
    let monitored = helm
        .run(&template(&["--set", "serviceMonitor.enabled=true"]))
        .await
        .unwrap();
    assert!(monitored.success().contains("kind: ServiceMonitor"));
}

#[tokio::test]
async fn the_load_test_and_the_examples_are_valid_to_the_server() {
    let Some(k8s) = Kubernetes::start("chart").await else {
        return;
    };
    k8s.install_kinds().await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("test/performance/proxmox-loadtest.yaml")];
    for entry in std::fs::read_dir(root.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            files.push(path);
        }
    }
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        let outcome = k8s.kubectl.run(&apply, &text).await.unwrap();
        assert_eq!(outcome.code, 0, "{}: {}", file.display(), outcome.stderr);
    }
    // What the document says to type next.
    k8s.apply(
        &std::fs::read_to_string(root.join("test/performance/proxmox-loadtest.yaml")).unwrap(),
    )
    .await;
    let job = [
        "create",
        "job",
        "proxmox-perf-test",
        "--from=cronjob/proxmox-performance-test",
    ];
    k8s.run(&job).await;
}
