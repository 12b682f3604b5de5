//! Cluster API and its address manager, played.
//!
//! Both are other people's programs. What they do to our objects is little and well known: they write Clusters and Machines that
//! own our objects, labels, bootstrap Secrets, addresses for claims and, once a node has joined, its reference. A [`Player`]
//! does that for a whole test; everything else is real.

mod lives;

use std::collections::BTreeSet;
use std::time::Duration;

use api::cluster_api::{Cluster, IPAddress, IPAddressClaim, Machine};
use api::infrastructure::v1beta1::{ProxmoxCluster, ProxmoxMachine};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Bed;

pub use lives::simulate_clusters;

/// A machine to be made, as a MachineDeployment or a control plane would have it.
#[derive(Clone, Debug)]
pub struct Wish {
    name: String,
    spec: Value,
    labels: Value,
    failure_domain: Option<String>,
    data: String,
    format: Option<String>,
}

impl Wish {
    /// A worker with a plain spec.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            spec: json!({
                "template": "ubuntu-24-04", "cores": 4, "memory": 8192, "diskSize": 50, "full": false,
            }),
            labels: json!({}),
            failure_domain: None,
            data: format!("#cloud-config\nhostname: {name}\n"),
            format: Some("cloud-config".to_owned()),
        }
    }

    /// With these fields of the spec; null takes one away.
    #[must_use]
    pub fn with(mut self, spec: &Value) -> Self {
        for (key, value) in spec.as_object().unwrap() {
            self.spec[key] = value.clone();
        }
        self.spec
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        self
    }

    /// Of the control plane.
    #[must_use]
    pub fn control_plane(mut self) -> Self {
        self.labels["cluster.x-k8s.io/control-plane"] = json!("");
        self
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels[key] = json!(value);
        self
    }

    /// In a failure domain.
    #[must_use]
    pub fn failure_domain(mut self, name: &str) -> Self {
        self.failure_domain = Some(name.to_owned());
        self
    }

    /// With other bootstrap data; without a format the Secret does not say what it is.
    #[must_use]
    pub fn bootstrap(mut self, data: &str, format: Option<&str>) -> Self {
        data.clone_into(&mut self.data);
        self.format = format.map(str::to_owned);
        self
    }
}

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

impl Bed {
    /// Installs Cluster API's kinds and ours, and makes a token and a Secret for every Proxmox VE cluster:
    /// `pve-credentials`, `pve-1-credentials`, …
    pub async fn install_cluster_api(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let define = async |crd: Value| {
            let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
            let params = PatchParams::apply("scenario").force();
            definitions
                .patch(&name, &params, &Patch::Apply(&crd))
                .await
                .unwrap();
        };
        for crd in api::cluster_api::stand_ins() {
            define(serde_json::to_value(crd).unwrap()).await;
        }
        for crd in api::infrastructure::crds(&WebhookClientConfig::default()) {
            let mut crd = serde_json::to_value(crd).unwrap();
            // Only the stored version is used here, so nobody is asked to convert.
            crd["spec"]["conversion"] = json!({"strategy": "None"});
            let versions = crd["spec"]["versions"].as_array_mut().unwrap();
            versions.retain(|version| version["storage"] == true);
            define(crd).await;
        }
        for number in 0..self.cluster_count() {
            let id = "root@pam!capi".parse().unwrap();
            let root = self.root_of(number);
            let token = root.access().create_token(&id, false, None).await.unwrap();
            let host = match number {
                0 => "pve".to_owned(),
                number => format!("pve-{number}"),
            };
            self.try_apply(&json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{host}-credentials")},
                "stringData": {
                    "url": format!("https://{host}.example.com:8006"),
                    "token": token.id.to_string(), "secret": token.value.expose_secret(),
                },
            }))
            .await
            .unwrap();
        }
    }

    /// Makes a Cluster and its ProxmoxCluster, both named `prod`, without waiting for anything.
    pub async fn begin_cluster(&self, spec: &Value) {
        let clusters: Api<Cluster> = self.api();
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
            "ipv4Config": {"addresses": ["10.0.1.0-10.0.8.255"], "prefix": 20, "gateway": "10.0.0.1"},
            "dnsServers": ["10.0.0.1"],
            "credentialsRef": {"name": "pve-credentials"},
        });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        whole
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        self.try_apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxCluster",
            "metadata": {
                "name": "prod", "labels": {"cluster.x-k8s.io/cluster-name": "prod"},
                "ownerReferences": [reference("Cluster", "prod", &cluster.uid().unwrap())],
            },
            "spec": whole,
        }))
        .await
        .unwrap();
    }

    /// Makes a Cluster and its ProxmoxCluster, waits until that is provisioned and has Cluster API take note.
    pub async fn make_cluster(&self, spec: &Value) -> ProxmoxCluster {
        self.begin_cluster(spec).await;
        self.cluster_provisioned().await
    }

    /// Waits until the ProxmoxCluster is provisioned and has Cluster API take note.
    pub async fn cluster_provisioned(&self) -> ProxmoxCluster {
        let made = self
            .until::<ProxmoxCluster>("prod", "provisioned", |cluster| {
                let status = cluster.status.as_ref();
                status.and_then(|s| s.initialization.as_ref()?.provisioned) == Some(true)
            })
            .await;
        let ready = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        self.api::<Cluster>()
            .patch_status("prod", &PatchParams::default(), &Patch::Merge(&ready))
            .await
            .unwrap();
        made
    }

    /// Makes a Machine with bootstrap data, and its ProxmoxMachine.
    pub async fn make_machine(&self, wish: Wish) {
        let name = &wish.name;
        let mut entries = json!({"value": wish.data});
        if let Some(format) = &wish.format {
            entries["format"] = json!(format);
        }
        self.try_apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{name}-bootstrap")},
            "stringData": entries,
        }))
        .await
        .unwrap();
        let object: Machine = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": name},
            "spec": {
                "clusterName": "prod", "version": "v1.36.4",
                "bootstrap": {"dataSecretName": format!("{name}-bootstrap")},
                "failureDomain": wish.failure_domain,
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ProxmoxMachine", "name": name,
                },
            },
        }))
        .unwrap();
        let machines: Api<Machine> = self.api();
        let made = machines
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let mut labels = wish.labels.clone();
        labels["cluster.x-k8s.io/cluster-name"] = json!("prod");
        self.try_apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxMachine",
            "metadata": {
                "name": name, "labels": labels,
                "ownerReferences": [reference("Machine", name, &made.uid().unwrap())],
            },
            "spec": wish.spec,
        }))
        .await
        .unwrap();
    }

    /// Waits until a machine is provisioned.
    pub async fn until_provisioned(&self, name: &str) -> ProxmoxMachine {
        self.until::<ProxmoxMachine>(name, "provisioned", |machine| {
            let status = machine.status.as_ref();
            status.and_then(|s| s.initialization.as_ref()?.provisioned) == Some(true)
        })
        .await
    }

    /// The node of a machine has joined.
    pub async fn join(&self, name: &str) {
        let joined = json!({"status": {"nodeRef": {"name": name}}});
        self.api::<Machine>()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&joined))
            .await
            .unwrap();
    }

    /// Pauses a Cluster, or lets it go on.
    pub async fn pause(&self, paused: bool) {
        let patch = json!({"spec": {"paused": paused}});
        self.api::<Cluster>()
            .patch("prod", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// Plays the address manager, the garbage collector and who takes note of machines for as long as the player lives.
    pub fn play_cluster_api(&self) -> Player {
        Player(tokio::spawn(play(self.client.clone())))
    }
}

/// Plays others' parts until it is dropped.
#[derive(Debug)]
pub struct Player(JoinHandle<()>);

impl Drop for Player {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn play(client: Client) {
    let mut given = 0_u16;
    loop {
        given = give_addresses(&client, given).await;
        collect(&client).await;
        take_note(&client).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Gives every claim the next address; IPv6 to pools that are called so.
async fn give_addresses(client: &Client, mut given: u16) -> u16 {
    let claims: Api<IPAddressClaim> = Api::namespaced(client.clone(), "default");
    let addresses: Api<IPAddress> = Api::namespaced(client.clone(), "default");
    for claim in claims.list(&ListParams::default()).await.unwrap() {
        let name = claim.name_any();
        let done = claim
            .status
            .as_ref()
            .is_some_and(|s| s.address_ref.is_some());
        if done || claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let [high, low] = given.to_be_bytes();
        let (address, prefix, gateway) = if claim.spec.pool_ref.name.contains("v6") {
            (
                format!("2001:db8::{:x}", u32::from(given) + 0x100),
                64,
                "2001:db8::1",
            )
        } else {
            (format!("10.0.{}.{low}", high + 1), 20, "10.0.0.1")
        };
        let object: IPAddress = serde_json::from_value(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
            "metadata": {"name": name},
            "spec": {
                "address": address, "prefix": prefix, "gateway": gateway,
                "claimRef": {"name": name}, "poolRef": claim.spec.pool_ref,
            },
        }))
        .unwrap();
        // One that is left of a former claim of this name goes first.
        let _ = addresses.delete(&name, &DeleteParams::default()).await;
        addresses
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let status = json!({"status": {"addressRef": {"name": name}}});
        let params = PatchParams::default();
        let _ = claims
            .patch_status(&name, &params, &Patch::Merge(&status))
            .await;
        given += 1;
    }
    given
}

/// Writes into Machines that what they stand for is provisioned.
async fn take_note(client: &Client) {
    let ours: Api<ProxmoxMachine> = Api::namespaced(client.clone(), "default");
    let machines: Api<Machine> = Api::namespaced(client.clone(), "default");
    let everything = ListParams::default();
    let provisioned: BTreeSet<String> = ours
        .list(&everything)
        .await
        .unwrap()
        .iter()
        .filter(|machine| {
            let status = machine.status.as_ref();
            status.and_then(|s| s.initialization.as_ref()?.provisioned) == Some(true)
        })
        .map(kube::ResourceExt::name_any)
        .collect();
    for machine in machines.list(&everything).await.unwrap() {
        let status = machine.status.as_ref();
        let noted = status.is_some_and(|status| status.initialization.is_some());
        if !noted && provisioned.contains(&machine.name_any()) {
            let note = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
            let _ = machines
                .patch_status(
                    &machine.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(&note),
                )
                .await;
        }
    }
}

/// Removes claims whose machine is gone, and the addresses of claims that are.
async fn collect(client: &Client) {
    let everything = ListParams::default();
    let machines: Api<ProxmoxMachine> = Api::namespaced(client.clone(), "default");
    let claims: Api<IPAddressClaim> = Api::namespaced(client.clone(), "default");
    let addresses: Api<IPAddress> = Api::namespaced(client.clone(), "default");
    let owners: BTreeSet<String> = machines
        .list(&everything)
        .await
        .unwrap()
        .iter()
        .filter_map(kube::ResourceExt::uid)
        .collect();
    let mut left = BTreeSet::new();
    for claim in claims.list(&everything).await.unwrap() {
        if is_orphan(&claim, &owners) {
            let _ = claims
                .delete(&claim.name_any(), &DeleteParams::default())
                .await;
        } else {
            left.insert(claim.name_any());
        }
    }
    for address in addresses.list(&everything).await.unwrap() {
        if !left.contains(&address.name_any()) {
            let _ = addresses
                .delete(&address.name_any(), &DeleteParams::default())
                .await;
        }
    }
}

/// Whether all machines a claim was made for are gone.
fn is_orphan(claim: &IPAddressClaim, machines: &BTreeSet<String>) -> bool {
    let mut owners = claim
        .owner_references()
        .iter()
        .filter(|owner| owner.kind == "ProxmoxMachine")
        .peekable();
    owners.peek().is_some() && !owners.any(|owner| machines.contains(&owner.uid))
}
