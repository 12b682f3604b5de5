//! Two simulated Proxmox VE clusters, an API server with Cluster API's kinds, and the controllers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::cluster_api::{Cluster as CapiCluster, Machine};
use api::infrastructure::v1beta1::ProxmoxCluster;
use axum::http::{Method, Request};
use controllers::{Clock, ConnectError, Connection, Connector, Options};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use pve_sim::{Cluster, Simulator, WorldFile};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::system::{Setting, WORLD};
use super::player::Player;

/// How many Proxmox VE clusters there are.
const CLUSTERS: u64 = 2;
/// Everything that is measured.
pub(super) struct World {
    /// The Kubernetes API, as a user sees it.
    pub(super) client: Client,
    clusters: Vec<Cluster>,
    kubernetes: Arc<Kubernetes>,
    _simulators: Vec<Simulator>,
    _server: apiserver::InMemory,
    _player: Player,
    _stop: DropGuard,
}

impl World {
    /// Starts everything and waits until the ProxmoxCluster `bench` is provisioned.
    pub(super) async fn start(setting: &Setting) -> Result<Self> {
        let mut simulators = Vec::new();
        for number in 0..CLUSTERS {
            simulators.push(simulator(setting, number)?);
        }
        let clusters = simulators
            .iter()
            .map(|simulator| simulator.clusters().next().cloned())
            .collect::<Option<Vec<_>>>()
            .context("a simulated world has no cluster")?;
        let clock = Clock::starting_at(Clock::system().now());
        let server = apiserver::InMemory::with(apiserver::Clock::at(clock.now()), setting.seed);
        let client = Client::new(server.service(), "default");
        install(&client).await?;
        let kubernetes = Arc::<Kubernetes>::default();
        let stop = CancellationToken::new();
        let counted = Counted {
            inner: server.service(),
            kubernetes: kubernetes.clone(),
        };
        let options = Options {
            connector: connector(&clusters),
            clock,
            ..Options::default()
        };
        tokio::spawn(controllers::run(
            Client::new(counted, "default"),
            options,
            stop.clone(),
        ));
        let world = Self {
            _player: Player::start(client.clone()),
            client,
            clusters,
            kubernetes,
            _simulators: simulators,
            _server: server,
            _stop: stop.drop_guard(),
        };
        world.cluster().await?;
        Ok(world)
    }

    async fn cluster(&self) -> Result<()> {
        let mut instances = Vec::new();
        for (number, cluster) in self.clusters.iter().enumerate() {
            let root = root(cluster)?;
            let token = root
                .access()
                .create_token(&"root@pam!bench".parse()?, false, None)
                .await?;
            let name = format!("pve-{number}");
            self.apply(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
                "stringData": {
                    "url": format!("https://{name}.invalid:8006"), "insecure": "true",
                    "token": token.id.to_string(),
                    "secret": secrecy::ExposeSecret::expose_secret(&token.value),
                },
            }))
            .await?;
            instances.push(json!({"name": name, "credentialsRef": {"name": name}}));
        }
        self.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "bench"},
            "spec": {"infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ProxmoxCluster", "name": "bench",
            }},
        }))
        .await?;
        let clusters: Api<CapiCluster> = Api::default_namespaced(self.client.clone());
        let uid = clusters.get("bench").await?.uid();
        let owner = owner("Cluster", "bench", uid.as_deref());
        self.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxCluster",
            "metadata": {
                "name": "bench", "ownerReferences": [owner],
                "labels": {"cluster.x-k8s.io/cluster-name": "bench"},
            },
            "spec": {
                "controlPlaneEndpoint": {"host": "10.0.0.10", "port": 6443},
                "ipv4Config": {"addresses": ["10.0.1.0-10.0.8.255"], "prefix": 20, "gateway": "10.0.0.1"},
                "dnsServers": ["10.0.0.1"],
                "settings": {"mode": "MultiInstance", "instances": instances},
            },
        }))
        .await?;
        let api: Api<ProxmoxCluster> = Api::default_namespaced(self.client.clone());
        for _ in 0..600 {
            let status = api.get("bench").await?.status.unwrap_or_default();
            let ready = status
                .instances
                .iter()
                .filter(|i| i.ready == Some(true))
                .count();
            if status.ready == Some(true) && ready == self.clusters.len() {
                let known =
                    json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
                clusters
                    .patch_status("bench", &PatchParams::default(), &Patch::Merge(&known))
                    .await?;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        bail!("the ProxmoxCluster was not provisioned")
    }

    /// Makes a Machine and its ProxmoxMachine.
    pub(super) async fn machine(&self, name: &str) -> Result<()> {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"value": format!("#cloud-config\nhostname: {name}\n"), "format": "cloud-config"},
        }))
        .await?;
        self.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": name},
            "spec": {
                "clusterName": "bench", "bootstrap": {"dataSecretName": name},
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ProxmoxMachine", "name": name,
                },
            },
        }))
        .await?;
        let machines: Api<Machine> = Api::default_namespaced(self.client.clone());
        let uid = machines.get(name).await?.uid();
        let owner = owner("Machine", name, uid.as_deref());
        self.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProxmoxMachine",
            "metadata": {
                "name": name, "ownerReferences": [owner],
                "labels": {"cluster.x-k8s.io/cluster-name": "bench"},
            },
            "spec": {
                "template": "ubuntu-24-04", "full": false, "cores": 1, "memory": 1024, "diskSize": 20,
                "checks": {"skipQemuGuestAgent": true},
            },
        }))
        .await
    }

    /// The node of a machine has joined.
    pub(super) async fn join(&self, name: &str) -> Result<()> {
        let machines: Api<Machine> = Api::default_namespaced(self.client.clone());
        let joined = json!({"status": {"nodeRef": {"name": name}}});
        machines
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&joined))
            .await?;
        Ok(())
    }

    async fn apply(&self, object: Value) -> Result<()> {
        crate::up::apply::object(&self.client, object).await
    }

    /// Requests to Proxmox VE that were made for something: all but the watchers' regular look at their clusters.
    pub(super) fn requests(&self) -> u64 {
        let counts = self
            .clusters
            .iter()
            .flat_map(|cluster| cluster.control().counts());
        counts
            .filter(|(route, _)| route != "GET /cluster/resources")
            .map(|(_, count)| count)
            .sum()
    }

    /// All requests to Proxmox VE.
    pub(super) fn all_requests(&self) -> u64 {
        self.clusters
            .iter()
            .map(|cluster| cluster.control().total())
            .sum()
    }

    /// How often the controllers wrote to the Kubernetes API.
    pub(super) fn writes(&self) -> u64 {
        self.kubernetes.writes.load(Ordering::Relaxed)
    }

    /// How often the controllers asked the Kubernetes API for something, besides watching.
    pub(super) fn reads(&self) -> u64 {
        self.kubernetes.reads.load(Ordering::Relaxed)
    }

    /// Counts from now on.
    pub(super) fn forget(&self) {
        for cluster in &self.clusters {
            cluster.control().reset_counts();
        }
        self.kubernetes.writes.store(0, Ordering::Relaxed);
        self.kubernetes.reads.store(0, Ordering::Relaxed);
    }
}

/// One Proxmox VE cluster of three nodes that are never full.
pub(super) fn simulator(setting: &Setting, number: u64) -> Result<Simulator> {
    Ok(Simulator::builder()
        .world(WorldFile::parse(WORLD)?)
        .latency(setting.latency.clone())
        .seed(setting.seed.wrapping_mul(31).wrapping_add(number))
        .try_build()?)
}

/// A cluster's own API as root.
pub(super) fn root(cluster: &Cluster) -> Result<pve::Client> {
    let mut client = pve::Client::builder();
    for node in cluster.nodes() {
        client = client
            .endpoint(format!("https://{node}.invalid:8006"))
            .service(cluster.endpoint(&node));
    }
    let credentials = pve::Credentials::password("root@pam", "oxmox")?;
    Ok(client.credentials(credentials).build()?)
}

fn connector(clusters: &[Cluster]) -> Connector {
    let clusters = clusters.to_vec();
    Connector::new(move |to: &Connection| {
        let url = to.endpoints.first().map_or("", String::as_str);
        let number = (0..clusters.len()).find(|n| url.contains(&format!("pve-{n}.")));
        let cluster = &clusters[number.unwrap_or(0)];
        let mut client = pve::Client::builder();
        for node in cluster.nodes() {
            client = client
                .endpoint(format!("https://{node}.invalid:8006"))
                .service(cluster.endpoint(&node));
        }
        let client = client.credentials(to.credentials.clone()).build();
        client.map_err(|error| ConnectError(error.to_string()))
    })
}

/// Installs our kinds, in the version that is stored, and Cluster API's.
async fn install(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut all = Vec::new();
    for crd in api::cluster_api::stand_ins() {
        all.push(serde_json::to_value(crd)?);
    }
    for crd in api::installed_crds() {
        let mut crd = serde_json::to_value(crd)?;
        crd["spec"]["conversion"] = json!({"strategy": "None"});
        if let Some(versions) = crd["spec"]["versions"].as_array_mut() {
            versions.retain(|version| version["storage"] == true);
        }
        all.push(crd);
    }
    for crd in all {
        let name = crd["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let params = PatchParams::apply("bench").force();
        api.patch(&name, &params, &Patch::Apply(&crd))
            .await
            .with_context(|| format!("the API server refused {name}"))?;
    }
    Ok(())
}

fn owner(kind: &str, name: &str, uid: Option<&str>) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": uid, "controller": true,
    })
}

/// What the Kubernetes API was asked.
#[derive(Default)]
struct Kubernetes {
    writes: AtomicU64,
    reads: AtomicU64,
}

/// The Kubernetes API with counters before it.
#[derive(Clone)]
struct Counted<S> {
    inner: S,
    kubernetes: Arc<Kubernetes>,
}

impl<S, B> tower::Service<Request<B>> for Counted<S>
where
    S: tower::Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let watches = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch="));
        if request.method() != Method::GET {
            self.kubernetes.writes.fetch_add(1, Ordering::Relaxed);
        } else if !watches {
            self.kubernetes.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.call(request)
    }
}
