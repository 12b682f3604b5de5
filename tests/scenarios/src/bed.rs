//! Building, crashing and restarting the system.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use controllers::{Clock, ConnectError, Connection, Connector, Options};
use fleet::Fleet;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};
use pve_sim::{Cluster, Latency, Simulator, WorldFile};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    gate::{Gate, Line},
    panics,
};

/// The definitions, which take longer to make than to install.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(api::crds);

/// When every scenario begins.
const EPOCH: &str = "2026-01-01T00:00:00Z";

/// How a [`Bed`] is made.
#[derive(Debug)]
pub struct Builder {
    seed: u64,
    latency: Latency,
    clusters: usize,
    release: pve_sim::Release,
    world: Option<WorldFile>,
    others: Option<WorldFile>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            seed: 0,
            latency: Latency::real(),
            clusters: 1,
            release: pve_sim::Release::default(),
            world: None,
            others: None,
        }
    }
}

impl Builder {
    /// Where all randomness comes from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How long Proxmox VE takes.
    #[must_use]
    pub fn latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// How many Proxmox VE clusters there are.
    #[must_use]
    pub fn clusters(mut self, count: usize) -> Self {
        self.clusters = count;
        self
    }

    /// Which Proxmox VE it is, such as `8.4`.
    #[must_use]
    pub fn release(mut self, release: &str) -> Self {
        self.release = release.parse().unwrap();
        self
    }

    /// The installation that is simulated, as a world file.
    #[must_use]
    pub fn world(mut self, yaml: &str) -> Self {
        self.world = Some(WorldFile::parse(yaml).unwrap());
        self
    }

    /// The installations that the clusters after the first are, where they are others.
    #[must_use]
    pub fn others(mut self, yaml: &str) -> Self {
        self.others = Some(WorldFile::parse(yaml).unwrap());
        self
    }

    /// Makes the bed and starts the controllers.
    pub async fn start(self) -> Bed {
        // `RUST_LOG=controllers=debug` shows what the controllers do; another test may have asked already.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        panics::watch();
        let epoch: Timestamp = EPOCH.parse().unwrap();
        let server = apiserver::InMemory::with(apiserver::Clock::at(epoch), self.seed);
        let client = Client::new(server.service(), "default");
        let simulators: Vec<Simulator> = (0..self.clusters.max(1))
            .map(|number| {
                let mut simulator = Simulator::builder()
                    .seed(self.seed.wrapping_mul(31).wrapping_add(number as u64))
                    .release(self.release)
                    .latency(self.latency.clone());
                let other = self.others.as_ref().filter(|_| number > 0);
                if let Some(world) = other.or(self.world.as_ref()) {
                    simulator = simulator.world(world.clone());
                }
                simulator.build()
            })
            .collect();
        let mut bed = Bed {
            server,
            client,
            simulators,
            clock: Clock::starting_at(epoch),
            line: Arc::default(),
            base: Options::default(),
            operator: None,
        };
        bed.install().await;
        bed.start_operator();
        bed
    }
}

/// The whole system.
pub struct Bed {
    server: apiserver::InMemory,
    /// The API as its administrator sees it.
    pub client: Client,
    simulators: Vec<Simulator>,
    clock: Clock,
    line: Arc<Line>,
    base: Options,
    operator: Option<(JoinHandle<()>, CancellationToken)>,
}

impl Bed {
    /// A bed with one cluster that takes as long as a small real one.
    pub async fn new() -> Self {
        Builder::default().start().await
    }

    /// Describes another bed.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The API server.
    pub fn server(&self) -> &apiserver::InMemory {
        &self.server
    }

    /// What happens to the controllers' calls.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// The first Proxmox VE cluster.
    pub fn pve(&self) -> &Cluster {
        self.cluster(0)
    }

    /// One of the Proxmox VE clusters.
    pub fn cluster(&self, number: usize) -> &Cluster {
        self.simulators[number].clusters().next().unwrap()
    }

    /// How many Proxmox VE clusters there are.
    pub fn cluster_count(&self) -> usize {
        self.simulators.len()
    }

    async fn install(&self) {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for crd in CRDS.iter() {
            api.create(&PostParams::default(), crd).await.unwrap();
        }
    }

    /// Reaches each cluster in process: `https://pve.example.com` and anything else is the first one,
    /// `https://pve-1.…` the second, and so on.
    fn connector(&self) -> Connector {
        let clusters: Arc<BTreeMap<usize, Cluster>> = Arc::new(
            (0..self.simulators.len())
                .map(|n| (n, self.cluster(n).clone()))
                .collect(),
        );
        let line = self.line.clone();
        Connector::new(move |to: &Connection| {
            let host = to.endpoints[0].trim_start_matches("https://");
            let number = (1..clusters.len()).find(|n| host.starts_with(&format!("pve-{n}.")));
            let cluster = &clusters[&number.unwrap_or(0)];
            let mut client = pve::Client::builder();
            for node in cluster.nodes() {
                client = client
                    .endpoint(format!("https://{node}.invalid:8006"))
                    .service(Gate::pve(cluster.endpoint(&node), line.clone()));
            }
            let client = client.credentials(to.credentials.clone()).build();
            client.map_err(|error| ConnectError(error.to_string()))
        })
    }

    /// Changes how the controllers are run from their next start on.
    pub fn options(&mut self, change: impl FnOnce(&mut Options)) {
        change(&mut self.base);
    }

    /// What time it is for the controllers from their next start on.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// Starts the controllers, with an engine that knows nothing.
    pub fn start_operator(&mut self) {
        let stop = CancellationToken::new();
        let options = Options {
            connector: self.connector(),
            clock: self.clock,
            fleet: Fleet::new(),
            ..self.base.clone()
        };
        let service = Gate::kubernetes(self.server.service(), self.line.clone());
        let client = Client::new(service, "default");
        let running = tokio::spawn(controllers::run(client, options, stop.clone()));
        self.operator = Some((running, stop));
    }

    /// Ends the controllers between two calls, as a crash does.
    pub async fn crash_operator(&mut self) {
        if let Some((running, _)) = self.operator.take() {
            running.abort();
            match running.await {
                Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                Ok(()) => panic!("the controllers had ended by themselves"),
                Err(_) => {}
            }
        }
    }

    /// What the controllers died of by themselves, and every task of theirs.
    pub fn died(&self) -> Vec<String> {
        let mut died: Vec<String> = panics::seen();
        if self
            .operator
            .as_ref()
            .is_some_and(|(running, _)| running.is_finished())
        {
            died.push("the controllers have ended".to_owned());
        }
        died
    }

    /// What controllers write that were started again ten minutes ago, and found everything as it was.
    pub async fn writes_of_a_restart(&mut self) -> Vec<String> {
        self.sleep(Duration::from_mins(10)).await;
        self.crash_operator().await;
        self.line.forget();
        self.start_operator();
        self.sleep(Duration::from_mins(10)).await;
        self.line.kubernetes_writes()
    }

    /// Lets the controllers finish what is under way, and ends them.
    pub async fn stop_operator(&mut self) {
        if let Some((running, stop)) = self.operator.take() {
            stop.cancel();
            running.await.unwrap();
        }
    }

    /// Lets time pass.
    pub async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
