//! A management cluster with Cluster API and our controllers on it.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use pve_sim::{Cluster, Latency, Seed};
use serde_json::{Value, json};
use testbed::manager::is_healthy;
use testbed::process::{Flags, Process, free_ports};
use testbed::{Assets, ControlPlane, Manager, Options, Provider, assets_or_skip};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep};

use crate::guest::Guests;
use crate::objects::{Kind, kinds};
use crate::{Datacenter, Guest, Plan};

const PROGRAMS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "capi-core",
    "capi-kubeadm-bootstrap",
    "capi-kubeadm-control-plane",
    "ipam-in-cluster",
    "capmox",
    "clusterctl",
];

/// How long anything may take on a machine that has much else to do; `CLUSTER_API_PATIENCE` says otherwise, in seconds.
pub(crate) static PATIENCE: LazyLock<Duration> = LazyLock::new(|| {
    let said = std::env::var("CLUSTER_API_PATIENCE").ok();
    let said = said.and_then(|text| text.parse().ok());
    said.map_or(Duration::from_mins(4), Duration::from_secs)
});

// Servers and pooled connections belong to the runtime they were made on, so all cases share one.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime starts"));
static SHARED: OnceCell<Bed> = OnceCell::const_new();

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

/// Runs a case on the management cluster that cases share, with our controllers on it.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a closure is written where it is passed"
)]
pub fn shared(name: &str, case: impl AsyncFn(&Bed)) {
    let Some((assets, program)) = programs(name) else {
        return;
    };
    RUNTIME.block_on(async {
        let bed = SHARED
            .get_or_init(|| Bed::start_with_oxmox(&assets, &program))
            .await;
        case(bed).await;
    });
}

/// Runs a case on that management cluster and another one, both with our controllers on them.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a closure is written where it is passed"
)]
pub fn both(name: &str, case: impl AsyncFn(&Bed, &Bed)) {
    let Some((assets, program)) = programs(name) else {
        return;
    };
    RUNTIME.block_on(async {
        let shared = SHARED.get_or_init(|| Bed::start_with_oxmox(&assets, &program));
        let another = Bed::start_with_oxmox(&assets, &program);
        let (shared, another) = tokio::join!(shared, another);
        case(shared, &another).await;
    });
}

/// Runs a case on a management cluster of its own, with no provider of infrastructure on it yet.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a closure is written where it is passed"
)]
pub fn alone(name: &str, case: impl AsyncFn(&Bed)) {
    let Some((assets, program)) = programs(name) else {
        return;
    };
    RUNTIME.block_on(async {
        let bed = Bed::start(&assets, &program).await;
        case(&bed).await;
    });
}

/// The programs of others, and ours; nothing after saying what is missing.
fn programs(suite: &str) -> Option<(Assets, PathBuf)> {
    let assets = assets_or_skip(suite, PROGRAMS)?;
    let of_this_build = || {
        let here = std::env::current_exe().ok()?;
        // Tests lie one directory deeper than programs.
        let mut dirs = here.ancestors().skip(1).take(2);
        dirs.find_map(|dir| Some(dir.join("oxmox")).filter(|path| path.is_file()))
    };
    let program = std::env::var_os("OXMOX_BIN").map(PathBuf::from);
    let program = program.or_else(of_this_build).filter(|path| path.is_file());
    if let Some(program) = program {
        return Some((assets, program));
    }
    let missing = "oxmox itself is not built: run `cargo build -p oxmox`";
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1");
    assert!(!ci, "{suite}: {missing}");
    let _ = writeln!(std::io::stderr(), "skipped: {suite}: {missing}");
    None
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
        for crd in api::installed_crds() {
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

    /// Memory that a provider (`oxmox`, or a component) holds, in bytes.
    pub fn memory(&self, component: &str) -> u64 {
        let resident = |process: &Process| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid()));
            let status = status.unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
            1024 * number.unwrap_or(0_u64)
        };
        let managers = self.managers.lock().unwrap_or_else(PoisonError::into_inner);
        let operator = self.operator.lock().unwrap_or_else(PoisonError::into_inner);
        let mut managers = managers.iter();
        match managers.find(|manager| manager.component() == component) {
            Some(manager) => resident(manager.process()),
            None => operator.as_ref().map_or(0, resident),
        }
    }

    /// Writes so far to machines, clusters and claims, by whomever, as the API server counts them.
    pub async fn writes(&self) -> u64 {
        let answer = self
            .plane
            .client()
            .send(&http::Method::GET, "/metrics", &[], bytes::Bytes::new())
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&answer.body);
        let counted = text.lines().filter(|line| {
            let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
            let kinds = ["proxmoxmachines", "proxmoxclusters", "ipaddressclaims"];
            line.starts_with("apiserver_request_total{")
                && verbs
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
                && kinds
                    .iter()
                    .any(|kind| line.contains(&format!("resource=\"{kind}\"")))
        });
        counted
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    /// A plan for a cluster in a namespace of its own, which is made.
    pub async fn plan(&self, name: &str, datacenter: &Datacenter) -> Plan {
        let [port] = free_ports().unwrap();
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.apply("", &namespace).await;
        for number in 0..datacenter.len() {
            let secret = datacenter.secret(number, &format!("pve-{number}"));
            self.apply(name, &secret).await;
        }
        // An external etcd is introduced by its administrator: Cluster API makes no keys for it.
        let authority = self.plane.authority();
        let client = authority.client("etcd-client", &[]).unwrap();
        for (purpose, cert, key) in [
            ("etcd", authority.cert(), None),
            ("apiserver-etcd-client", &*client.cert, Some(&client.key)),
        ] {
            let mut data = json!({"tls.crt": cert});
            if let Some(key) = key {
                data["tls.key"] = json!(key);
            }
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                "metadata": {
                    "name": format!("{name}-{purpose}"),
                    "labels": {"cluster.x-k8s.io/cluster-name": name},
                },
                "stringData": data,
            });
            self.apply(name, &secret).await;
        }
        Plan {
            name: name.to_owned(),
            port,
            etcd: self.plane.etcd_url().to_owned(),
            control_plane: 1,
            workers: 3,
            group: "workers",
            version: "v1beta1",
            infrastructure: json!({"credentialsRef": {"name": "pve-0"}}),
            machine: json!({
                "template": "ubuntu-24-04", "cores": 2, "memory": 4096, "full": false,
            }),
        }
    }

    fn api(&self, namespace: &str, kind: Kind) -> Api<DynamicObject> {
        let resource = kind.resource();
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    /// Applies an object as `kubectl apply --server-side` does; says what the API server objects to.
    pub async fn try_apply(&self, namespace: &str, object: &Value) -> Result<Value, kube::Error> {
        let kind = object["kind"].as_str().unwrap();
        let version = object["apiVersion"].as_str().unwrap();
        let known = kinds::ALL.iter().find(|known| known.kind == kind);
        let known = known.unwrap_or_else(|| panic!("which resource is {kind}?"));
        let mut resource = known.resource();
        version.clone_into(&mut resource.api_version);
        resource.version = version.rsplit('/').next().unwrap().to_owned();
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        };
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("user").force();
        let patch = Patch::Apply(object);
        let applied = patiently(|| api.patch(name, &params, &patch)).await?;
        Ok(serde_json::to_value(applied).unwrap())
    }

    /// Applies an object.
    pub async fn apply(&self, namespace: &str, object: &Value) -> Value {
        let applied = self.try_apply(namespace, object).await;
        applied.unwrap_or_else(|error| panic!("{error}\n{object:#}"))
    }

    /// Changes an object.
    pub async fn patch(&self, namespace: &str, kind: Kind, name: &str, patch: &Value) {
        let (api, params) = (self.api(namespace, kind), PatchParams::default());
        let patch = Patch::Merge(patch);
        patiently(|| api.patch(name, &params, &patch))
            .await
            .unwrap_or_else(|error| panic!("{} {name}: {error}", kind.kind));
    }

    /// An object, if it is there.
    pub async fn get(&self, namespace: &str, kind: Kind, name: &str) -> Option<Value> {
        let api = self.api(namespace, kind);
        let found = patiently(|| api.get_opt(name)).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }

    /// All objects of a kind, by name.
    pub async fn list(&self, namespace: &str, kind: Kind) -> Vec<Value> {
        let (api, everything) = (self.api(namespace, kind), ListParams::default());
        let listed = patiently(|| api.list(&everything)).await;
        let mut all: Vec<Value> = listed
            .unwrap_or_else(|error| panic!("{}: {error}", kind.kind))
            .into_iter()
            .map(|object| serde_json::to_value(object).unwrap())
            .collect();
        all.sort_by_key(|object| object["metadata"]["name"].as_str().map(str::to_owned));
        all
    }

    /// Asks for the end of an object.
    pub async fn delete(&self, namespace: &str, kind: Kind, name: &str) {
        let (api, params) = (self.api(namespace, kind), DeleteParams::default());
        let asked = patiently(|| api.delete(name, &params)).await;
        asked.unwrap_or_else(|error| panic!("{} {name}: {error}", kind.kind));
    }

    /// Waits until `met` gives something.
    ///
    /// # Panics
    /// When it takes too long: with everything that is known about the namespace.
    pub async fn until<T>(
        &self,
        namespace: &str,
        what: &str,
        met: impl AsyncFn() -> Option<T>,
    ) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = met().await {
                return found;
            }
            if start.elapsed() > *PATIENCE {
                self.tell(namespace).await;
                panic!("{namespace}: not {what} in time");
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Says how things stand in a namespace.
    async fn tell(&self, namespace: &str) {
        let mut out = std::io::stderr();
        for kind in [
            kinds::CLUSTER,
            kinds::PROXMOX_CLUSTER,
            kinds::CONTROL_PLANE,
            kinds::MACHINE_DEPLOYMENT,
            kinds::MACHINE,
            kinds::PROXMOX_MACHINE,
        ] {
            // Another provider may not serve our version of it.
            let listed = self.api(namespace, kind).list(&ListParams::default()).await;
            for object in listed.into_iter().flatten() {
                let object = serde_json::to_value(object).unwrap();
                let name = &object["metadata"]["name"];
                let _ = writeln!(out, "{} {name}: spec {}", kind.kind, object["spec"]);
                for condition in object["status"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                {
                    let [kind, status, reason, message] =
                        ["type", "status", "reason", "message"].map(|key| &condition[key]);
                    let _ = writeln!(out, "    {kind} {status} {reason} {message}");
                }
            }
        }
        for line in self.guests.journal() {
            let _ = writeln!(out, "guest {line}");
        }
        // `CLUSTER_API_LOGS` names a directory for everything that everybody has said.
        let dir = std::env::var_os("CLUSTER_API_LOGS").map(PathBuf::from);
        let mut keep = |process: &Process| {
            let _ = writeln!(out, "{}:\n{}", process.name(), process.log_tail());
            if let Some(dir) = &dir {
                let file = dir.join(format!("{namespace}-{}.log", process.name()));
                let _ = std::fs::write(file, process.log());
            }
        };
        let managers = self.managers.lock().unwrap_or_else(PoisonError::into_inner);
        for manager in &*managers {
            keep(manager.process());
        }
        for process in self.plane.processes() {
            keep(process);
        }
        let operator = self.operator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(operator) = &*operator {
            keep(operator);
        }
    }

    /// The Machines of a namespace that run and whose Node is known.
    pub async fn running(&self, namespace: &str) -> Vec<Value> {
        let mut machines = self.list(namespace, kinds::MACHINE).await;
        machines.retain(is_running);
        machines
    }

    /// Waits until so many machines run, and no others are there.
    pub async fn until_running(&self, namespace: &str, count: usize) -> Vec<Value> {
        let what = format!("{count} machines running");
        self.until(namespace, &what, async || {
            let all = self.list(namespace, kinds::MACHINE).await;
            let done = all.len() == count && all.iter().all(is_running);
            done.then_some(all)
        })
        .await
    }

    /// Deletes a Cluster and waits until it and everything of it is gone.
    pub async fn delete_cluster(&self, plan: &Plan) {
        self.delete(&plan.name, kinds::CLUSTER, &plan.name).await;
        self.until(&plan.name, "gone", async || {
            let cluster = self.get(&plan.name, kinds::CLUSTER, &plan.name).await;
            cluster.is_none().then_some(())
        })
        .await;
        self.end(plan);
    }

    /// Ends the API server that a guest of a cluster has started: the cluster is gone.
    pub fn end(&self, plan: &Plan) {
        self.guests.end(&plan.endpoint());
    }

    /// Applies all manifests of a plan.
    pub async fn create(&self, plan: &Plan) {
        for object in plan.cluster().iter().chain(&plan.workers()) {
            self.apply(&plan.name, object).await;
        }
    }

    /// Asks for so many workers.
    pub async fn scale(&self, plan: &Plan, replicas: usize) {
        let name = format!("{}-{}", plan.name, plan.group);
        let scale = json!({"spec": {"replicas": replicas}});
        self.patch(&plan.name, kinds::MACHINE_DEPLOYMENT, &name, &scale)
            .await;
    }

    /// A Node, as the cluster itself shows it.
    pub async fn node(&self, plan: &Plan, name: &str) -> Value {
        let secret = format!("{}-kubeconfig", plan.name);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &plan.name);
        let secret = secrets.get(&secret).await.unwrap();
        let text = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&text).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .unwrap();
        let nodes: Api<Node> = Api::all(Client::try_from(config).unwrap());
        serde_json::to_value(nodes.get(name).await.unwrap()).unwrap()
    }

    /// How often a guest has booted, and what it read at its first boot.
    pub fn past(&self, guest: &Guest) -> (u64, Seed) {
        let (boots, seed) = self.guests.past(guest.uuid());
        (boots, seed.unwrap_or_default())
    }

    /// What guests of a cluster had to complain about.
    pub fn complaints(&self, cluster: &str) -> Vec<String> {
        let mut journal = self.guests.journal();
        journal.retain(|line| line.starts_with(cluster));
        journal
    }
}

/// Whether a Machine runs, its Node is known and it is to stay.
fn is_running(machine: &Value) -> bool {
    machine["status"]["phase"] == "Running"
        && machine["status"]["nodeRef"]["name"].is_string()
        && machine["metadata"]["deletionTimestamp"].is_null()
}

/// Asks the API server until it answers for itself, which it does not while it waits for others: a webhook that is just
/// starting or was just moved, a definition it has not read yet, more work than it can do.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, kube::Error>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let start = Instant::now();
    loop {
        match ask().await {
            Err(error) if is_passing(&error) && start.elapsed() < *PATIENCE => {
                sleep(Duration::from_millis(250)).await;
            }
            answer => return answer,
        }
    }
}

fn is_passing(error: &kube::Error) -> bool {
    match error {
        // What is not found has a reason; a path that is not served has none.
        kube::Error::Api(status) if status.code == 404 => status.reason != "NotFound",
        kube::Error::Api(status) => [409, 429].contains(&status.code) || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}
