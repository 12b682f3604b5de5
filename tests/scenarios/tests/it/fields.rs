//! Every field of a machine reaches the guest.

use api::vm::{VMClass, VirtualMachine};
use serde_json::json;

use crate::{manifest, prepared, with_machine};

#[tokio::test(start_paused = true)]
async fn several_networks_arrive_as_documented() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClass
metadata: { name: medium }
spec: { cpus: 4, memory: 8Gi }
",
    )
    .await;
    bed.apply(manifest!("multi-nic")).await;
    let machine: VirtualMachine = bed.until_ready("multi-nic-vm").await;
    let guest = bed.guest("multi-nic-vm").await;
    assert!(
        guest.key("net0").contains("bridge=vmbr0"),
        "{}",
        guest.key("net0")
    );
    assert!(
        guest.key("net1").contains("bridge=vmbr1") && guest.key("net1").contains("tag=100"),
        "{}",
        guest.key("net1")
    );
    assert!(
        guest.key("net2").contains("bridge=vmbr2"),
        "{}",
        guest.key("net2")
    );
    assert!(
        guest
            .key("net2")
            .to_uppercase()
            .contains("02:00:00:AA:BB:CC"),
        "{}",
        guest.key("net2")
    );
    let status = machine.status.unwrap();
    assert!(
        status.ips.contains(&"192.168.1.100".to_owned()),
        "{:?}",
        status.ips
    );
    assert!(
        status.ips.contains(&"10.0.100.50".to_owned()),
        "{:?}",
        status.ips
    );
    assert_eq!(status.networks.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn everything_that_can_be_said_about_a_machine_is_done() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VirtualMachine
metadata:
  name: full
spec:
  imageRef: { name: ubuntu-22 }
  cpus: 4
  memory: 2Gi
  description: the kitchen sink
  tags: [blue, web]
  onBoot: true
  startup: { order: 3, upDelaySeconds: 10 }
  hardware:
    cpu: { type: host, sockets: 2, units: 200, limit: 1.5, numa: true }
    memory: { balloonMin: 1Gi }
    osType: l26
    rng: { source: /dev/urandom }
    serialPorts: [socket]
    vga: { type: serial0 }
  networks:
    - { name: lan, model: e1000, vlan: 7, rateLimit: 50, firewall: true }
    - { name: dmz, mtu: 1400 }
  disks:
    - { name: root, size: 20Gi, discard: true, ssd: true }
    - { name: data, size: 5Gi, storage: local-lvm, cache: writeback, backup: false }
",
    )
    .await;
    bed.until_ready::<VirtualMachine>("full").await;
    let guest = bed.guest("full").await;
    assert_eq!(
        (
            guest.key("cores"),
            guest.key("sockets"),
            guest.key("memory")
        ),
        ("2", "2", "2048")
    );
    assert_eq!(
        (
            guest.key("cpulimit"),
            guest.key("cpuunits"),
            guest.key("numa")
        ),
        ("1.5", "200", "1")
    );
    assert!(guest.key("cpu").contains("host"), "{}", guest.key("cpu"));
    assert_eq!((guest.key("balloon"), guest.key("ostype")), ("1024", "l26"));
    assert_eq!(
        (guest.key("onboot"), guest.key("vga"), guest.key("serial0")),
        ("1", "serial0", "socket")
    );
    assert!(
        guest.key("startup").contains("3,up=10"),
        "{}",
        guest.key("startup")
    );
    assert!(guest.key("tags").contains("blue") && guest.key("tags").contains("web"));
    assert!(guest.key("description").contains("the kitchen sink"));
    let net = guest.key("net0");
    for part in ["e1000", "tag=7", "rate=50", "firewall=1"] {
        assert!(net.contains(part), "{part} is not in {net}");
    }
    assert!(guest.key("net1").contains("mtu=1400"));
    assert!(
        guest.key("scsi0").contains("discard=on") && guest.key("scsi0").contains("ssd=1"),
        "{}",
        guest.key("scsi0")
    );
    let data = guest.key("scsi1");
    for part in ["local-lvm:", "size=5G", "cache=writeback", "backup=0"] {
        assert!(data.contains(part), "{part} is not in {data}");
    }
}

#[tokio::test(start_paused = true)]
async fn disks_grow_while_the_guest_runs_and_never_shrink() {
    let bed = with_machine().await;
    let resize = |size: &str| json!({ "disks": [{ "name": "root", "size": size }] });
    bed.change::<VirtualMachine>("web-server", resize("60Gi"))
        .await;
    bed.until_ready::<VirtualMachine>("web-server").await;
    assert!(
        bed.guest("web-server")
            .await
            .key("scsi0")
            .contains("size=60G")
    );
    bed.change::<VirtualMachine>("web-server", resize("10Gi"))
        .await;
    bed.until_reason::<VirtualMachine>("web-server", "Ready", "InvalidSpec")
        .await;
    assert!(
        bed.guest("web-server")
            .await
            .key("scsi0")
            .contains("size=60G")
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_with_a_storage_puts_disks_there() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClass
metadata: { name: fast }
spec: { cpus: 1, memory: 1Gi, storage: { class: local-lvm, type: thin } }
---
apiVersion: infra.virtrigaud.io/v1beta1
kind: VirtualMachine
metadata: { name: on-lvm }
spec:
  classRef: { name: fast }
  imageRef: { name: ubuntu-22 }
",
    )
    .await;
    bed.until_ready::<VirtualMachine>("on-lvm").await;
    let guest = bed.guest("on-lvm").await;
    assert!(
        guest.key("scsi0").starts_with("local-lvm:"),
        "{}",
        guest.key("scsi0")
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_refers_to_and_what_is_wrong_with_it_is_said() {
    let bed = prepared().await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VirtualMachine
metadata: { name: lost }
spec:
  classRef: { name: nowhere }
  imageRef: { name: ubuntu-22 }
  networks: [{ name: backstage }]
",
    )
    .await;
    bed.until_reason::<VirtualMachine>("lost", "Ready", "ClassNotFound")
        .await;
    bed.apply(
        "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClass
metadata: { name: nowhere }
spec: { cpus: 1, memory: 512Mi }
",
    )
    .await;
    let machine: VirtualMachine = bed.until_reason("lost", "Ready", "InvalidSpec").await;
    let ready = api::vm::condition(&machine.status.unwrap().conditions, "Ready")
        .unwrap()
        .clone();
    assert!(
        ready.message.contains("backstage") && ready.message.contains("spec.networks"),
        "{}",
        ready.message
    );
    bed.change::<VirtualMachine>("lost", json!({ "networks": [{ "name": "lan" }] }))
        .await;
    bed.until_ready::<VirtualMachine>("lost").await;
    bed.delete::<VMClass>("nowhere").await;
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_has_from_its_origin_need_not_be_given_with_the_rest() {
    let bed = prepared().await;
    let machine = |name: &str, spec: serde_json::Value| {
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
            "metadata": { "name": name }, "spec": spec,
        })
    };
    for (number, origin) in [
        json!({ "adopt": { "vmid": 100 } }),
        json!({ "cloneFrom": { "vmRef": { "name": "web-server" } } }),
        json!({ "restoreFrom": { "backupRef": { "name": "nightly" } } }),
    ]
    .into_iter()
    .enumerate()
    {
        for (field, value) in [("cpus", json!(2)), ("memory", json!("2Gi"))] {
            let mut spec = origin.clone();
            spec[field] = value;
            let one = machine(&format!("{field}-{number}"), spec);
            bed.try_apply(&one).await.unwrap();
        }
    }
    for (field, value) in [("cpus", json!(2)), ("memory", json!("2Gi"))] {
        let mut spec = json!({ "imageRef": { "name": "ubuntu-22" } });
        spec[field] = value;
        let refused = bed.try_apply(&machine("half", spec)).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("both cpus and memory"), "{refused}");
    }
}
