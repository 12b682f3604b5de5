//! What single machines have, lose and keep.

use std::time::Duration;

use api::cluster_api::IPAddressClaim;
use api::infrastructure::v1beta1::{ProxmoxMachine, ProxmoxMachineTemplate};
use api::vm::condition;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use scenarios::Wish;
use serde_json::json;

use super::{bed, named, two};

fn is_ready(machine: &ProxmoxMachine) -> bool {
    let conditions = machine.status.iter().flat_map(|s| &s.conditions);
    let conditions: Vec<_> = conditions.cloned().collect();
    condition(&conditions, "Ready").is_some_and(|ready| ready.status == "True")
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_has_read_its_bootstrap_data_does_not_need_it_any_more() {
    let (mut bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1")).await;
    bed.until_provisioned("worker-1").await;
    bed.api::<Secret>()
        .delete("worker-1-bootstrap", &DeleteParams::default())
        .await
        .unwrap();
    // Nothing of it is remembered by a process either.
    bed.crash_operator().await;
    bed.start_operator();
    bed.join("worker-1").await;
    bed.sleep(Duration::from_mins(5)).await;
    let machine: ProxmoxMachine = bed.get("worker-1").await;
    assert!(is_ready(&machine), "{:#?}", machine.status);
    assert_eq!(bed.first_boot_images(0).await, Vec::<String>::new());
    // And it is still looked after.
    bed.change::<ProxmoxMachine>("worker-1", json!({"cores": 2}))
        .await;
    bed.sleep(Duration::from_mins(1)).await;
    assert_eq!(bed.guest("worker-1").await.key("cores"), "2");
}

#[tokio::test(start_paused = true)]
async fn tags_of_the_template_and_of_people_stay_on_a_machine() {
    let (bed, _player) = bed(1).await;
    bed.tag_template(0, 9000, "capi;v1.36").await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("worker-1").with(&json!({"tags": ["Prod"]})))
        .await;
    bed.until_provisioned("worker-1").await;
    let guest = bed.guest("worker-1").await;
    assert_eq!(guest.key("tags"), "capi;ip_net0_10.0.1.0;prod;v1.36");
    bed.configure(&guest, "tags", "capi;ip_net0_10.0.1.0;mine;v1.36")
        .await;
    bed.sleep(Duration::from_mins(5)).await;
    let tags = bed.guest("worker-1").await.key("tags").to_owned();
    assert_eq!(tags, "capi;ip_net0_10.0.1.0;mine;prod;v1.36");
}

#[tokio::test(start_paused = true)]
async fn pci_devices_are_given_by_their_mapping() {
    let (bed, _player) = bed(1).await;
    bed.map_pci(0, "gpu", &["pve2", "pve3"]).await;
    bed.map_pci(0, "nic", &["pve1", "pve2"]).await;
    bed.make_cluster(&json!({})).await;
    let wish = Wish::new("worker-1").with(&json!({
        "hardware": {"machine": "q35", "pciDevices": [
            {"mapping": "gpu", "pcie": true, "primaryGPU": true},
            {"mapping": "nic", "romBar": false},
        ]},
    }));
    bed.make_machine(wish).await;
    bed.until_provisioned("worker-1").await;
    let guest = bed.guest("worker-1").await;
    let items = |key: &str| {
        let mut items: Vec<_> = guest.key(key).split(',').map(str::to_owned).collect();
        items.sort();
        items
    };
    assert_eq!(items("hostpci0"), ["mapping=gpu", "pcie=1", "x-vga=1"]);
    assert_eq!(items("hostpci1"), ["mapping=nic", "pcie=0", "rombar=0"]);
    assert_eq!(guest.node, "pve2", "the only one that has both");
}

/// A worker with a device of the mapping `gpu`.
fn with_gpu(name: &str) -> Wish {
    Wish::new(name).with(&json!({"hardware": {"pciDevices": [{"mapping": "gpu"}]}}))
}

#[tokio::test(start_paused = true)]
async fn a_device_is_given_to_one_machine_and_the_next_waits_until_it_is_free() {
    let (bed, _player) = bed(1).await;
    bed.map_pci(0, "gpu", &["pve2", "pve3"]).await;
    bed.make_cluster(&json!({})).await;
    for name in ["a", "b"] {
        bed.make_machine(with_gpu(name)).await;
        bed.until_provisioned(name).await;
        bed.join(name).await;
        bed.sleep(Duration::from_mins(1)).await;
    }
    let nodes = [bed.guest("a").await.node, bed.guest("b").await.node];
    assert!(
        nodes.contains(&"pve2".to_owned()) && nodes.contains(&"pve3".to_owned()),
        "{nodes:?}"
    );
    bed.make_machine(with_gpu("c")).await;
    let machine = bed
        .until_reason::<ProxmoxMachine>("c", "Ready", "WaitingForCapacity")
        .await;
    let said = machine.status.unwrap().conditions;
    let message = &condition(&said, "Ready").unwrap().message;
    for part in [
        "pve1: has no device of the PCI mapping 'gpu'",
        "pve2: other guests have 1 of its 1 devices",
    ] {
        assert!(message.contains(part), "{message}");
    }
    bed.delete::<ProxmoxMachine>("a").await;
    bed.until_provisioned("c").await;
    assert_eq!(bed.guest("c").await.node, nodes[0]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_a_device_goes_to_the_instance_that_has_it() {
    let (bed, _player) = bed(2).await;
    bed.map_pci(1, "gpu", &["pve1", "pve2", "pve3"]).await;
    bed.make_cluster(&two("MultiInstance")).await;
    for name in ["a", "b", "c"] {
        bed.make_machine(with_gpu(name)).await;
        let machine = bed.until_provisioned(name).await;
        assert_eq!(machine.spec.instance.as_deref(), Some("fra"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_default_address_without_a_pool_is_refused_with_the_way_out() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({"ipv4Config": null})).await;
    let device = |more: serde_json::Value| {
        let mut device = json!({"name": "net0", "bridge": "vmbr0"});
        for (key, value) in more.as_object().unwrap() {
            device[key] = value.clone();
        }
        json!({"network": {"networkDevices": [device]}})
    };
    let wish = Wish::new("worker-1").with(&device(json!({"defaultIPv4": true})));
    bed.make_machine(wish).await;
    let machine = bed
        .until_reason::<ProxmoxMachine>("worker-1", "Ready", "NetworkInvalid")
        .await;
    let said = machine.status.unwrap().conditions;
    let message = &condition(&said, "Ready").unwrap().message;
    for word in ["defaultIPv4", "ipv4Config", "dhcp4: true"] {
        assert!(message.contains(word), "{message}");
    }
    assert!(named(&bed.guests().await, "worker-1").is_none());
    assert!(bed.names::<IPAddressClaim>().await.is_empty());
    // The way out.
    bed.make_machine(Wish::new("worker-2").with(&device(json!({"dhcp4": true}))))
        .await;
    bed.until_provisioned("worker-2").await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_switched_off_at_once_unless_it_is_given_time() {
    let (bed, _player) = bed(1).await;
    bed.make_cluster(&json!({})).await;
    bed.make_machine(Wish::new("hasty")).await;
    bed.make_machine(Wish::new("calm").with(&json!({"shutdownTimeoutSeconds": 120})))
        .await;
    bed.until_provisioned("hasty").await;
    bed.until_provisioned("calm").await;
    let asked = |how: &str| bed.count(&format!("POST /nodes/{{node}}/qemu/{{vmid}}/status/{how}"));
    bed.delete::<ProxmoxMachine>("hasty").await;
    assert_eq!((asked("stop"), asked("shutdown")), (1, 0));
    bed.delete::<ProxmoxMachine>("calm").await;
    assert_eq!((asked("stop"), asked("shutdown")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_template_leaves_open_is_said_as_the_smallest_of_its_sources_gives_it() {
    let (bed, _player) = bed(2).await;
    let cluster = bed.make_cluster(&two("MultiInstance")).await;
    let source = bed.guests_of(1).await;
    let source = source.iter().find(|guest| guest.vmid == 9000).unwrap();
    let node = bed.root_of(1).node(&source.node.parse().unwrap());
    let change = pve::GuestConfig::new()
        .with("cores", 1)
        .with("sockets", 1)
        .with("memory", 1024);
    node.qemu("9000".parse().unwrap())
        .configure(&pve::ConfigChange::set(change))
        .await
        .unwrap();
    bed.sleep(Duration::from_mins(1)).await;
    bed.try_apply(&json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxMachineTemplate",
        "metadata": {"name": "open", "labels": {"cluster.x-k8s.io/cluster-name": cluster.name_any()}},
        "spec": {"template": {"spec": {"template": "ubuntu-24-04"}}},
    }))
    .await
    .unwrap();
    let template = bed
        .until::<ProxmoxMachineTemplate>("open", "described", |template| {
            let status = template.status.as_ref();
            status.is_some_and(|status| status.capacity.contains_key("memory"))
        })
        .await;
    let capacity = template.status.unwrap().capacity;
    assert_eq!(capacity["cpu"].0, "1");
    assert_eq!(capacity["memory"].0, "1024Mi");
}
