//! Fields that are easily accepted without doing anything.

use std::time::Duration;

use api::vm::{Container, Provider, VMImage, VirtualMachine};
use kube::api::{Patch, PatchParams};
use scenarios::Bed;
use serde_json::json;

use crate::{manifest, prepare, prepared, with_machine};

#[tokio::test(start_paused = true)]
async fn a_machine_that_comes_up_says_once_that_it_is_ready() {
    let bed = with_machine().await;
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
async fn addresses_are_refused_to_a_guest_that_reads_ignition() {
    for (network, field) in [
        (
            json!({ "staticIP": { "address": "10.0.0.5/24" } }),
            "staticIP",
        ),
        (json!({ "slaac": true }), "slaac"),
    ] {
        let bed = prepared().await;
        let mut networks = json!([{ "name": "lan" }, { "name": "dmz" }]);
        for (key, value) in network.as_object().unwrap() {
            networks[1][key] = value.clone();
        }
        let ignition = json!({ "ignition": { "inline": "{}" } });
        let told = json!({ "networks": networks, "userData": ignition });
        let refused = refusal(&bed, told).await;
        assert!(
            refused.contains(&format!("spec.networks[1].{field}"))
                && refused.contains("/etc/systemd/network"),
            "{refused}"
        );
    }
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
      - { vmid: 9001, node: pve1, storage: san, disk-gib: 4, template: true, options: { name: on-san } }
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
    // Nor where the template brings the disk.
    bed.delete::<VirtualMachine>("web-server").await;
    bed.change::<VMImage>("ubuntu-22", json!({ "source": 9001 }))
        .await;
    let root = json!({ "disks": [{ "name": "root", "size": "8Gi", "type": "thin" }] });
    let refused = refusal(&bed, root).await;
    assert!(
        refused.contains("disks[root]: is thin") && refused.contains("'san'"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_shall_be_thick_later_says_that_it_stays_as_it_was_made() {
    let bed = with_machine().await;
    let thick = json!({ "disks": [{ "name": "root", "size": "40Gi", "type": "thick" }] });
    bed.change::<VirtualMachine>("web-server", thick).await;
    let told: VirtualMachine = bed
        .until("web-server", "told of", |vm: &VirtualMachine| {
            let conditions = vm.status.iter().flat_map(|status| &status.conditions);
            let mut conditions = conditions.filter(|it| it.type_ == "Drifted");
            conditions.any(|it| it.status == "True" && it.message.contains("scsi0"))
        })
        .await;
    assert!(told.status.unwrap().vmid.is_some());
    let said = bed.story("web-server").await;
    assert!(said.contains("though thick is declared"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_thick_disk_is_no_file_that_grows() {
    let bed = prepared().await;
    let disks = json!([{ "name": "data", "size": "1Gi", "type": "thick", "format": "qcow2" }]);
    let refused = refusal(&bed, json!({ "disks": disks })).await;
    assert!(refused.contains("disks[data].format: qcow2"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_gets_no_other_origin_nor_another_root_disk() {
    let bed = with_machine().await;
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
    let bed = with_machine().await;
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
