//! What a Provider says of its cluster, and what it owes to the guests there.

use std::time::Duration;

use api::vm::{Provider, VMBackup, VMImage, VMSnapshot, VirtualMachine, condition};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use scenarios::Bed;
use serde_json::json;

use crate::{manifest, prepare, prepared, with_machine};

/// A bed with a machine that is Ready and a Provider that somebody deletes.
async fn leaving() -> Bed {
    let bed = with_machine().await;
    let providers = bed.api::<Provider>();
    let how = DeleteParams::default();
    providers.delete("proxmox-prod", &how).await.unwrap();
    bed.until_reason::<Provider>("proxmox-prod", "Ready", "InUse")
        .await;
    bed
}

#[tokio::test(start_paused = true)]
async fn the_guests_of_a_provider_that_leaves_are_looked_after_by_the_next_process_too() {
    let mut bed = leaving().await;
    bed.crash_operator().await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(1)).await;
    bed.delete::<VirtualMachine>("web-server").await;
    bed.until_gone::<Provider>("proxmox-prod").await;
    let left = bed.guests().await;
    assert!(!left.iter().any(|guest| guest.name == "web-server"));
}

#[tokio::test(start_paused = true)]
async fn new_credentials_reach_a_provider_that_leaves() {
    let bed = leaving().await;
    let wrong = include_str!("manifests/secret-root.yaml").replace("oxmox", "changed");
    bed.apply(&wrong).await;
    bed.sleep(Duration::from_mins(2)).await;
    bed.apply(include_str!("manifests/secret-root.yaml")).await;
    bed.sleep(Duration::from_mins(2)).await;
    let told = bed.story("proxmox-prod").await;
    assert!(told.contains("CredentialsRotated"), "{told}");
    bed.delete::<VirtualMachine>("web-server").await;
    bed.until_gone::<Provider>("proxmox-prod").await;
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_refused_are_told_apart_from_a_host_that_does_not_answer() {
    let bed = prepared().await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    let wrong = include_str!("manifests/secret-root.yaml").replace("oxmox", "changed");
    bed.apply(&wrong).await;
    let told = "CredentialsRefused";
    let provider: Provider = bed.until_reason("proxmox-prod", "Ready", told).await;
    let conditions = provider.status.unwrap().conditions;
    let reachable = condition(&conditions, "Reachable").unwrap();
    assert_eq!(reachable.status, "True", "{reachable:?}");
    bed.apply(include_str!("manifests/secret-root.yaml")).await;
    bed.until_ready::<Provider>("proxmox-prod").await;

    for node in bed.pve().nodes() {
        bed.pve().kill_node(&node);
    }
    bed.until_reason::<Provider>("proxmox-prod", "Ready", "Unreachable")
        .await;
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_deleted_with_everything_else_are_kept_to_the_end() {
    let mut bed = with_machine().await;
    let how = DeleteParams::default();
    let secrets = bed.api::<Secret>();
    secrets.delete("pve-credentials", &how).await.unwrap();
    let providers = bed.api::<Provider>();
    providers.delete("proxmox-prod", &how).await.unwrap();
    bed.crash_operator().await;
    bed.sleep(Duration::from_mins(10)).await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(2)).await;
    bed.delete::<VirtualMachine>("web-server").await;
    bed.until_gone::<Provider>("proxmox-prod").await;
    bed.until_gone::<Secret>("pve-credentials").await;
    let left = bed.guests().await;
    assert!(!left.iter().any(|guest| guest.name == "web-server"));
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_deleted_alone_go_soon_and_can_be_put_back() {
    let bed = prepared().await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    bed.delete::<Secret>("pve-credentials").await;
    bed.until_reason::<Provider>("proxmox-prod", "Ready", "SecretNotFound")
        .await;
    bed.apply(include_str!("manifests/secret-root.yaml")).await;
    bed.until_ready::<Provider>("proxmox-prod").await;
}

#[tokio::test(start_paused = true)]
async fn credentials_that_a_provider_reads_no_more_are_let_go() {
    let bed = prepared().await;
    bed.until_ready::<Provider>("proxmox-prod").await;
    let other = include_str!("manifests/secret-root.yaml").replace("pve-credentials", "others");
    bed.apply(&other).await;
    let spec = json!({ "credentialSecretRef": { "name": "others" } });
    bed.change::<Provider>("proxmox-prod", spec).await;
    let kept = |secret: &Secret| !secret.finalizers().is_empty();
    bed.until("others", "kept", kept).await;
    bed.until("pve-credentials", "let go", |it: &Secret| !kept(it))
        .await;
    bed.until_ready::<Provider>("proxmox-prod").await;
}

#[tokio::test(start_paused = true)]
async fn what_was_never_begun_can_be_deleted_though_its_provider_cannot_be_used() {
    for credentials in [false, true] {
        let bed = Bed::new().await;
        if credentials {
            let wrong = include_str!("manifests/secret-root.yaml").replace("oxmox", "changed");
            bed.apply(&wrong).await;
        }
        bed.apply(manifest!("provider-token")).await;
        bed.apply(manifest!("class-small")).await;
        let image = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMImage",
            "metadata": { "name": "ubuntu-22" },
            "spec": { "source": "https://images.example.com/ubuntu.qcow2", "storage": "local-lvm" },
        });
        bed.try_apply(&image).await.unwrap();
        bed.apply(manifest!("machine")).await;
        bed.sleep(Duration::from_mins(2)).await;
        let how = DeleteParams::default();
        bed.api::<Provider>()
            .delete("proxmox-prod", &how)
            .await
            .unwrap();
        bed.api::<VMImage>()
            .delete("ubuntu-22", &how)
            .await
            .unwrap();
        bed.delete::<VirtualMachine>("web-server").await;
        bed.until_gone::<VMImage>("ubuntu-22").await;
        bed.until_gone::<Provider>("proxmox-prod").await;
    }
}

fn snapshot(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot",
        "metadata": { "name": name }, "spec": { "vmRef": { "name": "web-server" } },
    })
}

/// As when a namespace is deleted.
#[tokio::test(start_paused = true)]
async fn a_provider_stays_until_the_snapshots_of_a_guest_that_is_let_go_are_removed() {
    let bed = with_machine().await;
    let names = ["one", "two", "three", "four", "five"];
    for name in names {
        bed.try_apply(&snapshot(name)).await.unwrap();
        bed.until_ready::<VMSnapshot>(name).await;
    }
    bed.change::<VirtualMachine>("web-server", json!({ "deletionPolicy": "Orphan" }))
        .await;
    let how = DeleteParams::default();
    bed.api::<Provider>()
        .delete("proxmox-prod", &how)
        .await
        .unwrap();
    bed.api::<VirtualMachine>()
        .delete("web-server", &how)
        .await
        .unwrap();
    for name in names {
        bed.api::<VMSnapshot>().delete(name, &how).await.unwrap();
    }
    bed.until_gone::<Provider>("proxmox-prod").await;
    assert_eq!(bed.names::<VMSnapshot>().await, Vec::<String>::new());
    assert_eq!(bed.snapshots("web-server").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_being_taken_of_a_guest_that_is_let_go_is_removed_with_its_object() {
    let mut bed = with_machine().await;
    bed.change::<VirtualMachine>("web-server", json!({ "deletionPolicy": "Orphan" }))
        .await;
    bed.sleep(Duration::from_mins(1)).await;
    bed.try_apply(&snapshot("late")).await.unwrap();
    while bed.snapshots("web-server").await.is_empty() {
        bed.sleep(Duration::from_millis(20)).await;
    }
    let begun = |it: &VMSnapshot| it.status.as_ref().is_some_and(|it| it.record.is_some());
    bed.until("late", "begun", begun).await;
    bed.crash_operator().await;
    bed.sleep(Duration::from_mins(1)).await;
    let how = DeleteParams::default();
    bed.api::<VirtualMachine>()
        .delete("web-server", &how)
        .await
        .unwrap();
    bed.api::<VMSnapshot>().delete("late", &how).await.unwrap();
    bed.start_operator();
    bed.until_gone::<VirtualMachine>("web-server").await;
    bed.until_gone::<VMSnapshot>("late").await;
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.snapshots("web-server").await, Vec::<String>::new());
}

/// What has gone with its guest needs nobody to look after it.
#[tokio::test(start_paused = true)]
async fn a_provider_does_not_wait_for_a_snapshot_that_went_with_its_guest() {
    let bed = with_machine().await;
    bed.try_apply(&snapshot("one")).await.unwrap();
    bed.until_ready::<VMSnapshot>("one").await;
    let how = DeleteParams::default();
    bed.api::<Provider>()
        .delete("proxmox-prod", &how)
        .await
        .unwrap();
    bed.delete::<VirtualMachine>("web-server").await;
    bed.until_gone::<Provider>("proxmox-prod").await;
    bed.delete::<VMSnapshot>("one").await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_says_what_each_feature_lacks_and_is_troubled_by_what_machines_lack_only() {
    let most = "Datastore.Allocate, Datastore.AllocateSpace, Datastore.AllocateTemplate, Datastore.Audit, Mapping.Use, Pool.Allocate, \
                Pool.Audit, SDN.Use, Sys.AccessNetwork, Sys.Audit, Sys.Console, Sys.Modify, VM.Audit, VM.Backup, VM.Clone, \
                VM.Config.CDROM, VM.Config.CPU, VM.Config.Cloudinit, VM.Config.Disk, VM.Config.HWType, VM.Config.Memory, \
                VM.Config.Network, VM.Config.Options, VM.Console, VM.GuestAgent.Audit, VM.GuestAgent.Unrestricted, VM.Migrate, \
                VM.PowerMgmt, VM.Snapshot.Rollback";
    let snapshots = "snapshots (/vms: VM.Snapshot)";
    for (more, truth, lacking) in [
        ("VM.Allocate", "True", &["/vms: VM.Snapshot"][..]),
        ("VM.Snapshot", "False", &["/vms: VM.Allocate"]),
    ] {
        // Whoever is confined to a pool lacks nothing that it has there.
        let world = format!(
            "
clusters:
  - name: pve
    users:
      - id: virtrigaud@pve
        tokens: [{{ id: vrtg-token, secret: 11111111-2222-3333-4444-555555555555, privsep: false }}]
    roles:
      - {{ id: Most, privs: [{most}] }}
      - {{ id: More, privs: [{more}] }}
    pools: [{{ id: ours }}]
    acl:
      - {{ path: /, user: virtrigaud@pve, role: Most }}
      - {{ path: /pool/ours, user: virtrigaud@pve, role: More }}
"
        );
        let bed = Bed::builder().world(&world).start().await;
        let secret = "11111111-2222-3333-4444-555555555555";
        let token =
            manifest!("secret-token").replace("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", secret);
        bed.apply(&token).await;
        bed.apply(manifest!("provider-token")).await;
        let said = |provider: &Provider| {
            let status = provider.status.as_ref();
            status.is_some_and(|status| status.missing_privileges == lacking)
        };
        let provider: Provider = bed.until("proxmox-prod", "told", said).await;
        let conditions = provider.status.unwrap().conditions;
        let sufficient = condition(&conditions, "PrivilegesSufficient").unwrap();
        assert_eq!(sufficient.status, truth, "{sufficient:?}");
        let named = sufficient.message.contains(snapshots);
        assert_eq!(named, truth == "True", "{sufficient:?}");
    }
}

/// Somebody points a Provider to another installation, which has none of the guests.
#[tokio::test(start_paused = true)]
async fn what_another_cluster_does_not_have_is_not_taken_for_gone() {
    let other = "clusters: [{ name: other, nodes: [{ name: alpha }] }]";
    let mut bed = Bed::builder().clusters(2).others(other).start().await;
    prepare(&bed).await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.try_apply(&snapshot("kept")).await.unwrap();
    bed.until_ready::<VMSnapshot>("kept").await;
    let backup = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMBackup",
        "metadata": { "name": "nightly" },
        "spec": { "vmRef": { "name": "web-server" }, "storage": "local", "deletionPolicy": "Delete" },
    });
    bed.try_apply(&backup).await.unwrap();
    bed.until_ready::<VMBackup>("nightly").await;
    let before: Provider = bed.get("proxmox-prod").await;
    let elsewhere = json!({ "endpoint": "https://pve-1.example.com:8006" });
    bed.change::<Provider>("proxmox-prod", elsewhere).await;
    bed.until_reason::<Provider>("proxmox-prod", "Ready", "AnotherCluster")
        .await;
    let how = DeleteParams::default();
    let machines = bed.api::<VirtualMachine>();
    machines.delete("web-server", &how).await.unwrap();
    let backups = bed.api::<VMBackup>();
    backups.delete("nightly", &how).await.unwrap();
    bed.sleep(Duration::from_mins(30)).await;
    bed.crash_operator().await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(30)).await;
    for at in [0, 1] {
        let guests = bed.guests_of(at).await;
        let there = guests.iter().any(|guest| guest.name == "web-server");
        assert_eq!(there, at == 0, "cluster {at}");
    }
    machines.get("web-server").await.unwrap();
    backups.get("nightly").await.unwrap();
    bed.until_ready::<VMSnapshot>("kept").await;

    let back = json!({ "endpoint": before.spec.endpoint });
    bed.change::<Provider>("proxmox-prod", back).await;
    bed.until_gone::<VMBackup>("nightly").await;
    bed.until_gone::<VirtualMachine>("web-server").await;
    let left = bed.guests().await;
    assert!(!left.iter().any(|guest| guest.name == "web-server"));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_nodes_are_all_others_is_accepted_when_somebody_says_so() {
    let other = "clusters: [{ name: other, nodes: [{ name: alpha }] }]";
    let bed = Bed::builder().clusters(2).others(other).start().await;
    prepare(&bed).await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let elsewhere = json!({ "endpoint": "https://pve-1.example.com:8006" });
    bed.change::<Provider>("proxmox-prod", elsewhere).await;
    bed.until_reason::<Provider>("proxmox-prod", "Ready", "AnotherCluster")
        .await;
    let accepted = Patch::Merge(json!({ "status": { "nodes": null } }));
    let params = PatchParams::default();
    let providers = bed.api::<Provider>();
    let patched = providers.patch_status("proxmox-prod", &params, &accepted);
    patched.await.unwrap();
    bed.until_ready::<Provider>("proxmox-prod").await;
    bed.until_reason::<VirtualMachine>("web-server", "Ready", "GuestLost")
        .await;
}
