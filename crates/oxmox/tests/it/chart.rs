//! The Helm chart: valid to a real server, and its permissions are enough.

use std::path::Path;

use serde_json::Value;
use testbed::{Helm, Outcome};

use crate::harness::{Kubernetes, Operator, Sim};

fn chart() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/oxmox");
    path.canonicalize().unwrap().display().to_string()
}

/// Where releases are installed.
const NAMESPACE: &str = "oxmox-system";

/// Installs a release.
async fn install(k8s: &Kubernetes, release: &str, set: &[&str]) {
    let helm = Helm::new(&k8s.assets, &k8s.plane.kubeconfig()).unwrap();
    let chart = chart();
    let mut args = vec!["install", release, &chart, "--namespace", NAMESPACE];
    args.push("--create-namespace");
    args.extend(set.iter().flat_map(|value| ["--set", value]));
    helm.run(&args).await.unwrap().success();
}

/// The operator as a release would run it: with its arguments, but on free ports of this computer, as its service account.
async fn run(k8s: &Kubernetes, release: &str) -> Operator {
    let path = "jsonpath={.spec.template.spec.containers[0].args}";
    let args = k8s
        .run(&["get", "deploy", release, "-n", NAMESPACE, "-o", path])
        .await;
    let args: Vec<String> = serde_json::from_str(&args).unwrap();
    let args: Vec<String> = args
        .into_iter()
        .map(|arg| match arg.split_once("=0.0.0.0:") {
            Some((flag, _)) => format!("{flag}=127.0.0.1:0"),
            None => arg,
        })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let kubeconfig = k8s.kubeconfig_of(release, NAMESPACE).await;
    let env = [
        ("KUBECONFIG", kubeconfig.as_path()),
        ("POD_NAME", Path::new("robot")),
        ("POD_NAMESPACE", Path::new(NAMESPACE)),
        ("LOG_LEVEL", Path::new("info")),
        ("LOG_FORMAT", Path::new("json")),
    ];
    Operator::start_with(&args, &env).await
}

/// Waits until a release acts and is ready, and looks whether the API server can believe it.
async fn serves(k8s: &Kubernetes, operator: &Operator, release: &str) {
    operator.until_leading().await;
    operator.until_ready().await;
    let told = "jsonpath={.webhooks[*].clientConfig.caBundle}";
    let told = ["get", "validatingwebhookconfiguration", release, "-o", told];
    assert_ne!(k8s.run(&told).await, "", "whom to believe is told");
    let kept = format!("secret/{release}-webhook");
    k8s.run(&["get", &kept, "-n", NAMESPACE]).await;
    let definition = "crd/proxmoxmachines.infrastructure.cluster.x-k8s.io";
    let service = "jsonpath={.spec.conversion.webhook.clientConfig.service.name}";
    assert_ne!(k8s.run(&["get", definition, "-o", service]).await, "");
}

#[tokio::test]
async fn the_chart_installs_and_its_service_account_can_do_the_work() {
    let Some(k8s) = Kubernetes::start("chart").await else {
        return;
    };
    install(&k8s, "oxmox", &["console.url=https://console.example.com"]).await;
    let shown = k8s
        .run(&[
            "get",
            "deploy,pdb,networkpolicy,sa,svc",
            "-n",
            NAMESPACE,
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
        ("editor", "get", "vmsets/scale", true),
        ("editor", "patch", "vmsets/scale", true),
        ("editor", "create", "vmconsoles", false),
        ("guard", "create", "vmconsoles", true),
        ("guard", "patch", "virtualmachines", false),
    ] {
        let (kind, part) = kind.split_once('/').unwrap_or((kind, ""));
        let kind = format!("{kind}.infra.virtrigaud.io");
        let part = format!("--subresource={part}");
        let ask = ["auth", "can-i", verb, &kind, &part, "--as", user];
        let said = k8s.kubectl.run(&ask, "").await.unwrap();
        assert_eq!(said.stdout.trim() == "yes", may, "{user} {verb} {kind}");
    }

    // The operator runs with exactly what the chart gives and grants.
    let sim = Sim::start().await;
    let operator = run(&k8s, "oxmox").await;
    serves(&k8s, &operator, "oxmox").await;
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
    let console = "jsonpath={.status.consoleURL}";
    let console = k8s.run(&["get", "vm", "web-server", "-o", console]).await;
    assert!(
        console.starts_with("https://console.example.com/"),
        "{console}"
    );
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

    // Another release beside it, with rights in one namespace only, waits for nobody.
    k8s.run(&["create", "namespace", "team-a"]).await;
    install(&k8s, "second", &["namespace=team-a"]).await;
    let second = run(&k8s, "second").await;
    serves(&k8s, &second, "second").await;
    assert!(operator.leads().await);
    let said = second.running.said();
    assert!(!said.contains("forbidden"), "{said}");
}

#[tokio::test]
async fn every_variant_of_the_chart_is_valid_to_the_server() {
    let Some(k8s) = Kubernetes::start("chart").await else {
        return;
    };
    let helm = Helm::new(&k8s.assets, &k8s.plane.kubeconfig()).unwrap();
    for (set, shown) in VARIANTS {
        let rendered = render(&helm, set).await;
        for text in *shown {
            assert!(rendered.contains(text), "{set:?}: no {text} in {rendered}");
        }
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        let outcome = k8s.kubectl.run(&apply, &rendered).await.unwrap();
        assert_eq!(outcome.code, 0, "{set:?}: {}", outcome.stderr);
    }
    let everywhere = render(&helm, &["watchFilter=mine"]).await;
    assert!(!everywhere.contains("namespaceSelector"), "{everywhere}");
    let shown = ["watchFilter=mine", "console.url=https://console"];
    let refused = template(&helm, &shown).await;
    assert_ne!(refused.code, 0, "there are no machines to show");
    assert!(
        refused.stderr.contains("set namespace"),
        "{}",
        refused.stderr
    );
    // The server knows no such kind.
    let monitored = render(&helm, &["serviceMonitor.enabled=true"]).await;
    assert!(monitored.contains("kind: ServiceMonitor"));
    let alone = render(&helm, &["roles.create=false"]).await;
    assert!(!alone.contains("name: oxmox-edit"), "{alone}");
    let checksum = |text: &str| {
        let line = text.lines().find(|line| line.contains("checksum/proxmox"));
        line.unwrap().to_owned()
    };
    let one = render(
        &helm,
        &["proxmox.url=https://pve:8006", "proxmox.secret=one"],
    )
    .await;
    let two = render(
        &helm,
        &["proxmox.url=https://pve:8006", "proxmox.secret=two"],
    )
    .await;
    assert_ne!(
        checksum(&one),
        checksum(&two),
        "other credentials, other pods"
    );
}

/// Values, and what the manifests have for them.
const VARIANTS: &[(&[&str], &[&str])] = &[
    (&[], &["--listen=0.0.0.0:8080", "--lease=oxmox"]),
    (
        &["networkPolicy.pveCidrs={10.0.0.0/24}", "replicas=3"],
        &["replicas: 3", "cidr: \"10.0.0.0/24\""],
    ),
    (
        &[
            "podDisruptionBudget.enabled=false",
            "networkPolicy.enabled=false",
        ],
        &[],
    ),
    (
        &["namespace=default", "watchFilter=mine"],
        &[
            "--namespace=default",
            "--watch-filter=mine",
            "name: oxmox-objects",
            "matchLabels: { kubernetes.io/metadata.name: \"default\" }",
        ],
    ),
    (
        &["console.url=https://console.example.com"],
        &[
            "--console-listen=0.0.0.0:8090",
            "--console-url=https://console.example.com",
        ],
    ),
    (
        &[
            "proxmox.url=https://pve:8006",
            "proxmox.token=capi@pve!key",
            "proxmox.secret=hidden",
            "proxmox.insecure=true",
        ],
        &[
            "secretRef: { name: oxmox-proxmox }",
            "PROXMOX_INSECURE: \"true\"",
        ],
    ),
    (
        &[
            "proxmox.existingSecret=mine",
            "proxmox.caSecret=authority",
            "proxmox.insecure=true",
        ],
        &[
            "secretRef: { name: mine }",
            "secretName: authority",
            "--proxmox-root-cert-file=/etc/oxmox/proxmox/ca.crt",
            "- name: PROXMOX_INSECURE",
        ],
    ),
    (&["roles.create=false"], &[]),
    (
        &[
            "listenAddress=[::]",
            "console.url=https://console.example.com",
        ],
        &[
            "--listen=[::]:8080",
            "--webhook-listen=[::]:9443",
            "--console-listen=[::]:8090",
        ],
    ),
];

/// The chart's manifests with these values.
async fn render(helm: &Helm, set: &[&str]) -> String {
    template(helm, set).await.success()
}

/// What Helm makes of these values.
async fn template(helm: &Helm, set: &[&str]) -> Outcome {
    let chart = chart();
    let mut args = vec!["template", "oxmox", &chart, "--namespace", "default"];
    args.extend(["--kube-version", "1.36.0"]);
    args.extend(set.iter().flat_map(|value| ["--set", value]));
    helm.run(&args).await.unwrap()
}

#[tokio::test]
async fn everything_the_documentation_shows_is_valid_to_the_server() {
    let Some(k8s) = Kubernetes::start("chart").await else {
        return;
    };
    k8s.install_kinds().await;
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/manifests");
    let read =
        |name: &str| std::fs::read_to_string(manifests.join(format!("{name}.yaml"))).unwrap();
    let parsed = |name: &str| serde_saphyr::from_str::<Value>(&read(name)).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(&manifests).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        // Excerpts are shown to the server within what they belong to.
        let text = match name {
            "provider-insecure-excerpt" => {
                let mut whole = parsed("provider-token");
                whole["spec"]["runtime"]["env"] = parsed(name)["spec"]["runtime"]["env"].clone();
                whole.to_string()
            }
            "user-data-excerpt" => {
                let mut whole = parsed("machine");
                whole["spec"]["userData"] = parsed(name)["userData"].clone();
                whole.to_string()
            }
            _ => read(name),
        };
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        let outcome = k8s.kubectl.run(&apply, &text).await.unwrap();
        assert_eq!(outcome.code, 0, "{name}: {}", outcome.stderr);
        seen += outcome.stdout.lines().count();
    }
    assert!(seen >= 19, "{seen} objects");
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
