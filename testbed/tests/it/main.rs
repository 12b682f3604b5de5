//! The testbed itself: components come up, answer, and go away.

use bytes::Bytes;
use http::Method;
use testbed::http::Credentials;
use testbed::{ControlPlane, Kubectl, Manager, Options, Provider, assets_or_skip};

#[tokio::test]
async fn a_control_plane_answers_and_leaves_nothing_behind() {
    let Some(assets) = assets_or_skip("testbed", &["etcd", "kube-apiserver", "kubectl"]) else {
        return;
    };
    let plane = ControlPlane::start(&assets, &Options::default())
        .await
        .unwrap();
    let pids: Vec<u32> = plane
        .processes()
        .iter()
        .map(testbed::process::Process::pid)
        .collect();
    let kubeconfig = plane.kubeconfig();

    let kubectl = Kubectl::new(&assets, &kubeconfig).unwrap();
    let namespaces = kubectl
        .run(&["get", "namespaces", "-o", "name"], "")
        .await
        .unwrap()
        .success();
    assert!(namespaces.contains("namespace/default"), "{namespaces}");

    let stranger = plane.client().with(&Credentials::Anonymous).unwrap();
    let answer = stranger
        .send(&Method::GET, "/api/v1/secrets", &[], Bytes::new())
        .await
        .unwrap();
    assert_eq!(answer.status, 403);

    drop(plane);
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(
            !std::path::Path::new(&format!("/proc/{pid}")).exists(),
            "{pid} still runs"
        );
    }
    assert!(!kubeconfig.exists());
}

/// Starts components and dies without running a destructor, as a test binary may, or is ended by others.
#[tokio::test]
#[ignore = "runs as a child of the tests below"]
async fn owner_that_ends() {
    let assets = testbed::assets();
    let plane = ControlPlane::start(&assets, &Options::default())
        .await
        .unwrap();
    let pids: Vec<_> = plane
        .processes()
        .iter()
        .map(|p| p.pid().to_string())
        .collect();
    let report = std::env::var_os("TESTBED_REPORT").unwrap();
    std::fs::write(&report, pids.join(" ")).unwrap();
    if std::env::var_os("TESTBED_ABORT").is_some() {
        std::process::abort();
    }
    std::future::pending::<()>().await;
}

/// An owner of components in a process group of its own, and where it says which they are.
fn owner(dir: &std::path::Path) -> (tokio::process::Command, std::path::PathBuf) {
    let report = dir.join("pids");
    let mut owner =
        tokio::process::Command::new(std::env::current_exe().expect("a test is a file"));
    owner
        .args(["--ignored", "--exact", "owner_that_ends"])
        .env("TESTBED_REPORT", &report)
        .env("TMPDIR", dir)
        .stdout(std::process::Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    (owner, report)
}

async fn all_end(pids: &str) {
    let runs = |pid: &str| std::path::Path::new(&format!("/proc/{pid}")).exists();
    let gone = async {
        while pids.split(' ').any(runs) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), gone)
        .await
        .expect("all have ended");
}

#[tokio::test]
async fn components_end_when_their_owner_aborts() {
    if assets_or_skip("testbed", &["etcd", "kube-apiserver"]).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut owner, report) = owner(dir.path());
    let ended = owner.env("TESTBED_ABORT", "true").output().await.unwrap();
    assert!(!ended.status.success(), "it aborts");
    all_end(&std::fs::read_to_string(&report).unwrap()).await;
}

#[tokio::test]
async fn components_end_when_the_process_group_of_their_owner_is_ended() {
    if assets_or_skip("testbed", &["etcd", "kube-apiserver"]).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut owner, report) = owner(dir.path());
    let mut owner = owner.spawn().unwrap();
    let group = format!("-{}", owner.id().unwrap());
    let pids = loop {
        assert!(owner.try_wait().unwrap().is_none(), "it waits to be ended");
        match std::fs::read_to_string(&report) {
            Ok(pids) if !pids.is_empty() => break pids,
            _ => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    };
    // As `timeout` and a terminal do it.
    let mut shell = tokio::process::Command::new("/bin/sh");
    let end = shell.args(["-c", &format!("kill -s TERM -- {group}")]);
    let killed = end.status().await.unwrap();
    assert!(killed.success());
    assert!(!owner.wait().await.unwrap().success());
    all_end(&pids).await;
}

#[tokio::test]
async fn cluster_api_runs_beside_a_control_plane() {
    let programs = [
        "etcd",
        "kube-apiserver",
        "kubectl",
        "capi-core",
        "capi-kubeadm-bootstrap",
        "capi-kubeadm-control-plane",
        "ipam-in-cluster",
    ];
    let Some(assets) = assets_or_skip("testbed", &programs) else {
        return;
    };
    let plane = ControlPlane::start(&assets, &Options::default())
        .await
        .unwrap();
    let managers = Manager::start(&assets, &plane, Provider::CLUSTER_API)
        .await
        .unwrap();
    assert_eq!(managers.len(), Provider::CLUSTER_API.len());
    let kubectl = Kubectl::new(&assets, &plane.kubeconfig()).unwrap();
    let check = "apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineHealthCheck\nmetadata: {name: a}\n\
                 spec: {clusterName: a, selector: {matchLabels: {a: b}}, unhealthyConditions: \
                 [{type: Ready, status: Unknown, timeout: 5m}]}\n";
    kubectl
        .run(&["apply", "-f", "-"], check)
        .await
        .unwrap()
        .success();
    // Its admission webhook adds a label, its conversion webhook knows the newer form.
    let shown = kubectl
        .run(
            &[
                "get",
                "machinehealthchecks.v1beta2.cluster.x-k8s.io",
                "a",
                "-o",
                "jsonpath={.metadata.labels} {.spec.checks.unhealthyNodeConditions[0].timeoutSeconds}",
            ],
            "",
        )
        .await
        .unwrap()
        .success();
    assert_eq!(shown, r#"{"cluster.x-k8s.io/cluster-name":"a"} 300"#);
}
