//! A management cluster with Cluster API and our controllers on it.

mod api;
mod cases;
mod clusters;
mod measured;
mod told;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use pve_sim::{Cluster, Latency};
use testbed::manager::is_healthy;
use testbed::process::{Flags, Process, free_ports};
use testbed::{Assets, ControlPlane, Manager, Options, Provider};
use tokio::time::{Instant, sleep};

use self::api::patiently;
use crate::Datacenter;
use crate::guest::Guests;

pub use cases::{alone, both, shared};

/// How long anything may take on a machine that has much else to do; `CLUSTER_API_PATIENCE` says otherwise, in seconds.
pub(crate) static PATIENCE: LazyLock<Duration> = LazyLock::new(|| {
    let said = std::env::var("CLUSTER_API_PATIENCE").ok();
    let said = said.and_then(|text| text.parse().ok());
    said.map_or(Duration::from_mins(12), Duration::from_secs)
});

/// A management cluster.
pub struct Bed {
    assets: Assets,
    plane: ControlPlane,
    managers: Mutex<Vec<Manager>>,
    guests: Arc<Guests>,
    program: PathBuf,
    operator: Mutex<Option<Process>>,
    /// The API as its administrator sees it.
    pub client: Client,
}

impl Bed {
    async fn start(assets: &Assets, program: &std::path::Path) -> Self {
        let options = Options {
            controllers: ["garbage-collector-controller", "namespace-controller"]
                .map(str::to_owned)
                .to_vec(),
            apiserver_flags: vec!["--disable-admission-plugins=ServiceAccount".into()],
            ..Options::default()
        };
        let plane = ControlPlane::start(assets, &options).await.unwrap();
        let managers = Manager::start(assets, &plane, Provider::CLUSTER_API)
            .await
            .unwrap();
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        Self {
            assets: assets.clone(),
            managers: Mutex::new(managers),
            guests: Guests::new(assets),
            program: program.to_owned(),
            operator: Mutex::default(),
            client: Client::try_from(config).unwrap(),
            plane,
        }
    }

    async fn start_with_oxmox(assets: &Assets, program: &std::path::Path) -> Self {
        let bed = Self::start(assets, program).await;
        bed.install_oxmox().await;
        bed.start_operator().await;
        bed
    }

    /// Moves everything of a namespace to another management cluster, as its administrator does.
    ///
    /// # Panics
    /// When clusterctl does not succeed: with what it says.
    pub async fn move_to(&self, another: &Self, namespace: &str) {
        let program = self.assets.program("clusterctl").unwrap();
        let moved = tokio::process::Command::new(program)
            .arg("move")
            .args(["--namespace", namespace, "-v", "2"])
            .arg("--kubeconfig")
            .arg(self.plane.kubeconfig())
            .arg("--to-kubeconfig")
            .arg(another.plane.kubeconfig())
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .env("XDG_CONFIG_HOME", self.plane.dir())
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&moved.stderr);
        assert!(moved.status.success(), "{said}");
    }

    /// Installs our definitions, over those of another provider if need be.
    pub async fn install_oxmox(&self) {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let params = PatchParams::apply("oxmox").force();
        for crd in ::api::installed_crds() {
            let name = crd.metadata.name.clone().unwrap();
            let patch = Patch::Apply(&crd);
            patiently(|| api.patch(&name, &params, &patch))
                .await
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// Starts our controllers and waits until they say that they are ready.
    pub async fn start_operator(&self) {
        let [health] = free_ports().unwrap();
        let mut flags = Flags::default();
        flags.0.push("operator".into());
        flags.0.push("--no-leader-election".into());
        flags
            .set("listen", &format!("127.0.0.1:{health}"))
            .set("webhook-listen", "127.0.0.1:0")
            .set("own-namespace", "default");
        let kubeconfig = self.plane.kubeconfig();
        let environment = [("KUBECONFIG", kubeconfig.as_os_str())];
        let dir = self.plane.dir();
        let process =
            Process::start_with(&self.program, &flags.0, &environment, dir, false).unwrap();
        let start = Instant::now();
        while !is_healthy(health).await {
            let log = process.log_tail();
            assert!(!process.has_ended(), "oxmox ended: {log}");
            assert!(start.elapsed() < *PATIENCE, "oxmox is not ready: {log}");
            sleep(Duration::from_millis(100)).await;
        }
        *self.operator.lock().unwrap() = Some(process);
    }

    /// Kills our controllers where they stand.
    pub fn crash_operator(&self) {
        drop(self.operator.lock().unwrap().take());
    }

    /// Starts another provider.
    pub async fn start_provider(&self, provider: Provider) {
        let started = Manager::start(&self.assets, &self.plane, &[provider])
            .await
            .unwrap();
        self.managers.lock().unwrap().extend(started);
    }

    /// Stops a provider.
    pub fn stop_provider(&self, provider: Provider) {
        let mut managers = self.managers.lock().unwrap();
        managers.retain(|manager| manager.component() != provider.component);
    }

    /// Proxmox VE clusters that take no time, with guests that know what to do.
    pub async fn datacenter(&self, names: &[&str]) -> Datacenter {
        self.datacenter_with(names, Latency::none()).await
    }

    /// Proxmox VE clusters that take as long as the model says.
    pub async fn datacenter_with(&self, names: &[&str], latency: Latency) -> Datacenter {
        let datacenter = Datacenter::start(names, latency).await;
        for number in 0..datacenter.len() {
            self.inhabit(datacenter.cluster(number));
        }
        datacenter
    }

    fn inhabit(&self, cluster: &Cluster) {
        self.guests.inhabit(cluster);
    }
}
