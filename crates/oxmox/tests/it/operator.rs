//! `oxmox operator` on a real Kubernetes, with a simulated Proxmox VE.

use crate::harness::{Kubernetes, Operator, Sim, eventually};

#[tokio::test]
async fn the_documents_do_on_a_real_kubernetes_what_they_say() {
    let Some(k8s) = Kubernetes::start("operator").await else {
        return;
    };
    k8s.install_kinds().await;
    let sim = Sim::start().await;
    let operator = Operator::start(&k8s.plane.kubeconfig(), "one", "default").await;
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
    k8s.ready("provider/proxmox-prod").await;
    k8s.ready("vmimage/ubuntu-22").await;
    k8s.ready("vm/web-server").await;
    assert_eq!(sim.guests().await, ["web-server"]);
    let table = k8s.run(&["get", "vm,vmclass", "-A"]).await;
    assert!(
        table.contains("virtualmachine.infra.virtrigaud.io/web-server"),
        "{table}"
    );
    assert!(
        table.contains("vmclass.infra.virtrigaud.io/small"),
        "{table}"
    );
    let power = [
        "get",
        "vm",
        "web-server",
        "-o",
        "jsonpath={.status.powerState}",
    ];
    assert_eq!(k8s.run(&power).await, "On");

    for (name, object) in [
        ("snapshot-memory", "vmsnapshot/before-upgrade"),
        ("storage-classes", "vmclass/high-performance"),
        ("placement", "vmplacementpolicy/production-placement"),
    ] {
        k8s.apply(&sim.manifest(name)).await;
        k8s.ready(object).await;
    }
    // A changed class reaches the machine; the documents call it online, which needs the guest's consent.
    k8s.apply(&sim.manifest("reconfigure")).await;
    k8s.run(&[
        "patch",
        "vm",
        "web-server",
        "--type=merge",
        r#"-p={"spec":{"updatePolicy":"RestartIfNeeded"}}"#,
    ])
    .await;
    let cpus = [
        "wait",
        "vm/web-server",
        "--for=jsonpath={.status.cpus}=8",
        "--timeout=150s",
    ];
    k8s.run(&cpus).await;
    k8s.ready("vm/web-server").await;

    k8s.run(&["delete", "vmsnapshot", "before-upgrade", "--timeout=150s"])
        .await;
    k8s.run(&["delete", "vm", "web-server", "--timeout=150s"])
        .await;
    assert_eq!(sim.guests().await, Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_the_real_server_with_the_way_out() {
    let Some(k8s) = Kubernetes::start("operator").await else {
        return;
    };
    k8s.install_kinds().await;
    let image = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMImage
metadata: { name: odd }
spec: { source: 9000, checksum: { value: deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef } }
";
    let outcome = k8s.kubectl.run(&["apply", "-f", "-"], image).await.unwrap();
    assert!(
        outcome
            .stderr
            .contains("give a URL as source, or remove it"),
        "{}",
        outcome.stderr
    );
    for field in [
        "vm.spec.powerState",
        "vmimage.spec.checksum",
        "provider.spec.endpoint",
        "vmset.spec.minReadySeconds",
    ] {
        let explained = k8s.run(&["explain", field]).await;
        assert!(explained.contains("DESCRIPTION:"), "{explained}");
        assert!(!explained.contains("<empty>"), "{field}: {explained}");
    }
}

#[tokio::test]
async fn a_killed_leader_is_succeeded_and_no_guest_is_made_twice() {
    let Some(k8s) = Kubernetes::start("operator").await else {
        return;
    };
    k8s.install_kinds().await;
    let sim = Sim::start().await;
    let mut first = Operator::start(&k8s.plane.kubeconfig(), "first", "default").await;
    first.until_leading().await;
    let second = Operator::start(&k8s.plane.kubeconfig(), "second", "default").await;
    assert!(!second.leads().await);
    assert_eq!(second.get("/healthz").await.0, 200);

    for name in ["secret-token", "provider-token", "class-small", "image"] {
        k8s.apply(&sim.manifest(name)).await;
    }
    k8s.ready("provider/proxmox-prod").await;
    k8s.apply(&sim.manifest("machine")).await;
    let chosen = ["get", "vm", "web-server", "-o", "jsonpath={.status.vmid}"];
    let vmid = eventually("an identity is chosen", || async {
        Some(k8s.run(&chosen).await).filter(|vmid| !vmid.is_empty())
    })
    .await;
    first.running.child.kill().await.unwrap();

    second.until_leading().await;
    k8s.ready("vm/web-server").await;
    assert_eq!(sim.guests().await, ["web-server"]);
    assert_eq!(
        k8s.run(&chosen).await,
        vmid,
        "the successor goes on with what was begun"
    );
}

#[tokio::test]
async fn a_stopped_operator_hands_over_at_once() {
    let Some(k8s) = Kubernetes::start("operator").await else {
        return;
    };
    k8s.install_kinds().await;
    let mut first = Operator::start(&k8s.plane.kubeconfig(), "first", "default").await;
    first.until_leading().await;
    first.until_ready().await;
    k8s.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClass
metadata: { name: small }
spec: { cpus: 1, memory: 1Gi }
",
    )
    .await;
    eventually("what is looked at is counted", || async {
        let (_, metrics) = first.get("/metrics").await;
        let counted = r#"oxmox_reconciles_total{kind="VMClass",result="success"}"#;
        metrics.contains(counted).then_some(())
    })
    .await;
    let holder = [
        "get",
        "lease",
        "oxmox",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ];
    assert_eq!(k8s.run(&holder).await, "first");

    first.running.signal("TERM").await;
    let status = first.running.end().await;
    assert!(status.success(), "{status}: {}", first.running.said());
    assert_eq!(k8s.run(&holder).await, "", "the lease is given back");
}

/// A Kubernetes, a Proxmox VE and an operator on which the making of a machine begins at once.
async fn connected() -> Option<(Kubernetes, Sim, Operator)> {
    let k8s = Kubernetes::start("operator").await?;
    k8s.install_kinds().await;
    let sim = Sim::start().await;
    let operator = Operator::start(&k8s.plane.kubeconfig(), "first", "default").await;
    operator.until_leading().await;
    for name in ["secret-token", "provider-token", "class-small", "image"] {
        k8s.apply(&sim.manifest(name)).await;
    }
    k8s.ready("provider/proxmox-prod").await;
    k8s.ready("vmimage/ubuntu-22").await;
    Some((k8s, sim, operator))
}

/// Makes the documented machine, up to the moment at which Proxmox VE has begun to.
async fn begun(k8s: &Kubernetes, sim: &Sim) {
    k8s.apply(&sim.manifest("machine")).await;
    eventually("its guest is being made", || async {
        (sim.guests().await == ["web-server"]).then_some(())
    })
    .await;
}

async fn delete_later(k8s: &Kubernetes) {
    k8s.run(&["delete", "vm", "web-server", "--wait=false"])
        .await;
}

async fn is_gone(k8s: &Kubernetes, sim: &Sim) {
    let gone = ["wait", "vm/web-server", "--for=delete", "--timeout=150s"];
    k8s.run(&gone).await;
    assert_eq!(sim.guests().await, Vec::<String>::new());
}

/// Waits until an object's Ready has this reason.
async fn reason(k8s: &Kubernetes, object: &str, reason: &str) {
    let shown = r#"jsonpath={.status.conditions[?(@.type=="Ready")].reason}"#;
    eventually(&format!("{object} is {reason}"), || async {
        let said = k8s.run(&["get", object, "-o", shown]).await;
        (said == reason).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_machine_that_is_labelled_while_it_is_made_has_one_guest_and_a_deleted_one_none() {
    let Some((k8s, sim, _operator)) = connected().await else {
        return;
    };
    begun(&k8s, &sim).await;
    k8s.run(&["label", "vm", "web-server", "team=web"]).await;
    k8s.ready("vm/web-server").await;
    assert_eq!(sim.guests().await, ["web-server"]);
    delete_later(&k8s).await;
    is_gone(&k8s, &sim).await;

    begun(&k8s, &sim).await;
    delete_later(&k8s).await;
    is_gone(&k8s, &sim).await;
}

#[tokio::test]
async fn a_guest_that_somebody_removed_is_missed_and_its_object_can_be_deleted() {
    let Some((k8s, sim, _operator)) = connected().await else {
        return;
    };
    k8s.apply(&sim.manifest("machine")).await;
    k8s.ready("vm/web-server").await;
    sim.destroy("web-server").await;
    reason(&k8s, "vm/web-server", "GuestLost").await;
    assert_eq!(sim.guests().await, Vec::<String>::new(), "no new one");
    delete_later(&k8s).await;
    is_gone(&k8s, &sim).await;
}

#[tokio::test]
async fn a_machine_that_is_deleted_while_we_or_proxmox_ve_are_down_goes_afterwards() {
    let Some((k8s, sim, mut operator)) = connected().await else {
        return;
    };
    k8s.apply(&sim.manifest("machine")).await;
    k8s.ready("vm/web-server").await;
    operator.running.child.kill().await.unwrap();
    delete_later(&k8s).await;
    assert_eq!(sim.guests().await, ["web-server"], "nobody else removes it");
    k8s.run(&["get", "vm", "web-server"]).await;
    let second = Operator::start(&k8s.plane.kubeconfig(), "second", "default").await;
    second.until_leading().await;
    is_gone(&k8s, &sim).await;

    k8s.apply(&sim.manifest("machine")).await;
    k8s.ready("vm/web-server").await;
    sim.running.signal("STOP").await;
    delete_later(&k8s).await;
    reason(&k8s, "provider/proxmox-prod", "Unreachable").await;
    // What is not known is not gone.
    k8s.run(&["get", "vm", "web-server"]).await;
    sim.running.signal("CONT").await;
    is_gone(&k8s, &sim).await;
}
