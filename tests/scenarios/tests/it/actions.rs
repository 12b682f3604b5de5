//! Snapshots, clones, sets, moves, backups, containers.

use std::time::Duration;

use api::vm::{
    Container, GuestRef, Phase, VMBackup, VMClone, VMMigration, VMRestore, VMSet, VMSnapshot,
    VMSnapshotSchedule, VirtualMachine, condition,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use pve_sim::Latency;
use scenarios::Bed;
use serde_json::json;

use crate::{manifest, prepare, prepared, web_set};

async fn with_machine() -> Bed {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_with_memory_is_taken_gone_back_to_and_removed() {
    let bed = with_machine().await;
    bed.apply(manifest!("snapshot-memory")).await;
    let snapshot: VMSnapshot = bed.until_ready("before-upgrade").await;
    let status = snapshot.status.unwrap();
    assert_eq!(status.snapshot_name.as_deref(), Some("before-upgrade"));
    assert_eq!(status.memory, Some(true));

    bed.change::<VirtualMachine>("web-server", json!({ "tags": ["after"] }))
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let revert = json!({ "snapshot": { "revertToRef": { "name": "before-upgrade" } } });
    bed.change::<VirtualMachine>("web-server", revert).await;
    bed.until("web-server", "set back", |vm: &VirtualMachine| {
        vm.status
            .as_ref()
            .is_some_and(|status| status.reverted_to.as_deref() == Some("before-upgrade"))
    })
    .await;
    bed.delete::<VMSnapshot>("before-upgrade").await;
    bed.delete::<VirtualMachine>("web-server").await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_lists_those_that_build_on_it() {
    let bed = with_machine().await;
    for name in ["first", "second"] {
        let taken = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
            "metadata": { "name": name }, "spec": { "vmRef": { "name": "web-server" } },
        });
        bed.try_apply(&taken).await.unwrap();
        bed.until_ready::<VMSnapshot>(name).await;
    }
    let children = |snapshot: &VMSnapshot| snapshot.status.clone().unwrap_or_default().children;
    let has_one = |first: &VMSnapshot| children(first) == ["second"];
    bed.until("first", "built upon", has_one).await;
    bed.delete::<VMSnapshot>("second").await;
    let has_none = |first: &VMSnapshot| children(first).is_empty();
    bed.until("first", "left", has_none).await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_says_that_it_went_with_its_machine_also_when_there_is_a_new_one_of_that_name() {
    let bed = with_machine().await;
    bed.apply(manifest!("snapshot-memory")).await;
    bed.until_ready::<VMSnapshot>("before-upgrade").await;
    bed.delete::<VirtualMachine>("web-server").await;
    let is_lost = |snapshot: &VMSnapshot| {
        let status = snapshot.status.clone().unwrap_or_default();
        let ready = condition(&status.conditions, "Ready").cloned();
        status.phase == Some(Phase::Failed) && ready.is_some_and(|it| it.reason == "GuestLost")
    };
    bed.until("before-upgrade", "lost", is_lost).await;

    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(1)).await;
    bed.until("before-upgrade", "still lost", is_lost).await;
    bed.delete::<VMSnapshot>("before-upgrade").await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_becomes_a_machine_of_its_own() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VirtualMachine
metadata: { name: template-vm }
spec:
  classRef: { name: small }
  imageRef: { name: ubuntu-22 }
  networks: [{ name: lan }]
  userData: { cloudInit: { inline: '#cloud-config' } }
",
    )
    .await;
    bed.until_ready::<VirtualMachine>("template-vm").await;
    bed.apply(manifest!("clone")).await;
    let clone: VMClone = bed.until_ready("web-clone").await;
    let status = clone.status.unwrap();
    assert_eq!(status.phase, Some(Phase::Succeeded));
    // PVE links to templates only, and says so rather than failing.
    assert_eq!(status.linked, Some(false));
    let (first, second) = (bed.guest("template-vm").await, bed.guest("web-clone").await);
    assert_ne!(first.vmid, second.vmid);
    assert_ne!(
        first.key("net0"),
        second.key("net0"),
        "a copy has addresses of its own"
    );
    let serial = |guest: &scenarios::Guest| {
        let mut items = guest.key("smbios1").split(',').map(str::to_owned);
        items.find(|item| item.starts_with("serial="))
    };
    assert!(serial(&second).is_some(), "{second:?}");
    assert_ne!(
        serial(&first),
        serial(&second),
        "a copy is an instance of its own"
    );
    bed.delete::<VMClone>("web-clone").await;
    assert!(bed.guest("web-clone").await.running);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_begun_gets_ready_though_its_source_goes() {
    let mut bed = Bed::builder().latency(Latency::real()).start().await;
    prepare(&bed).await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClone
metadata: { name: web-copy }
spec: { sourceVMRef: { name: web-server } }
",
    )
    .await;
    bed.until("web-copy", "being copied", |vm: &VirtualMachine| {
        let status = vm.status.as_ref();
        let step = status.and_then(|status| status.current_step.as_ref());
        step.is_some_and(|step| step.task.is_some())
    })
    .await;
    bed.crash_operator().await;
    let machines = bed.api::<VirtualMachine>();
    let let_go = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    machines
        .patch("web-server", &PatchParams::default(), &let_go)
        .await
        .unwrap();
    machines
        .delete("web-server", &DeleteParams::default())
        .await
        .unwrap();
    bed.start_operator();
    bed.until_ready::<VirtualMachine>("web-copy").await;
    assert!(bed.guest("web-copy").await.running);
}

#[tokio::test(start_paused = true)]
async fn a_set_keeps_its_number_scales_and_rolls_a_new_class_out() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClass
metadata: { name: big }
spec: { cpus: 4, memory: 8Gi }
",
    )
    .await;
    let mut set = web_set(3);
    set["spec"]["template"]["spec"]["updatePolicy"] = json!("RestartIfNeeded");
    bed.try_apply(&set).await.unwrap();
    bed.until_ready::<VMSet>("web").await;
    assert_eq!(
        bed.names::<VirtualMachine>().await,
        ["web-0", "web-1", "web-2"]
    );
    bed.change::<VMSet>("web", json!({ "replicas": 2 })).await;
    bed.until_ready::<VMSet>("web").await;
    bed.until_gone::<VirtualMachine>("web-2").await;
    bed.change::<VMSet>(
        "web",
        json!({ "template": { "spec": { "classRef": { "name": "big" } } } }),
    )
    .await;
    bed.until_ready::<VMSet>("web").await;
    for name in ["web-0", "web-1"] {
        assert_eq!(bed.guest(name).await.key("memory"), "8192");
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_takes_snapshots_and_keeps_the_newest() {
    let bed = with_machine().await;
    bed.apply(
        r#"
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMSnapshotSchedule
metadata: { name: hourly }
spec:
  vmRef: { name: web-server }
  schedule: "0 * * * *"
  retention: { maxCount: 2 }
"#,
    )
    .await;
    bed.until_ready::<VMSnapshotSchedule>("hourly").await;
    bed.sleep(Duration::from_mins(250)).await;
    let names = bed.names::<VMSnapshot>().await;
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_forgets_what_went_with_its_machine() {
    let bed = with_machine().await;
    bed.apply(
        r#"
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMSnapshotSchedule
metadata: { name: hourly }
spec:
  vmRef: { name: web-server }
  schedule: "0 * * * *"
  retention: { maxCount: 5 }
"#,
    )
    .await;
    bed.until_ready::<VMSnapshotSchedule>("hourly").await;
    bed.sleep(Duration::from_mins(130)).await;
    let before = bed.names::<VMSnapshot>().await;
    assert_eq!(before.len(), 2, "{before:?}");
    bed.delete::<VirtualMachine>("web-server").await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(70)).await;
    let after = bed.names::<VMSnapshot>().await;
    assert!(after.iter().all(|it| !before.contains(it)), "{after:?}");
    assert!(!after.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_running_machine_moves_to_another_node() {
    let bed = with_machine().await;
    let before = bed.guest("web-server").await.node;
    let target = bed
        .pve()
        .nodes()
        .into_iter()
        .find(|node| *node != before)
        .unwrap();
    bed.apply(&format!(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMMigration
metadata: {{ name: move }}
spec: {{ vmRef: {{ name: web-server }}, targetNode: {target}, withLocalDisks: true }}
"
    ))
    .await;
    bed.until_ready::<VMMigration>("move").await;
    let guest = bed.guest("web-server").await;
    assert_eq!(guest.node, target);
    assert!(guest.running);
    bed.until("web-server", "on its new node", |vm: &VirtualMachine| {
        vm.status
            .as_ref()
            .is_some_and(|status| status.node.as_ref() == Some(&target))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_move_waits_for_the_policy_that_says_where_to() {
    let bed = with_machine().await;
    let before = bed.guest("web-server").await.node;
    let nodes = bed.pve().nodes();
    let target = nodes.iter().rfind(|node| **node != before).unwrap();
    bed.change::<VirtualMachine>("web-server", json!({ "placementRef": { "name": "here" } }))
        .await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMMigration
metadata: { name: move }
spec: { vmRef: { name: web-server }, withLocalDisks: true }
",
    )
    .await;
    bed.until_reason::<VMMigration>("move", "Ready", "PlacementPolicyNotFound")
        .await;
    assert_eq!(bed.guest("web-server").await.node, before);
    bed.apply(&format!(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMPlacementPolicy
metadata: {{ name: here }}
spec: {{ nodeSelector: [{target}] }}
"
    ))
    .await;
    bed.until_ready::<VMMigration>("move").await;
    assert_eq!(bed.guest("web-server").await.node, *target);
}

#[tokio::test(start_paused = true)]
async fn a_backup_becomes_a_machine_again() {
    let bed = with_machine().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { name: web-server }, storage: nfs }
",
    )
    .await;
    let backup: VMBackup = bed.until_ready("nightly").await;
    assert!(backup.status.unwrap().volume.is_some());
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMRestore
metadata: { name: again }
spec: { backupRef: { name: nightly }, targetName: web-restored }
",
    )
    .await;
    bed.until_ready::<VMRestore>("again").await;
    assert!(!bed.guest("web-restored").await.running);
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_nobody_heard_of_is_found_though_its_machine_is_gone() {
    let mut bed = with_machine().await;
    let begun = "POST /nodes/{node}/vzdump";
    let fault = pve_sim::Fault::once(begun, pve_sim::Action::DropAnswer);
    bed.pve().control().inject(fault);
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { name: web-server }, storage: nfs, deletionPolicy: Delete }
",
    )
    .await;
    while bed.tasks("vzdump").await.is_empty() {
        bed.sleep(Duration::from_millis(50)).await;
    }
    bed.crash_operator().await;
    bed.sleep(Duration::from_mins(10)).await;
    bed.destroy("web-server").await;
    bed.start_operator();
    let backup: VMBackup = bed.until_ready("nightly").await;
    assert!(backup.status.unwrap().volume.is_some());
    bed.delete::<VMBackup>("nightly").await;
    assert_eq!(bed.backups("nfs").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_backup_whose_answer_is_lost_is_made_once() {
    let bed = with_machine().await;
    let begun = "POST /nodes/{node}/vzdump";
    let lost = pve_sim::Action::Proxy { status: 596 };
    bed.pve()
        .control()
        .inject(pve_sim::Fault::once(begun, lost));
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { name: web-server }, storage: nfs, deletionPolicy: Delete }
",
    )
    .await;
    bed.until_ready::<VMBackup>("nightly").await;
    bed.sleep(Duration::from_mins(10)).await;
    assert_eq!(bed.count(begun), 1);
    assert_eq!(bed.backups("nfs").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_container_comes_and_goes() {
    let bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    assert!(bed.guest("cache").await.running);
    bed.delete::<Container>("cache").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_container_is_snapshotted_taken_back_and_backed_up() {
    let bed = prepared().await;
    let foreign = bed.foreign().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMSnapshot
metadata: { name: before }
spec: { vmRef: { kind: Container, name: cache } }
",
    )
    .await;
    bed.until_ready::<VMSnapshot>("before").await;
    bed.change::<Container>("cache", json!({ "tags": ["after"] }))
        .await;
    bed.until_ready::<Container>("cache").await;
    let revert = json!({ "tags": null, "snapshot": { "revertToRef": { "name": "before" } } });
    bed.change::<Container>("cache", revert).await;
    bed.until("cache", "set back", |container: &Container| {
        let status = container.status.as_ref();
        status.is_some_and(|status| status.reverted_to.as_deref() == Some("before"))
    })
    .await;
    bed.until_ready::<Container>("cache").await;
    bed.sleep(Duration::from_mins(1)).await;
    let guest = bed.guest("cache").await;
    assert!(guest.running);
    assert_eq!(guest.key("tags"), "", "what came later is undone");
    bed.delete::<VMSnapshot>("before").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { kind: Container, name: cache }, storage: local, deletionPolicy: Delete }
",
    )
    .await;
    bed.until_ready::<VMBackup>("nightly").await;
    bed.delete::<VMBackup>("nightly").await;
    bed.delete::<Container>("cache").await;
    assert_eq!(bed.check(&foreign).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_container_follows_its_node_and_leaves_one_in_maintenance() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    let made: Container = bed.until_ready("cache").await;
    let first = made.status.unwrap().node.unwrap();
    let nodes = bed.pve().nodes();
    let second = nodes.into_iter().find(|node| *node != first).unwrap();
    bed.change::<Container>("cache", json!({ "node": second }))
        .await;
    bed.until_reason::<Container>("cache", "Ready", "Migrating")
        .await;
    bed.until_ready::<Container>("cache").await;
    assert_eq!(bed.guest("cache").await.node, second);
    bed.change::<Container>("cache", json!({ "node": null }))
        .await;
    bed.until_ready::<Container>("cache").await;
    bed.pve().maintain_node(&second, true);
    bed.until("cache", "elsewhere", |container: &Container| {
        let node = container.status.as_ref().and_then(|it| it.node.as_ref());
        node.is_some_and(|node| *node != second)
    })
    .await;
    bed.until_ready::<Container>("cache").await;
    assert!(bed.guest("cache").await.running);
    bed.sleep(Duration::from_mins(2)).await;
    assert_eq!(bed.names::<VMMigration>().await, Vec::<String>::new());
}

fn adopter(name: &str, policy: &str) -> String {
    let machine = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1",
        "kind": "VirtualMachine",
        "metadata": { "name": name },
        "spec": {
            "providerRef": { "name": "proxmox-prod" },
            "adopt": { "vmid": 100 },
            "managementPolicy": policy,
        },
    });
    machine.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_somebody_looks_at_is_nobody_elses_not_even_after_a_start() {
    let mut bed = prepared().await;
    let before = bed.foreign().await;
    bed.apply(&adopter("old", "Observe")).await;
    bed.until_ready::<VirtualMachine>("old").await;
    bed.crash_operator().await;
    // This one is looked at first.
    bed.apply(&adopter("a-thief", "Manage")).await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(2)).await;
    let thief: VirtualMachine = bed.get("a-thief").await;
    let status = thief.status.unwrap();
    let ready = api::vm::condition(&status.conditions, "Ready").unwrap();
    assert_eq!((ready.reason.as_str(), status.vmid), ("InUse", None));
    assert_eq!(bed.foreign().await, before);
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_was_not_made_for_its_object_outlives_it() {
    let bed = prepared().await;
    let before = bed.foreign().await;
    for policy in ["Observe", "Manage"] {
        bed.apply(&adopter("old", policy)).await;
        bed.until_ready::<VirtualMachine>("old").await;
        bed.delete::<VirtualMachine>("old").await;
        bed.until_gone::<VirtualMachine>("old").await;
        assert_eq!(bed.foreign().await, before, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_is_backed_up_and_restored_with_what_it_had() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.change::<Container>("cache", json!({ "memory": "768Mi" }))
        .await;
    bed.until_ready::<Container>("cache").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { kind: Container, name: cache }, storage: nfs, deletionPolicy: Delete }
",
    )
    .await;
    bed.until_ready::<VMBackup>("nightly").await;
    let before = bed.guest("cache").await;
    bed.delete::<Container>("cache").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMRestore
metadata: { name: again }
spec: { backupRef: { name: nightly }, targetName: cache-restored, start: true }
",
    )
    .await;
    let restore: VMRestore = bed.until_ready("again").await;
    let target = restore.status.unwrap().target_ref.unwrap();
    assert_eq!(target, GuestRef::container("cache-restored"));
    let restored = bed.guest("cache-restored").await;
    assert!(restored.running);
    assert_eq!(restored.key("memory"), before.key("memory"));
    assert_eq!(restored.key("unprivileged"), before.key("unprivileged"));
    assert_ne!(restored.key("net0"), before.key("net0"));
    bed.delete::<VMBackup>("nightly").await;
    bed.until_ready::<Container>("cache-restored").await;
    assert_eq!(bed.backups("nfs").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_backup_goes_with_its_object_though_its_machine_is_gone_or_another() {
    let bed = with_machine().await;
    for name in ["first", "second"] {
        let backup = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1",
            "kind": "VMBackup",
            "metadata": { "name": name },
            "spec": {
                "vmRef": { "name": "web-server" }, "storage": "nfs", "deletionPolicy": "Delete",
            },
        });
        bed.try_apply(&backup).await.unwrap();
        bed.until_ready::<VMBackup>(name).await;
    }
    assert_eq!(bed.backups("nfs").await.len(), 2);
    bed.delete::<VirtualMachine>("web-server").await;
    bed.delete::<VMBackup>("first").await;
    assert_eq!(bed.backups("nfs").await.len(), 1);
    // Its VMID is taken meanwhile, so that the next machine of that name gets another.
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.delete::<VMBackup>("second").await;
    assert_eq!(bed.backups("nfs").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_snapshot_waits_for_it_and_is_told_when_it_is_anothers() {
    let bed = with_machine().await;
    let clone = |of: &str| {
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMClone",
            "metadata": { "name": format!("copy-of-{of}") },
            "spec": { "sourceVMRef": { "name": "web-server" }, "snapshotRef": { "name": of } },
        })
    };
    let snapshot = |name: &str, of: &str| {
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
            "metadata": { "name": name }, "spec": { "vmRef": { "name": of } },
        })
    };
    bed.try_apply(&clone("mine")).await.unwrap();
    bed.until_reason::<VirtualMachine>("copy-of-mine", "Ready", "WaitingForSource")
        .await;
    bed.try_apply(&snapshot("mine", "web-server"))
        .await
        .unwrap();
    bed.until_ready::<VMSnapshot>("mine").await;
    bed.sleep(Duration::from_secs(5)).await;
    let copy: VirtualMachine = bed.get("copy-of-mine").await;
    assert!(copy.status.unwrap().vmid.is_some(), "it is begun at once");
    // Its storage copies nothing but what is there now.
    bed.until_reason::<VirtualMachine>("copy-of-mine", "Ready", "Unsupported")
        .await;

    bed.try_apply(&snapshot("theirs", "another")).await.unwrap();
    bed.try_apply(&clone("theirs")).await.unwrap();
    let told: VirtualMachine = bed
        .until_reason("copy-of-theirs", "Ready", "InvalidSpec")
        .await;
    let status = told.status.unwrap();
    let ready = condition(&status.conditions, "Ready").unwrap();
    assert!(
        ready.message.contains("spec.cloneFrom.snapshotRef"),
        "{ready:?}"
    );
}
