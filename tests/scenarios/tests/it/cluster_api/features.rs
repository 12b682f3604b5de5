//! What users of other providers have asked for.

use std::collections::BTreeSet;
use std::time::Duration;

use api::cluster_api::IPAddressClaim;
use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxMachine, ProxmoxMachineTemplate};
use pve::api::ha::HaResource;
use scenarios::{Bed, Wish};
use serde_json::json;

use super::{bed, named};

async fn ha_resources(bed: &Bed) -> Vec<HaResource> {
    bed.root().ha().resources().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn further_disks_processor_type_firmware_and_tpm_reach_the_guest() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    let wish = Wish::new("worker-1").with(&json!({
        "diskSize": null, "full": true, "storage": "ceph",
        "disks": {
            "bootVolume": {"disk": "scsi0", "sizeGb": 40},
            "additional": [
                {"name": "etcd", "size": "10Gi", "storage": "local-lvm", "ssd": true},
                {"name": "data", "size": "100Gi"},
            ],
        },
        "hardware": {
            "machine": "q35", "bios": "uefi", "tpm": {"version": "v2.0"},
            "cpu": {"type": "host"},
        },
        "sockets": 2, "tags": ["Blue"], "description": "a worker",
    }));
    bed.make_machine(wish).await;
    bed.until_provisioned("worker-1").await;
    let guest = bed.guest("worker-1").await;
    assert!(
        guest.key("scsi0").starts_with("ceph:") && guest.key("scsi0").contains("size=40G"),
        "{}",
        guest.key("scsi0")
    );
    let disks: Vec<&String> = guest
        .config
        .iter()
        .filter(|(k, _)| k.starts_with("scsi") && *k != "scsihw")
        .map(|(_, v)| v)
        .collect();
    assert!(
        disks
            .iter()
            .any(|d| d.starts_with("local-lvm:") && d.contains("size=10G") && d.contains("ssd=1")),
        "{disks:?}"
    );
    assert!(
        disks
            .iter()
            .any(|d| d.starts_with("ceph:") && d.contains("size=100G")),
        "{disks:?}"
    );
    assert_eq!(
        (
            guest.key("bios"),
            guest.key("machine"),
            guest.key("sockets")
        ),
        ("ovmf", "q35", "2")
    );
    assert!(guest.key("cpu").contains("host"));
    assert!(
        guest.key("tpmstate0").contains("version=v2.0"),
        "{}",
        guest.key("tpmstate0")
    );
    assert!(
        guest.key("efidisk0").starts_with("ceph:"),
        "{}",
        guest.key("efidisk0")
    );
    assert!(guest.key("tags").contains("blue"), "{}", guest.key("tags"));
    assert!(guest.key("description").starts_with("a worker"));
}

#[tokio::test(start_paused = true)]
async fn a_machine_in_ha_is_registered_and_goes_without_a_trace() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(
        Wish::new("worker-1")
            .with(&json!({"highAvailability": {"enabled": true, "maxRestart": 2}})),
    )
    .await;
    bed.until_provisioned("worker-1").await;
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(ha_resources(&bed).await.len(), 1);
    bed.delete::<ProxmoxMachine>("worker-1").await;
    assert!(ha_resources(&bed).await.is_empty());
    assert!(named(&bed.guests().await, "worker-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_firewall_is_set_for_guest_and_interface() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    let wish = Wish::new("worker-1").with(&json!({
        "firewall": {"enabled": true, "policyIn": "DROP"},
        "network": {"networkDevices": [{"name": "net0", "bridge": "vmbr0", "firewall": true, "rateLimit": 50, "queues": 4}]},
    }));
    bed.make_machine(wish).await;
    bed.until_provisioned("worker-1").await;
    let guest = bed.guest("worker-1").await;
    for part in ["firewall=1", "rate=50", "queues=4"] {
        assert!(guest.key("net0").contains(part), "{}", guest.key("net0"));
    }
    let node = guest.node.parse().unwrap();
    let vmid = pve::Vmid::new(guest.vmid).unwrap();
    let options = bed
        .root()
        .node(&node)
        .qemu(vmid)
        .firewall()
        .options()
        .await
        .unwrap();
    let options = format!("{options:?}");
    assert!(options.contains("DROP"), "{options}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_dhcp_claims_nothing_and_reports_what_the_guest_says() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(
        Wish::new("worker-1")
            .with(&json!({"network": {"networkDevices": [{"name": "net0", "dhcp4": true}]}})),
    )
    .await;
    let machine = bed.until_provisioned("worker-1").await;
    assert!(bed.names::<IPAddressClaim>().await.is_empty());
    let addresses = machine.status.unwrap().addresses;
    assert!(
        addresses.iter().any(|a| a.kind == "InternalIP"),
        "{addresses:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn both_families_and_several_interfaces_get_an_address_each() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({
        "ipv6Config": {"addresses": ["2001:db8::100-2001:db8::fff"], "prefix": 64, "gateway": "2001:db8::1"},
    }))
    .await;
    let wish = Wish::new("worker-1").with(&json!({"network": {"networkDevices": [
        // In any order: interfaces are what they are called.
        {"name": "net1", "bridge": "vmbr1", "vlan": 7, "ipPoolRef": [
            {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "GlobalInClusterIPPool", "name": "backstage"},
        ]},
        {"name": "net0", "bridge": "vmbr0", "defaultIPv4": true, "defaultIPv6": true},
    ]}}));
    bed.make_machine(wish).await;
    let machine = bed.until_provisioned("worker-1").await;
    let mut claims = bed.names::<IPAddressClaim>().await;
    claims.sort();
    assert_eq!(
        claims,
        [
            "worker-1-net0-00-inet",
            "worker-1-net0-01-inet",
            "worker-1-net1-00-inet"
        ]
    );
    let guest = bed.guest("worker-1").await;
    assert!(
        guest.key("net0").contains("bridge=vmbr0"),
        "{}",
        guest.key("net0")
    );
    assert!(guest.key("net1").contains("bridge=vmbr1") && guest.key("net1").contains("tag=7"));
    let addresses = machine.status.unwrap().ip_addresses;
    let of = |net: &str| addresses.iter().find(|one| one.net == net).unwrap();
    assert_eq!((of("net0").ipv4.len(), of("net0").ipv6.len()), (1, 1));
    assert_eq!((of("net1").ipv4.len(), of("net1").ipv6.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_control_plane_address_comes_from_a_pool() {
    let (bed, _player) = bed(1).await;
    let cluster = bed
        .make_cluster(&json!({
            "controlPlaneEndpoint": null,
            "controlPlaneEndpointPool": {"kind": "InClusterIPPool", "name": "vips"},
        }))
        .await;
    let endpoint = cluster.spec.control_plane_endpoint.unwrap();
    assert_eq!(
        (endpoint.host.as_deref(), endpoint.port),
        (Some("10.0.1.0"), Some(6443))
    );
    let claim: IPAddressClaim = bed.get("prod-control-plane-endpoint").await;
    assert_eq!(claim.spec.pool_ref.name, "vips");
}

#[tokio::test(start_paused = true)]
async fn bootstrap_data_goes_where_it_is_told() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1").with(&json!({"isoStorage": "nfs"})))
        .await;
    bed.until_provisioned("worker-1").await;
    let guest = bed.guest("worker-1").await;
    assert!(
        guest.config.values().any(|v| v.starts_with("nfs:iso/")),
        "{:?}",
        guest.config
    );
}

#[tokio::test(start_paused = true)]
async fn a_template_on_every_node_is_one_template_and_machines_stay_where_it_is() {
    let (bed, _player) = bed(1).await;
    for vmid in [9010, 9011, 9012] {
        bed.tag_template(0, vmid, "capi;local").await;
    }
    bed.make_cluster(&json!({})).await;
    for number in 0..3 {
        let wish = Wish::new(&format!("w-{number}")).with(&json!({
            "template": null, "templateSelector": {"matchTags": ["capi", "local"]},
        }));
        bed.make_machine(wish.control_plane()).await;
    }
    for number in 0..3 {
        bed.until_provisioned(&format!("w-{number}")).await;
    }
    let guests = bed.guests().await;
    let nodes: BTreeSet<_> = guests
        .iter()
        .filter(|g| g.name.starts_with("w-"))
        .map(|g| &g.node)
        .collect();
    assert_eq!(
        nodes.len(),
        3,
        "each on the node whose copy it was cloned from"
    );
}

#[tokio::test(start_paused = true)]
async fn control_planes_keep_apart() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    for number in 0..3 {
        bed.make_machine(Wish::new(&format!("cp-{number}")).control_plane())
            .await;
    }
    for number in 0..3 {
        bed.until_provisioned(&format!("cp-{number}")).await;
    }
    let guests = bed.guests().await;
    let nodes: BTreeSet<_> = guests
        .iter()
        .filter(|g| g.name.starts_with("cp-"))
        .map(|g| &g.node)
        .collect();
    assert_eq!(nodes.len(), 3);
    let cluster = bed
        .until::<ProxmoxCluster>("prod", "located", |cluster| {
            let locations = cluster
                .status
                .as_ref()
                .and_then(|s| s.node_locations.as_ref());
            locations.is_some_and(|l| l.control_plane.len() == 3)
        })
        .await;
    assert!(
        cluster
            .status
            .unwrap()
            .node_locations
            .unwrap()
            .workers
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn nodes_are_those_that_are_allowed_the_nearest_list_first() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({"allowedNodes": ["pve2"]})).await;
    bed.make_machine(Wish::new("a")).await;
    bed.make_machine(Wish::new("b").with(&json!({"allowedNodes": ["pve3"]})))
        .await;
    bed.make_machine(Wish::new("c").with(&json!({"nodeName": "pve1"})))
        .await;
    for (name, node) in [("a", "pve2"), ("b", "pve3"), ("c", "pve1")] {
        let machine = bed.until_provisioned(name).await;
        assert_eq!(
            machine.status.unwrap().proxmox_node.as_deref(),
            Some(node),
            "{name}"
        );
        assert_eq!(bed.guest(name).await.node, node, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn hints_say_how_much_of_a_node_is_promised_at_most() {
    let (bed, _player) = bed(1).await;
    // Percent of the 128 GiB and 32 processors that each of the three nodes has.
    let hints = |memory: u32, cpu: u32| json!({"schedulerHints": {"memoryAdjustment": memory, "cpuAdjustment": cpu}});
    bed.make_cluster(&hints(5, 0)).await;
    bed.make_machine(Wish::new("a")).await;
    bed.until_reason::<ProxmoxMachine>("a", "Ready", "WaitingForCapacity")
        .await;
    bed.change::<ProxmoxCluster>("prod", hints(0, 5)).await;
    bed.make_machine(Wish::new("b")).await;
    let machine = bed
        .until_reason::<ProxmoxMachine>("b", "Ready", "WaitingForCapacity")
        .await;
    let said = machine.status.unwrap().conditions;
    let message = &api::vm::condition(&said, "Ready").unwrap().message;
    assert!(message.contains("processors are promised"), "{message}");
    bed.change::<ProxmoxCluster>("prod", hints(0, 0)).await;
    bed.until_provisioned("a").await;
    bed.until_provisioned("b").await;
    // More than all nodes have together: nothing is counted.
    for number in 0..8 {
        let wish = Wish::new(&format!("w-{number}")).with(&json!({"memory": 65536}));
        bed.make_machine(wish).await;
    }
    for number in 0..8 {
        bed.until_provisioned(&format!("w-{number}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_moved_by_hand_says_where_it_is() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1").with(&json!({"nodeName": "pve1"})))
        .await;
    bed.until_provisioned("worker-1").await;
    bed.join("worker-1").await;
    bed.sleep(Duration::from_mins(3)).await;
    bed.migrate("worker-1", "pve2").await;
    bed.until::<ProxmoxMachine>("worker-1", "on pve2", |machine| {
        machine.status.as_ref().unwrap().proxmox_node.as_deref() == Some("pve2")
    })
    .await;
    assert_eq!(
        bed.guest("worker-1").await.node,
        "pve2",
        "and it is left there"
    );
    bed.until::<ProxmoxCluster>("prod", "knowing it", |cluster| {
        let locations = cluster
            .status
            .as_ref()
            .and_then(|s| s.node_locations.as_ref());
        locations.is_some_and(|l| l.workers[0].node == "pve2")
    })
    .await;
    bed.delete::<ProxmoxMachine>("worker-1").await;
    assert!(named(&bed.guests().await, "worker-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_template_says_what_a_machine_will_have() {
    let (bed, _player) = bed(1).await;
    bed.try_apply(&json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxMachineTemplate",
        "metadata": {"name": "workers"},
        "spec": {"template": {"spec": {"template": 9000, "cores": 2, "sockets": 2, "memory": "8Gi", "diskSize": 50}}},
    }))
    .await
    .unwrap();
    let template = bed
        .until::<ProxmoxMachineTemplate>("workers", "described", |template| {
            template.status.is_some()
        })
        .await;
    let status = template.status.unwrap();
    let capacity: Vec<_> = status
        .capacity
        .iter()
        .map(|(k, v)| (k.as_str(), v.0.as_str()))
        .collect();
    assert_eq!(
        capacity,
        [
            ("cpu", "4"),
            ("ephemeral-storage", "50Gi"),
            ("memory", "8192Mi")
        ]
    );
    assert_eq!(
        status.node_info.unwrap().architecture.as_deref(),
        Some("amd64")
    );
}
