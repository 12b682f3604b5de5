//! The testbed itself: components come up, answer, and go away.

use bytes::Bytes;
use http::Method;
use testbed::http::Credentials;
use testbed::{ControlPlane, Kubectl, Options, assets_or_skip};

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
