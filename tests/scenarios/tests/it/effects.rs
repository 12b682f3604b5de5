//! Fields that are easily accepted without doing anything.

use std::time::Duration;

use api::vm::{Container, Provider, VMBackup, VMMigration, VMRestore, VMSet, VirtualMachine};
use kube::api::{Patch, PatchParams};
use scenarios::Bed;
use serde_json::json;

use crate::{manifest, prepare, prepared, web_set};

#[tokio::test(start_paused = true)]
async fn a_machine_follows_the_node_its_spec_names() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let before = bed.guest("web-server").await;
    let target = bed
        .pve()
        .nodes()
        .into_iter()
        .find(|node| *node != before.node)
        .unwrap();
    bed.change::<VirtualMachine>("web-server", json!({ "node": target }))
        .await;
    bed.until_reason::<VirtualMachine>("web-server", "Ready", "Migrating")
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let after = bed.guest("web-server").await;
    assert_eq!((after.node, after.vmid), (target, before.vmid));
    assert!(after.running);
    bed.sleep(Duration::from_mins(2)).await;
    assert_eq!(
        bed.names::<VMMigration>().await,
        Vec::<String>::new(),
        "the move is cleared away"
    );
}

#[tokio::test(start_paused = true)]
async fn a_move_that_cannot_be_is_said_by_the_machine() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let before = bed.guest("web-server").await;
    bed.change::<VirtualMachine>("web-server", json!({ "node": "nowhere" }))
        .await;
    bed.sleep(Duration::from_mins(5)).await;
    let machine: VirtualMachine = bed.get("web-server").await;
    let status = machine.status.unwrap();
    let ready = api::vm::condition(&status.conditions, "Ready").unwrap();
    assert_eq!(ready.status, "False");
    assert!(ready.message.contains("nowhere"), "{}", ready.message);
    assert_eq!(bed.guest("web-server").await, before);
}

#[tokio::test(start_paused = true)]
async fn a_node_in_maintenance_is_left_by_the_machines_that_run_on_it() {
    let bed = prepared().await;
    for name in ["web-1", "web-2", "idle"] {
        let named = manifest!("machine").replace("name: web-server", &format!("name: {name}"));
        bed.apply(&named).await;
        bed.until_ready::<VirtualMachine>(name).await;
    }
    bed.change::<VirtualMachine>("idle", json!({ "powerState": "Off" }))
        .await;
    let off: VirtualMachine = bed.until_ready("idle").await;
    let machine: VirtualMachine = bed.get("web-1").await;
    let node = machine.status.unwrap().node.unwrap();
    bed.change::<VirtualMachine>("web-2", json!({ "node": node }))
        .await;
    let there = |machine: &VirtualMachine| {
        let status = machine.status.as_ref();
        status.and_then(|status| status.node.as_ref()) == Some(&node)
    };
    bed.until("web-2", "there", there).await;
    bed.until_ready::<VirtualMachine>("web-2").await;
    bed.sleep(Duration::from_mins(1)).await;

    bed.pve().maintain_node(&node, true);
    let elsewhere = |machine: &VirtualMachine| !there(machine);
    bed.until("web-1", "elsewhere", elsewhere).await;
    assert!(bed.guest("web-1").await.running);
    assert_ne!(bed.guest("web-1").await.node, node);
    bed.sleep(Duration::from_mins(2)).await;
    let pinned: VirtualMachine = bed.get("web-2").await;
    assert!(there(&pinned), "who is pinned there stays");
    let off_now: VirtualMachine = bed.get("idle").await;
    assert_eq!(off_now.status.unwrap().node, off.status.unwrap().node);
    bed.until_ready::<VirtualMachine>("web-1").await;
    assert_eq!(bed.names::<VMMigration>().await, Vec::<String>::new());

    // Nobody goes back by itself.
    bed.pve().maintain_node(&node, false);
    bed.sleep(Duration::from_mins(2)).await;
    let after: VirtualMachine = bed.get("web-1").await;
    assert!(!there(&after));
}

/// A machine with a disc in its drive that is on its node alone, so that it cannot leave.
async fn held_by_a_disc(bed: &Bed) -> scenarios::Guest {
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(1)).await;
    let guest = bed.guest("web-server").await;
    let node = bed
        .root()
        .node(&pve::NodeName::new(guest.node.as_str()).unwrap());
    let disc = pve::api::storage::upload::Upload::iso("tools.iso", 4);
    let local = node.storage(&pve::StorageId::new("local").unwrap());
    local.upload_bytes(&disc, "disc".into()).await.unwrap();
    bed.sleep(Duration::from_mins(1)).await;
    let drive = "local:iso/tools.iso,media=cdrom";
    // A new drive takes a restart.
    for (power, drive) in [("Off", Some(drive)), ("On", None)] {
        bed.change::<VirtualMachine>("web-server", json!({ "powerState": power }))
            .await;
        bed.until_ready::<VirtualMachine>("web-server").await;
        if let Some(drive) = drive {
            bed.configure(&guest, "ide0", drive).await;
        }
    }
    guest
}

#[tokio::test(start_paused = true)]
async fn a_move_that_failed_is_not_begun_again_by_a_restart() {
    let mut bed = prepared().await;
    let guest = held_by_a_disc(&bed).await;
    let nodes = bed.pve().nodes();
    let target = nodes.iter().find(|node| **node != guest.node).unwrap();
    bed.apply(&format!(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMMigration
metadata: {{ name: move }}
spec: {{ vmRef: {{ name: web-server }}, targetNode: {target}, withLocalDisks: true }}
"
    ))
    .await;
    let failed = |it: &VMMigration| {
        let status = it.status.as_ref();
        status.is_some_and(|status| status.phase == Some(api::vm::Phase::Failed))
    };
    bed.until("move", "failed", failed).await;
    bed.configure(&guest, "ide0", "none,media=cdrom").await;
    let tried = bed.count("POST /nodes/{node}/qemu/{vmid}/migrate");
    bed.crash_operator().await;
    bed.start_operator();
    bed.sleep(Duration::from_mins(15)).await;
    assert_eq!(bed.count("POST /nodes/{node}/qemu/{vmid}/migrate"), tried);
    assert!(failed(&bed.get("move").await));
    assert_eq!(bed.guest("web-server").await.node, guest.node);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_could_not_leave_a_node_tries_again() {
    let bed = prepared().await;
    let guest = held_by_a_disc(&bed).await;
    bed.pve().maintain_node(&guest.node, true);
    bed.sleep(Duration::from_mins(5)).await;
    let names = bed.names::<VMMigration>().await;
    let failed: VMMigration = bed.get(&names[0]).await;
    assert_eq!(failed.status.unwrap().phase, Some(api::vm::Phase::Failed));
    bed.configure(&guest, "ide0", "none,media=cdrom").await;
    bed.sleep(Duration::from_mins(15)).await;
    assert_ne!(bed.guest("web-server").await.node, guest.node);
}

#[tokio::test(start_paused = true)]
async fn a_move_that_still_waits_is_taken_back_when_the_maintenance_ends() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMPlacementPolicy
metadata: { name: here-only }
spec: { nodeSelector: [pve2] }
",
    )
    .await;
    let placed = format!(
        "{}  placementRef: {{ name: here-only }}\n",
        manifest!("machine")
    );
    bed.apply(&placed).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.pve().maintain_node("pve2", true);
    bed.sleep(Duration::from_mins(2)).await;
    let waiting = bed.names::<VMMigration>().await;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    bed.pve().maintain_node("pve2", false);
    bed.sleep(Duration::from_mins(2)).await;
    assert_eq!(bed.names::<VMMigration>().await, Vec::<String>::new());
    assert_eq!(bed.guest("web-server").await.node, "pve2");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_comes_up_says_once_that_it_is_ready() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.sleep(Duration::from_mins(5)).await;
    let events: kube::Api<k8s_openapi::api::core::v1::Event> =
        kube::Api::namespaced(bed.client.clone(), "default");
    let all = events
        .list(&kube::api::ListParams::default())
        .await
        .unwrap();
    let said = all.iter().filter(|event| {
        event.involved_object.kind.as_deref() == Some("VirtualMachine")
            && event.reason.as_deref() == Some("Ready")
    });
    let said: Vec<_> = said.filter_map(|event| event.message.clone()).collect();
    assert_eq!(said.len(), 1, "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restored_machine_is_on_the_storage_asked_for() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { name: web-server }, storage: nfs }
",
    )
    .await;
    bed.until_ready::<VMBackup>("nightly").await;
    let before = bed.guest("web-server").await;
    assert!(
        before.key("scsi0").starts_with("ceph:"),
        "{}",
        before.key("scsi0")
    );
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMRestore
metadata: { name: again }
spec: { backupRef: { name: nightly }, targetName: web-restored, storage: local-lvm }
",
    )
    .await;
    bed.until_ready::<VMRestore>("again").await;
    let restored = bed.guest("web-restored").await;
    assert!(
        restored.key("scsi0").starts_with("local-lvm:"),
        "{}",
        restored.key("scsi0")
    );
}

#[tokio::test(start_paused = true)]
async fn a_set_waits_until_a_machine_has_been_ready_long_enough() {
    let bed = prepared().await;
    let mut set = web_set(1);
    set["spec"]["minReadySeconds"] = json!(600);
    bed.try_apply(&set).await.unwrap();
    bed.until_ready::<VirtualMachine>("web-0").await;
    bed.sleep(Duration::from_mins(5)).await;
    let set: VMSet = bed.get("web").await;
    let status = set.status.unwrap();
    assert_eq!((status.ready_replicas, status.available_replicas), (1, 0));
    let set: VMSet = bed.until_ready("web").await;
    assert_eq!(set.status.unwrap().available_replicas, 1);
}

#[tokio::test(start_paused = true)]
async fn a_set_takes_no_machine_that_somebody_else_made_under_its_names() {
    let bed = prepared().await;
    let named = manifest!("machine").replace("name: web-server", "name: web-1");
    bed.apply(&named).await;
    let before: VirtualMachine = bed.until_ready("web-1").await;
    bed.try_apply(&web_set(2)).await.unwrap();
    bed.until_reason::<VMSet>("web", "Ready", "NameTaken").await;
    bed.until_ready::<VirtualMachine>("web-0").await;
    let after: VirtualMachine = bed.get("web-1").await;
    assert_eq!(after.spec, before.spec);
    assert_eq!(after.metadata.owner_references, None);

    // Once the name is free, the set has what it needs.
    bed.delete::<VirtualMachine>("web-1").await;
    bed.until_ready::<VMSet>("web").await;
    let own: VirtualMachine = bed.get("web-1").await;
    assert_ne!(own.metadata.uid, before.metadata.uid);
}

#[tokio::test(start_paused = true)]
async fn a_machine_says_where_its_console_is() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    let machine: VirtualMachine = bed.until_ready("web-server").await;
    let status = machine.status.unwrap();
    let (node, vmid) = (status.node.unwrap(), status.vmid.unwrap());
    let url = format!("https://pve.example.com:8006/?console=kvm&novnc=1&node={node}&vmid={vmid}");
    assert_eq!(status.console_url, Some(url));
}

async fn refusal(bed: &Bed, spec: serde_json::Value) -> String {
    let mut machine = scenarios::documents(manifest!("machine")).remove(0);
    for (key, value) in spec.as_object().unwrap() {
        machine["spec"][key] = value.clone();
    }
    bed.try_apply(&machine).await.unwrap();
    let machine: VirtualMachine = bed
        .until("web-server", "refused", |vm: &VirtualMachine| {
            let status = vm.status.as_ref();
            status.is_some_and(|status| status.phase == Some(api::vm::Phase::Failed))
        })
        .await;
    let status = machine.status.unwrap();
    let ready = api::vm::condition(&status.conditions, "Ready").unwrap();
    ready.message.clone()
}

#[tokio::test(start_paused = true)]
async fn merged_pages_are_refused_where_pve_does_not_know_them() {
    let bed = Bed::builder().release("8.4").start().await;
    prepare(&bed).await;
    let hardware = json!({ "hardware": { "memory": { "mergePages": true } } });
    let refused = refusal(&bed, hardware).await;
    assert!(
        refused.contains("from Proxmox VE 9 on") && refused.contains("leave it out"),
        "{refused}"
    );

    let newer = prepared().await;
    let mut machine = scenarios::documents(manifest!("machine")).remove(0);
    machine["spec"]["hardware"] = json!({ "memory": { "mergePages": false } });
    newer.try_apply(&machine).await.unwrap();
    newer.until_ready::<VirtualMachine>("web-server").await;
    assert_eq!(newer.guest("web-server").await.key("allow-ksm"), "0");
}

#[tokio::test(start_paused = true)]
async fn thin_disks_are_refused_on_storage_that_has_only_thick_ones() {
    let bed = Bed::builder()
        .world(
            "
clusters:
  - name: pve
    storages:
      - { id: local, type: dir, content: [iso, import, snippets, backup], capacity-gib: 100 }
      - { id: files, type: nfs, content: [images], capacity-gib: 100, options: { server: nas, export: /vm } }
      - { id: san, type: lvm, content: [images], capacity-gib: 1000, shared: true, options: { vgname: san } }
    guests:
      - { vmid: 9000, node: pve1, storage: files, disk-gib: 4, template: true, options: { name: ubuntu-22-template } }
",
        )
        .start()
        .await;
    bed.apply(include_str!("manifests/secret-root.yaml")).await;
    for text in [
        manifest!("provider-token"),
        manifest!("image"),
        manifest!("class-small"),
    ] {
        bed.apply(text).await;
    }
    let disks =
        json!({ "disks": [{ "name": "data", "size": "1Gi", "storage": "san", "type": "thin" }] });
    let refused = refusal(&bed, disks).await;
    assert!(
        refused.contains("thick volumes only") && refused.contains("san"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_gets_no_other_origin_nor_another_root_disk() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let blank = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": { "name": "blank" },
        "spec": { "cpus": 1, "memory": "1Gi", "powerState": false },
    });
    bed.try_apply(&blank).await.unwrap();
    bed.until_ready::<VirtualMachine>("blank").await;
    let renamed = json!({ "disks": [{ "name": "system", "size": "40Gi" }] });
    for (name, change, word) in [
        (
            "web-server",
            json!({ "imageRef": { "name": "other" } }),
            "imageRef",
        ),
        ("web-server", renamed, "boots from"),
        (
            "blank",
            json!({ "imageRef": { "name": "ubuntu-22" } }),
            "imageRef",
        ),
        ("blank", json!({ "adopt": { "vmid": 100 } }), "adopt"),
        (
            "blank",
            json!({ "restoreFrom": { "volume": "nfs:backup/a" } }),
            "restoreFrom",
        ),
        (
            "blank",
            json!({ "cloneFrom": { "vmRef": { "name": "web-server" } } }),
            "cloneFrom",
        ),
    ] {
        let patch = Patch::Merge(json!({ "spec": change }));
        let api = bed.api::<VirtualMachine>();
        let refused = api.patch(name, &PatchParams::default(), &patch).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(word), "{change}: {refused}");
    }
    // Nor in two steps.
    bed.change::<VirtualMachine>("web-server", json!({ "imageRef": null }))
        .await;
    let patch = Patch::Merge(json!({ "spec": { "imageRef": { "name": "other" } } }));
    let api = bed.api::<VirtualMachine>();
    let refused = api
        .patch("web-server", &PatchParams::default(), &patch)
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("make a new VirtualMachine"), "{refused}");
}

/// Who applies a part of a manifest takes the rest out.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_image_is_taken_out_of_its_spec_stays_the_copy_it_is() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let before = bed.guest("web-server").await;
    let part = json!({ "imageRef": null, "disks": null, "tags": ["part"] });
    bed.change::<VirtualMachine>("web-server", part).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    let after = bed.guest("web-server").await;
    assert!(after.key("tags").contains("part"));
    for key in ["scsi0", "scsihw", "ostype", "boot"] {
        assert_eq!(after.key(key), before.key(key), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_not_looked_for_on_the_cluster_of_another_provider() {
    let bed = Bed::builder().clusters(2).start().await;
    prepare(&bed).await;
    let mut machine = scenarios::documents(manifest!("machine")).remove(0);
    let spec = machine["spec"].as_object_mut().unwrap();
    spec.remove("providerRef");
    machine["spec"]["lossPolicy"] = json!("Recreate");
    bed.try_apply(&machine).await.unwrap();
    bed.until_ready::<VirtualMachine>("web-server").await;
    let other = manifest!("provider-token")
        .replace("proxmox-prod", "other")
        .replace("pve.example", "pve-1.example");
    bed.apply(&other).await;
    bed.until_ready::<Provider>("other").await;
    bed.change::<VirtualMachine>("web-server", json!({ "providerRef": { "name": "other" } }))
        .await;
    bed.until_reason::<VirtualMachine>("web-server", "Ready", "ProviderChanged")
        .await;
    bed.sleep(Duration::from_mins(20)).await;
    let named = |guests: Vec<scenarios::Guest>| {
        let all = guests.into_iter().filter(|it| it.name == "web-server");
        all.count()
    };
    assert_eq!(named(bed.guests_of(0).await), 1);
    assert_eq!(named(bed.guests_of(1).await), 0);
}

#[tokio::test(start_paused = true)]
async fn a_container_says_what_waits_for_its_restart() {
    let bed = prepared().await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    bed.until_ready::<Container>("cache").await;
    bed.change::<Container>("cache", json!({ "features": ["nesting=1"] }))
        .await;
    let waits: Container = bed
        .until_reason("cache", "RestartRequired", "PendingChanges")
        .await;
    let conditions = waits.status.unwrap().conditions;
    let message = &api::vm::condition(&conditions, "RestartRequired")
        .unwrap()
        .message;
    assert!(message.contains("features"), "{message}");
    for on in [false, true] {
        bed.change::<Container>("cache", json!({ "powerState": on }))
            .await;
        bed.until_ready::<Container>("cache").await;
    }
    bed.until_reason::<Container>("cache", "RestartRequired", "NothingPending")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_stays_while_a_backup_is_to_go_with_its_object() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.until_ready::<VirtualMachine>("web-server").await;
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
    bed.delete::<VirtualMachine>("web-server").await;
    let api = bed.api::<Provider>();
    api.delete("proxmox-prod", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    bed.sleep(Duration::from_mins(5)).await;
    assert!(api.get_opt("proxmox-prod").await.unwrap().is_some());
    bed.delete::<VMBackup>("nightly").await;
    assert_eq!(bed.backups("nfs").await, Vec::<String>::new());
    bed.until_gone::<Provider>("proxmox-prod").await;
}

#[tokio::test(start_paused = true)]
async fn who_is_off_has_no_addresses() {
    let bed = prepared().await;
    bed.apply(manifest!("machine")).await;
    bed.apply(include_str!("manifests/container.yaml")).await;
    let machine: VirtualMachine = bed.until_ready("web-server").await;
    let container: Container = bed.until_ready("cache").await;
    assert!(!machine.status.unwrap().ips.is_empty());
    assert!(!container.status.unwrap().ips.is_empty());
    bed.change::<VirtualMachine>("web-server", json!({ "powerState": "Off" }))
        .await;
    bed.change::<Container>("cache", json!({ "powerState": "Off" }))
        .await;
    let off: VirtualMachine = bed.until_ready("web-server").await;
    let status = off.status.unwrap();
    assert!(status.ips.is_empty(), "{:?}", status.ips);
    assert!(status.networks.iter().all(|network| network.ips.is_empty()));
    let off: Container = bed.until_ready("cache").await;
    assert!(off.status.unwrap().ips.is_empty());
}
