//! Backups, and what they become.

use std::time::Duration;

use api::vm::{Container, Provider, VMBackup, VMRestore, VirtualMachine};
use kube::api::DeleteParams;
use scenarios::Bed;
use serde_json::json;

use crate::{manifest, with_machine};

/// Asks for a backup of the machine.
async fn back_up(bed: &Bed, name: &str, policy: &str) {
    let backup = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMBackup",
        "metadata": { "name": name },
        "spec": {
            "vmRef": { "name": "web-server" }, "storage": "nfs", "deletionPolicy": policy,
        },
    });
    bed.try_apply(&backup).await.unwrap();
}

/// Makes a machine `web-restored` of it.
async fn restore(bed: &Bed, storage: Option<&str>) {
    let restore = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMRestore",
        "metadata": { "name": "again" },
        "spec": {
            "backupRef": { "name": "nightly" }, "targetName": "web-restored", "storage": storage,
        },
    });
    bed.try_apply(&restore).await.unwrap();
    bed.until_ready::<VMRestore>("again").await;
}

#[tokio::test(start_paused = true)]
async fn a_backup_becomes_a_machine_again() {
    let bed = with_machine().await;
    back_up(&bed, "nightly", "Retain").await;
    let backup: VMBackup = bed.until_ready("nightly").await;
    assert!(backup.status.unwrap().volume.is_some());
    restore(&bed, None).await;
    assert!(!bed.guest("web-restored").await.running);
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_nobody_heard_of_is_found_though_its_machine_is_gone() {
    let mut bed = with_machine().await;
    let begun = "POST /nodes/{node}/vzdump";
    let fault = pve_sim::Fault::once(begun, pve_sim::Action::DropAnswer);
    bed.pve().control().inject(fault);
    back_up(&bed, "nightly", "Delete").await;
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
    back_up(&bed, "nightly", "Delete").await;
    bed.until_ready::<VMBackup>("nightly").await;
    bed.sleep(Duration::from_mins(10)).await;
    assert_eq!(bed.count(begun), 1);
    assert_eq!(bed.backups("nfs").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_backup_goes_with_its_object_though_its_machine_is_gone_or_another() {
    let bed = with_machine().await;
    for name in ["first", "second"] {
        back_up(&bed, name, "Delete").await;
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
async fn a_restored_machine_is_on_the_storage_asked_for() {
    let bed = with_machine().await;
    back_up(&bed, "nightly", "Retain").await;
    bed.until_ready::<VMBackup>("nightly").await;
    let before = bed.guest("web-server").await;
    assert!(
        before.key("scsi0").starts_with("ceph:"),
        "{}",
        before.key("scsi0")
    );
    restore(&bed, Some("local-lvm")).await;
    let restored = bed.guest("web-restored").await;
    assert!(
        restored.key("scsi0").starts_with("local-lvm:"),
        "{}",
        restored.key("scsi0")
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_stays_while_a_backup_is_to_go_with_its_object() {
    let bed = with_machine().await;
    back_up(&bed, "nightly", "Delete").await;
    bed.until_ready::<VMBackup>("nightly").await;
    bed.delete::<VirtualMachine>("web-server").await;
    let api = bed.api::<Provider>();
    api.delete("proxmox-prod", &DeleteParams::default())
        .await
        .unwrap();
    bed.sleep(Duration::from_mins(5)).await;
    assert!(api.get_opt("proxmox-prod").await.unwrap().is_some());
    bed.delete::<VMBackup>("nightly").await;
    assert_eq!(bed.backups("nfs").await, Vec::<String>::new());
    bed.until_gone::<Provider>("proxmox-prod").await;
}
