//! From a Machine to a guest and back to nothing.

use std::time::Duration;

use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxMachine};
use api::vm::condition;
use k8s_openapi::api::core::v1::Secret;
use scenarios::{Guest, Wish};
use serde_json::json;

use super::{bed, named};

#[tokio::test(start_paused = true)]
async fn a_machine_becomes_a_guest_with_its_address_and_is_known_by_its_uuid() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1")).await;
    let machine = bed.until_provisioned("worker-1").await;

    let guests = bed.guests().await;
    let guest = named(&guests, "worker-1").unwrap();
    assert!(guest.running);
    assert_eq!((guest.key("cores"), guest.key("memory")), ("4", "8192"));
    assert!(
        guest.key("scsi0").contains("size=50G"),
        "{}",
        guest.key("scsi0")
    );
    let provider_id = machine.spec.provider_id.unwrap();
    let uuid = provider_id.strip_prefix("proxmox://").unwrap();
    assert!(
        guest.key("smbios1").contains(uuid),
        "{}",
        guest.key("smbios1")
    );
    assert_eq!(machine.spec.virtual_machine_id, Some(guest.vmid.into()));
    let status = machine.status.unwrap();
    assert_eq!(status.proxmox_node.as_ref(), Some(&guest.node));
    let addresses: Vec<_> = status
        .addresses
        .iter()
        .map(|a| (a.kind.as_str(), a.address.as_str()))
        .collect();
    assert_eq!(
        addresses,
        [("Hostname", "worker-1"), ("InternalIP", "10.0.1.0")]
    );
}

#[tokio::test(start_paused = true)]
async fn bootstrap_data_leaves_the_storage_when_the_node_has_joined() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
    bed.sleep(Duration::from_mins(5)).await;
    let isos = |guest: &Guest| guest.config.values().filter(|v| v.contains(".iso")).count();
    assert_eq!(
        isos(&bed.guest("worker-1").await),
        1,
        "kept until the node has joined"
    );

    bed.join("worker-1").await;
    bed.sleep(Duration::from_mins(5)).await;
    assert_eq!(isos(&bed.guest("worker-1").await), 0);
    assert_eq!(bed.first_boot_images(0).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_machine_leaves_nothing_on_proxmox_though_it_never_joined() {
    let (bed, _player) = bed(1).await;
    let before = bed.guests().await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
    bed.delete::<ProxmoxMachine>("worker-1").await;
    assert_eq!(bed.guests().await, before);
    assert_eq!(bed.first_boot_images(0).await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_goes_after_its_machines_and_its_credentials_after_the_cluster() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
    // All at once, as when a namespace is deleted.
    let now = kube::api::DeleteParams::default();
    bed.api::<Secret>()
        .delete("pve-credentials", &now)
        .await
        .unwrap();
    bed.api::<ProxmoxCluster>()
        .delete("prod", &now)
        .await
        .unwrap();
    bed.until_reason::<ProxmoxCluster>("prod", "Ready", "WaitingForMachines")
        .await;
    bed.api::<ProxmoxMachine>()
        .delete("worker-1", &now)
        .await
        .unwrap();
    bed.until_gone::<ProxmoxMachine>("worker-1").await;
    bed.until_gone::<ProxmoxCluster>("prod").await;
    bed.until_gone::<Secret>("pve-credentials").await;
    assert!(named(&bed.guests().await, "worker-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_vanishes_is_reported_and_not_made_again() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
    bed.destroy("worker-1").await;
    let machine = bed
        .until_reason::<ProxmoxMachine>("worker-1", "Ready", "GuestLost")
        .await;
    let status = machine.status.unwrap();
    // Cluster API takes "provisioned" as said for good; what is wrong now is in Ready.
    assert_eq!(status.initialization.unwrap().provisioned, Some(true));
    assert!(
        condition(&status.conditions, "Ready")
            .unwrap()
            .message
            .contains("removed")
    );
    assert!(named(&bed.guests().await, "worker-1").is_none());
    bed.delete::<ProxmoxMachine>("worker-1").await;
}

#[tokio::test(start_paused = true)]
async fn shortage_is_waited_out_and_said() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1").with(&json!({"memory": "9Ti"})))
        .await;
    let machine = bed
        .until_reason::<ProxmoxMachine>("worker-1", "Ready", "WaitingForCapacity")
        .await;
    assert_eq!(machine.spec.provider_id, None);
    bed.change::<ProxmoxMachine>("worker-1", json!({"memory": 2048}))
        .await;
    bed.until_provisioned("worker-1").await;
}
