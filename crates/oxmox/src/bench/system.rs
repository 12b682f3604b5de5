//! The system that is measured: everything in this process, Proxmox VE simulated.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use controllers::{Clock, ConnectError, Connection, Connector, Options};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use pve_sim::{Cluster, Latency, Simulator, WorldFile};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::meter::Meter;
use crate::up::apply;

/// What every measurement is given.
#[derive(Clone)]
pub(super) struct Setting {
    /// How long Proxmox VE takes.
    pub(super) latency: Latency,
    /// Where randomness comes from.
    pub(super) seed: u64,
}

/// Three nodes that are never full, shared storage, one template.
pub(super) const WORLD: &str = "
clusters:
  - name: bench
    nodes:
      - { name: pve1, sockets: 2, cores: 128, cpus: 256, memory-gib: 16384 }
      - { name: pve2, sockets: 2, cores: 128, cpus: 256, memory-gib: 16384 }
      - { name: pve3, sockets: 2, cores: 128, cpus: 256, memory-gib: 16384 }
    storages:
      - { id: local, type: dir, content: [iso, vztmpl, import, snippets, backup], capacity-gib: 1000 }
      - { id: ceph, type: rbd, content: [images, rootdir], capacity-gib: 1048576, options: { pool: rbd } }
    images:
      ubuntu-24.04: { id: ubuntu, name: Ubuntu, version: \"24.04\" }
    guests:
      - vmid: 9000
        node: pve1
        storage: ceph
        disk-gib: 4
        image: ubuntu-24.04
        template: true
        options: { name: ubuntu-24-04, cores: \"1\", memory: \"1024\", agent: \"1\", scsihw: virtio-scsi-single, net0: \"virtio,bridge=vmbr0\" }
";

/// The template's VMID.
pub(super) const TEMPLATE: u32 = 9000;

/// The running system.
pub(super) struct System {
    /// The Kubernetes API, as a user sees it.
    pub(super) client: Client,
    /// Proxmox VE, from outside.
    pub(super) cluster: Cluster,
    /// How busy it was for us.
    pub(super) meter: Meter,
    _server: apiserver::InMemory,
    _simulator: Simulator,
    _stop: DropGuard,
}

impl System {
    /// Starts everything and waits until the Provider `bench` is connected.
    pub(super) async fn start(
        setting: &Setting,
        definitions: Vec<CustomResourceDefinition>,
    ) -> Result<Self> {
        let simulator = Simulator::builder()
            .world(WorldFile::parse(WORLD)?)
            .latency(setting.latency.clone())
            .seed(setting.seed)
            .try_build()?;
        let cluster = simulator
            .clusters()
            .next()
            .context("the simulated world has no cluster")?
            .clone();
        let clock = Clock::starting_at(Clock::system().now());
        let server = apiserver::InMemory::with(apiserver::Clock::at(clock.now()), setting.seed);
        let client = Client::new(server.service(), "default");
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in definitions {
            let params = PatchParams::apply("bench").force();
            api.patch(&crd.name_any(), &params, &Patch::Apply(&crd))
                .await
                .with_context(|| format!("the API server refused {}", crd.name_any()))?;
        }
        let meter = Meter::default();
        let stop = CancellationToken::new();
        let options = Options {
            connector: connector(&cluster, &meter),
            clock,
            ..Options::default()
        };
        tokio::spawn(controllers::run(
            Client::new(server.service(), "default"),
            options,
            stop.clone(),
        ));
        let system = Self {
            client,
            cluster,
            meter,
            _server: server,
            _simulator: simulator,
            _stop: stop.drop_guard(),
        };
        let credentials = apply::Credentials {
            entries: vec![
                ("username", Some("root@pam".into())),
                ("password", Some("oxmox".into())),
            ],
            insecure: true,
            nodes: Vec::new(),
        };
        apply::provider(
            &system.client,
            "bench",
            "https://pve.invalid:8006",
            credentials,
        )
        .await?;
        let provider: Api<api::vm::Provider> = Api::default_namespaced(system.client.clone());
        let connected = kube::runtime::wait::await_condition(
            provider,
            "bench",
            |found: Option<&api::vm::Provider>| {
                found.is_some_and(|p| p.status.as_ref().is_some_and(|status| status.healthy))
            },
        );
        match tokio::time::timeout(Duration::from_mins(5), connected).await {
            Ok(connected) => connected.context("cannot watch the Provider")?,
            Err(_) => bail!("the simulated Proxmox VE could not be connected"),
        };
        Ok(system)
    }

    /// Applies one object.
    pub(super) async fn apply(&self, object: Value) -> Result<()> {
        apply::object(&self.client, object).await
    }

    /// Proxmox VE's own API as root, past the controllers and the meter.
    pub(super) fn root(&self) -> Result<pve::Client> {
        let mut client = pve::Client::builder();
        for node in self.cluster.nodes() {
            client = client
                .endpoint(format!("https://{node}.invalid:8006"))
                .service(self.cluster.endpoint(&node));
        }
        let credentials = pve::Credentials::password("root@pam", "oxmox")?;
        Ok(client.credentials(credentials).build()?)
    }

    /// Requests so far that were made for something: all but the watcher's regular look at the cluster.
    pub(super) fn requests(&self) -> u64 {
        let counts = self.cluster.control().counts();
        let ours = counts
            .iter()
            .filter(|(route, _)| *route != "GET /cluster/resources");
        ours.map(|(_, count)| count).sum()
    }
}

fn connector(cluster: &Cluster, meter: &Meter) -> Connector {
    let (cluster, meter) = (cluster.clone(), meter.clone());
    Connector::new(move |to: &Connection| {
        let mut client = pve::Client::builder();
        for node in cluster.nodes() {
            client = client
                .endpoint(format!("https://{node}.invalid:8006"))
                .service(meter.before(&cluster, cluster.endpoint(&node)));
        }
        let client = client.credentials(to.credentials.clone()).build();
        client.map_err(|error| ConnectError(error.to_string()))
    })
}

/// The objects that the measured machines refer to.
pub(super) fn basis() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMClass", "metadata": {"name": "bench"},
            "spec": {"cpus": 1, "memory": "1Gi", "spec": {"cpu": {"maxCpus": 4}, "hotplug": ["network", "disk", "cpu"]}},
        }),
        json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMImage", "metadata": {"name": "bench"},
            "spec": {"source": TEMPLATE.to_string()},
        }),
    ]
}
