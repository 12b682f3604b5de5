//! What people type.

use std::path::Path;

use tokio::process::Command;

use crate::harness::{Kubernetes, OXMOX, Operator, Sim};

async fn oxmox(kubeconfig: &Path, args: &[&str]) -> (bool, String) {
    let output = Command::new(OXMOX)
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn machines_are_looked_after_without_kubectl_and_snapshots_taken_with_its_plugin() {
    let Some(k8s) = Kubernetes::start("command_line").await else {
        return;
    };
    k8s.install_kinds().await;
    let sim = Sim::start().await;
    let kubeconfig = k8s.plane.kubeconfig();
    let operator = Operator::start(&kubeconfig, "one", "default").await;
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

    let (ok, listed) = oxmox(&kubeconfig, &["vm", "list"]).await;
    assert!(
        ok && listed.contains("web-server") && listed.contains("Running"),
        "{listed}"
    );
    let (ok, described) = oxmox(&kubeconfig, &["vm", "describe", "web-server"]).await;
    assert!(
        ok && described.contains("consoleURL") && described.contains("Ready:"),
        "{described}"
    );
    assert!(!described.contains("managedFields"), "{described}");
    let (ok, missing) = oxmox(&kubeconfig, &["vm", "start", "web"]).await;
    assert!(!ok && missing.contains("oxmox vm list"), "{missing}");

    let (ok, said) = oxmox(
        &kubeconfig,
        &["vm", "stop", "--hard", "--wait", "web-server"],
    )
    .await;
    assert!(ok, "{said}");
    let power = [
        "get",
        "vm",
        "web-server",
        "-o",
        "jsonpath={.status.powerState}",
    ];
    assert_eq!(k8s.run(&power).await, "Off");
    let (ok, said) = oxmox(&kubeconfig, &["vm", "start", "--wait", "web-server"]).await;
    assert!(ok, "{said}");
    assert_eq!(k8s.run(&power).await, "On");

    // kubectl finds the plugin by its name on the path.
    let bin = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(OXMOX, bin.path().join("kubectl-create-vmsnapshot")).unwrap();
    let path = format!(
        "{}:{}",
        bin.path().display(),
        std::env::var("PATH").unwrap()
    );
    let taken = Command::new(k8s.assets.program("kubectl").unwrap())
        .args([
            "create",
            "vmsnapshot",
            "before-upgrade",
            "--vm=web-server",
            "--description=Before major upgrade",
            "--include-memory=true",
        ])
        .env("KUBECONFIG", &kubeconfig)
        .env("PATH", path)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(taken.status.success(), "{said}");
    k8s.ready("vmsnapshot/before-upgrade").await;
    let memory = [
        "get",
        "vmsnapshot",
        "before-upgrade",
        "-o",
        "jsonpath={.status.memory}",
    ];
    assert_eq!(k8s.run(&memory).await, "true");
}

#[tokio::test]
async fn single_definitions_are_printed_by_kind() {
    let printed = Command::new(OXMOX)
        .args(["crds", "vmclass"])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(
        text.contains("name: vmclasses.infra.virtrigaud.io"),
        "{text}"
    );
    assert_eq!(text.matches("kind: CustomResourceDefinition").count(), 1);
    let refused = Command::new(OXMOX)
        .args(["crds", "vmclas"])
        .output()
        .await
        .unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("there is no kind \"vmclas\"; there are"),
        "{said}"
    );
}

#[tokio::test]
async fn log_lines_have_colours_where_the_environment_lets_them() {
    let logged = async |variables: &[(&str, &str)]| {
        let asked = Command::new(OXMOX)
            .args(["--log-level=trace", "doctor", "--token=a@pve!b=c"])
            .arg("--endpoint=http://127.0.0.1:1")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .envs(variables.iter().copied())
            .output();
        String::from_utf8(asked.await.unwrap().stderr).unwrap()
    };
    let forced = ("CLICOLOR_FORCE", "1");
    let coloured = logged(&[forced]).await;
    assert!(coloured.contains('\u{1b}'), "{coloured:?}");
    for plain in [&[][..], &[forced, ("NO_COLOR", "1")]] {
        let plain = logged(plain).await;
        assert!(
            plain.contains("TRACE") && !plain.contains('\u{1b}'),
            "{plain:?}"
        );
    }
}
