//! Machines of Kubernetes clusters. The test plays Cluster API and the address manager; everything else is real.

use std::time::Duration;

use api::cluster_api::{Cluster, IPAddress, IPAddressClaim, Machine};
use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxMachine};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use scenarios::{Bed, Guest};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

/// The kinds of others that the provider reads, without their schemas.
const FOREIGN_KINDS: [(&str, &str, &str, &str); 5] = [
    ("cluster.x-k8s.io", "v1beta2", "Cluster", "clusters"),
    ("cluster.x-k8s.io", "v1beta2", "Machine", "machines"),
    (
        "ipam.cluster.x-k8s.io",
        "v1beta2",
        "IPAddressClaim",
        "ipaddressclaims",
    ),
    (
        "ipam.cluster.x-k8s.io",
        "v1beta2",
        "IPAddress",
        "ipaddresses",
    ),
    (
        "ipam.cluster.x-k8s.io",
        "v1alpha2",
        "InClusterIPPool",
        "inclusterippools",
    ),
];

/// A bed with Cluster API's kinds and a token for the provider on every Proxmox VE cluster.
async fn bed(clusters: usize) -> Bed {
    let bed = Bed::builder().clusters(clusters).start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(bed.client.clone());
    for (group, version, kind, plural) in FOREIGN_KINDS {
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        });
        define(&definitions, crd).await;
    }
    for crd in api::infrastructure::crds(&WebhookClientConfig::default()) {
        let mut crd = serde_json::to_value(crd).unwrap();
        // Only the stored version is used here, so nobody is asked to convert.
        crd["spec"]["conversion"] = json!({"strategy": "None"});
        define(&definitions, crd).await;
    }
    for number in 0..clusters {
        let root = bed.root_of(number);
        let id = "root@pam!capi".parse().unwrap();
        let token = root.access().create_token(&id, false, None).await.unwrap();
        let host = if number == 0 {
            "pve".to_owned()
        } else {
            format!("pve-{number}")
        };
        let secret = token.value.expose_secret();
        let manifest = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{host}-credentials")},
            "stringData": {
                "url": format!("https://{host}.example.com:8006"),
                "token": token.id.to_string(), "secret": secret,
            },
        });
        bed.try_apply(&manifest).await.unwrap();
    }
    bed
}

async fn define(definitions: &Api<CustomResourceDefinition>, crd: Value) {
    let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
    let params = PatchParams::apply("scenario").force();
    definitions
        .patch(&name, &params, &Patch::Apply(&crd))
        .await
        .unwrap();
}

/// A Cluster and its ProxmoxCluster, as far as Cluster API would have brought them.
async fn cluster(bed: &Bed, spec: Value) {
    let clusters: Api<Cluster> = bed.api();
    let cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "prod"},
        "spec": {"infrastructureRef": {
            "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ProxmoxCluster", "name": "prod",
        }},
    }))
    .unwrap();
    let cluster = clusters
        .create(&PostParams::default(), &cluster)
        .await
        .unwrap();
    let mut whole = json!({
        "controlPlaneEndpoint": {"host": "10.0.0.10", "port": 6443},
        "ipv4Config": {"addresses": ["10.0.0.11-10.0.0.50"], "prefix": 24, "gateway": "10.0.0.1"},
        "dnsServers": ["10.0.0.1"],
        "credentialsRef": {"name": "pve-credentials"},
    });
    whole
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let manifest = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxCluster",
        "metadata": {
            "name": "prod", "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
            "ownerReferences": [reference("Cluster", "prod", &cluster.uid().unwrap())],
        },
        "spec": whole,
    });
    bed.try_apply(&manifest).await.unwrap();
    bed.until::<ProxmoxCluster>("prod", "provisioned", |cluster| {
        let status = cluster.status.as_ref();
        status.and_then(|s| s.initialization.as_ref()?.provisioned) == Some(true)
    })
    .await;
    let ready = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
    clusters
        .patch_status("prod", &PatchParams::default(), &Patch::Merge(&ready))
        .await
        .unwrap();
}

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// A Machine with bootstrap data and its ProxmoxMachine.
async fn machine(bed: &Bed, name: &str, spec: Value) {
    let data = format!("#cloud-config\nhostname: {name}\n");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{name}-bootstrap")},
        "stringData": {"value": data, "format": "cloud-config"},
    });
    bed.try_apply(&secret).await.unwrap();
    let machines: Api<Machine> = bed.api();
    let object: Machine = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": name},
        "spec": {
            "clusterName": "prod", "version": "v1.36.4",
            "bootstrap": {"dataSecretName": format!("{name}-bootstrap")},
        },
    }))
    .unwrap();
    let made = machines
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    let mut whole = json!({
        "template": "ubuntu-24-04", "cores": 4, "memory": 8192, "diskSize": 50, "full": false,
    });
    whole
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let manifest = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxMachine",
        "metadata": {
            "name": name, "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
            "ownerReferences": [reference("Machine", name, &made.uid().unwrap())],
        },
        "spec": whole,
    });
    bed.try_apply(&manifest).await.unwrap();
}

/// Gives every claim the next address, as an address manager would.
async fn give_addresses(bed: &Bed, count: u8) {
    let claims: Api<IPAddressClaim> = bed.api();
    let addresses: Api<IPAddress> = bed.api();
    let mut given = 0;
    while given < count {
        bed.sleep(Duration::from_secs(1)).await;
        for claim in claims
            .list(&kube::api::ListParams::default())
            .await
            .unwrap()
        {
            let name = claim.name_any();
            if claim
                .status
                .as_ref()
                .is_some_and(|status| status.address_ref.is_some())
            {
                continue;
            }
            let address: IPAddress = serde_json::from_value(json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
                "metadata": {"name": name},
                "spec": {
                    "address": format!("10.0.0.{}", 11 + given), "prefix": 24, "gateway": "10.0.0.1",
                    "claimRef": {"name": name}, "poolRef": claim.spec.pool_ref,
                },
            }))
            .unwrap();
            addresses
                .create(&PostParams::default(), &address)
                .await
                .unwrap();
            let status = json!({"status": {"addressRef": {"name": name}}});
            claims
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
                .await
                .unwrap();
            given += 1;
        }
    }
}

async fn until_provisioned(bed: &Bed, name: &str) -> ProxmoxMachine {
    bed.until::<ProxmoxMachine>(name, "provisioned", |machine| {
        let status = machine.status.as_ref();
        status.and_then(|s| s.initialization.as_ref()?.provisioned) == Some(true)
    })
    .await
}

fn named<'a>(guests: &'a [Guest], name: &str) -> &'a Guest {
    guests.iter().find(|guest| guest.name == name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_machine_becomes_a_guest_with_its_address_and_is_known_by_its_uuid() {
    let bed = bed(1).await;
    cluster(&bed, json!({})).await;
    machine(&bed, "worker-1", json!({})).await;
    give_addresses(&bed, 1).await;
    let machine = until_provisioned(&bed, "worker-1").await;

    let guests = bed.guests().await;
    let guest = named(&guests, "worker-1");
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
        [("Hostname", "worker-1"), ("InternalIP", "10.0.0.11")]
    );
}

#[tokio::test(start_paused = true)]
async fn bootstrap_data_leaves_the_storage_when_the_node_has_joined() {
    let bed = bed(1).await;
    cluster(&bed, json!({})).await;
    machine(&bed, "worker-1", json!({})).await;
    give_addresses(&bed, 1).await;
    until_provisioned(&bed, "worker-1").await;
    bed.sleep(Duration::from_mins(5)).await;
    let isos = |guest: &Guest| guest.config.values().filter(|v| v.contains(".iso")).count();
    assert_eq!(
        isos(&bed.guest("worker-1").await),
        1,
        "kept until the node has joined"
    );

    let joined = json!({"status": {"nodeRef": {"name": "worker-1"}}});
    let machines: Api<Machine> = bed.api();
    machines
        .patch_status("worker-1", &PatchParams::default(), &Patch::Merge(&joined))
        .await
        .unwrap();
    bed.sleep(Duration::from_mins(5)).await;
    assert_eq!(isos(&bed.guest("worker-1").await), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_machine_leaves_nothing_on_proxmox() {
    let bed = bed(1).await;
    let before = bed.guests().await;
    cluster(&bed, json!({})).await;
    machine(&bed, "worker-1", json!({})).await;
    give_addresses(&bed, 1).await;
    until_provisioned(&bed, "worker-1").await;
    bed.delete::<ProxmoxMachine>("worker-1").await;
    assert_eq!(bed.guests().await, before);
}

#[tokio::test(start_paused = true)]
async fn machines_spread_evenly_over_two_proxmox_clusters() {
    let bed = bed(2).await;
    cluster(
        &bed,
        json!({"settings": {"mode": "MultiInstance", "instances": [
            {"name": "txl", "credentialsRef": {"name": "pve-credentials"}},
            {"name": "fra", "credentialsRef": {"name": "pve-1-credentials"}},
        ]}}),
    )
    .await;
    for name in ["a", "b", "c", "d"] {
        machine(&bed, name, json!({})).await;
        bed.until::<ProxmoxMachine>(name, "on an instance", |machine| {
            machine.spec.instance.is_some()
        })
        .await;
    }
    give_addresses(&bed, 4).await;
    for name in ["a", "b", "c", "d"] {
        until_provisioned(&bed, name).await;
    }
    for number in 0..2 {
        let guests = bed.guests_of(number).await;
        let ours = guests
            .iter()
            .filter(|guest| ["a", "b", "c", "d"].contains(&guest.name.as_str()));
        assert_eq!(ours.count(), 2, "cluster {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_is_left_alone() {
    let bed = bed(1).await;
    cluster(&bed, json!({})).await;
    let before = bed.guests().await;
    let paused = json!({"spec": {"paused": true}});
    let clusters: Api<Cluster> = bed.api();
    clusters
        .patch("prod", &PatchParams::default(), &Patch::Merge(&paused))
        .await
        .unwrap();
    machine(&bed, "worker-1", json!({})).await;
    bed.until_reason::<ProxmoxMachine>("worker-1", "Paused", "Paused")
        .await;
    bed.sleep(Duration::from_mins(10)).await;
    assert_eq!(bed.guests().await, before);
}
