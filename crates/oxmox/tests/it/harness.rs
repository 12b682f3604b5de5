//! Starting the binary, waiting for what it says, and a real Kubernetes beside it.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::vm::VirtualMachine;
use kube::Api;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use pve::api::guest::{DeleteGuest, power::Stop};
use pve::{Client, Credentials, NodeName, tls::Trust};
use serde_json::json;
use tempfile::TempDir;
use testbed::{Assets, ControlPlane, Kubectl, Options, assets_or_skip};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};

/// How long something may take on a machine that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// The binary under test.
pub(crate) const OXMOX: &str = env!("CARGO_BIN_EXE_oxmox");

/// Times of a simulated Proxmox VE that is quick, yet slow enough to be interrupted.
const LATENCY: &str = "
steps:
  clone-linked: { median_ms: 1500, p95_ms: 1600 }
  start: { median_ms: 300, p95_ms: 400 }
  boot: { median_ms: 500, p95_ms: 900 }
";

/// The world the documents speak of: their token, their template.
const WORLD: &str = r#"
clusters:
  - name: pve
    guests:
      - { vmid: 9000, node: pve1, storage: ceph, disk-gib: 4, template: true, image: ubuntu-24.04,
          options: { name: ubuntu-22-template, cores: "2", memory: "2048", agent: "1", scsihw: virtio-scsi-single, net0: "virtio,bridge=vmbr0" } }
    images:
      ubuntu-24.04: { id: ubuntu, name: Ubuntu, version: "24.04" }
    users:
      - id: virtrigaud@pve
        tokens: [{ id: vrtg-token, secret: 11111111-2222-3333-4444-555555555555, privsep: false }]
    acl: [{ path: /, user: virtrigaud@pve, role: Administrator }]
"#;

/// The nodes of the default world, and of ours.
const NODES: [&str; 3] = ["pve1", "pve2", "pve3"];

/// A running `oxmox`.
pub(crate) struct Running {
    pub(crate) child: Child,
    said: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(args: &[&str], env: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(OXMOX);
        command
            .args(args)
            .env_remove("KUBECONFIG")
            .env_remove("LOG_LEVEL")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for (name, value) in env {
            command.env(name, value);
        }
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        collect(child.stdout.take().unwrap(), said.clone());
        collect(child.stderr.take().unwrap(), said.clone());
        Self { child, said }
    }

    /// Everything it has said so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// The rest of the first line that contains `mark`, from there on.
    pub(crate) async fn says(&self, mark: &str) -> String {
        let saying = async {
            loop {
                let text = self.said();
                let line = text.lines().find(|line| line.contains(mark));
                if let Some((_, rest)) = line.and_then(|line| line.split_once(mark)) {
                    return rest.to_owned();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let said = tokio::time::timeout(PATIENCE, saying).await;
        said.unwrap_or_else(|_| panic!("it never said {mark:?}:\n{}", self.said()))
    }

    /// Sends a signal by its name.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().await;
        assert!(sent.unwrap().success());
    }

    /// Waits for its end.
    pub(crate) async fn end(&mut self) -> ExitStatus {
        let end = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        end.unwrap_or_else(|_| panic!("it does not end:\n{}", self.said()))
            .unwrap()
    }
}

fn collect(stream: impl AsyncRead + Send + Unpin + 'static, into: Arc<Mutex<String>>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut said = into.lock().unwrap();
            said.push_str(&line);
            said.push('\n');
        }
    });
}

/// Asks until there is an answer.
pub(crate) async fn eventually<T, F>(what: &str, ask: impl Fn() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    answer.unwrap_or_else(|_| panic!("never: {what}"))
}

/// The API of an `oxmox up` with its data in a directory.
pub(crate) async fn client(data: &Path) -> kube::Client {
    let read = Kubeconfig::read_from(data.join("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(read, &options).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

/// Adopts the machine `line` into a namespace, to look at, and waits until it is ready.
pub(crate) async fn adopt_line(client: &kube::Client, namespace: &str) {
    let machines: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let line = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine",
        "metadata": { "name": "line" },
        "spec": {
            "providerRef": { "name": "default", "namespace": "default" }, "adopt": { "vmid": 100 },
            "managementPolicy": "Observe", "readiness": "Running",
        },
    });
    let line = serde_json::from_value(line).unwrap();
    let created = machines.create(&PostParams::default(), &line).await;
    created.unwrap();
    eventually("line is ready", || async {
        let status = machines.get("line").await.unwrap().status?;
        let ready = api::vm::condition(&status.conditions, "Ready")?;
        (ready.status == "True").then_some(())
    })
    .await;
}

/// A simulated Proxmox VE in a process of its own.
pub(crate) struct Sim {
    pub(crate) running: Running,
    pub(crate) url: String,
    pub(crate) fingerprint: String,
    _dir: TempDir,
}

impl Sim {
    pub(crate) async fn start() -> Self {
        Self::start_in(WORLD).await
    }

    /// One of a release, on which a machine named `line`, with a serial line, has been running all along.
    pub(crate) async fn with_line(release: &str) -> Self {
        let release = format!("  - name: pve\n    release: \"{release}\"\n");
        let line = "\n      - { vmid: 100, node: pve1, storage: ceph, disk-gib: 4, running: true,
          options: { name: line, cores: \"1\", memory: \"1024\", serial0: socket, net0: \"virtio,bridge=vmbr0\" } }
    images:";
        let world = WORLD.replace("  - name: pve\n", &release);
        Self::start_in(&world.replace("\n    images:", line)).await
    }

    /// `oxmox up` that looks after this Proxmox VE by a token, with its data in a directory.
    pub(crate) fn looked_after(&self, data: &Path) -> Running {
        let token = "virtrigaud@pve!vrtg-token=11111111-2222-3333-4444-555555555555";
        let data = data.to_str().unwrap();
        let access = ["--token", token, "--fingerprint", &self.fingerprint];
        let args = ["up", "--data-dir", data, "--pve", &self.url];
        Running::start(&[&args[..], &access[..]].concat(), &[])
    }

    /// One that simulates the world of a file.
    pub(crate) async fn start_in(description: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (world, latency) = (
            dir.path().join("world.yaml"),
            dir.path().join("latency.yaml"),
        );
        std::fs::write(&world, description).unwrap();
        std::fs::write(&latency, LATENCY).unwrap();
        let running = Running::start(
            &[
                "sim",
                "--listen=127.0.0.1:0",
                "--world",
                world.to_str().unwrap(),
                "--latency",
                latency.to_str().unwrap(),
            ],
            &[],
        );
        let address = running.says(" at https://").await;
        let fingerprint = running.says("SHA-256 fingerprint: ").await;
        Self {
            running,
            url: format!("https://{address}"),
            fingerprint,
            _dir: dir,
        }
    }

    /// Its API, as root.
    fn root(&self) -> Client {
        Client::builder()
            .endpoint(&self.url)
            .trust(Trust::Insecure)
            .credentials(Credentials::password("root@pam", "oxmox").unwrap())
            .build()
            .unwrap()
    }

    /// The names of all guests, templates left out.
    pub(crate) async fn guests(&self) -> Vec<String> {
        let client = self.root();
        let mut names = Vec::new();
        for node in NODES {
            let node = client.node(&NodeName::new(node).unwrap());
            let listed = node.qemu_list(false).await.unwrap().into_iter();
            names.extend(listed.filter_map(|guest| guest.name));
        }
        names.retain(|name| name != "ubuntu-22-template");
        names.sort();
        names
    }

    /// Destroys a guest behind the operator's back.
    pub(crate) async fn destroy(&self, name: &str) {
        let client = self.root();
        for node in NODES {
            let node = client.node(&NodeName::new(node).unwrap());
            for guest in node.qemu_list(false).await.unwrap() {
                if guest.name.as_deref() == Some(name) {
                    let guest = node.qemu(guest.vmid.unwrap());
                    // The operator may be faster and have it on again.
                    loop {
                        let stopped = guest.stop(Stop::default()).await.unwrap();
                        client.wait(&stopped).await.unwrap();
                        let gone = guest.delete(DeleteGuest::default()).await.unwrap();
                        match client.wait(&gone).await {
                            Err(pve::Error::Running { .. }) => {}
                            gone => {
                                gone.unwrap();
                                return;
                            }
                        }
                    }
                }
            }
        }
        panic!("there is no guest {name}");
    }

    /// A documented manifest, pointed at this Proxmox VE.
    pub(crate) fn manifest(&self, name: &str) -> String {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/manifests");
        let text = std::fs::read_to_string(dir.join(format!("{name}.yaml"))).unwrap();
        text.replace("https://pve.example.com:8006", &self.url)
            .replace(
                "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
                &format!(
                    "11111111-2222-3333-4444-555555555555\"\n  fingerprint: \"{}",
                    self.fingerprint
                ),
            )
    }
}

/// A real Kubernetes with Oxmox's kinds, and a kubectl for it.
pub(crate) struct Kubernetes {
    pub(crate) assets: Assets,
    pub(crate) plane: ControlPlane,
    pub(crate) kubectl: Kubectl,
}

impl Kubernetes {
    /// `None` where the components are not built.
    pub(crate) async fn start(suite: &str) -> Option<Self> {
        let assets = assets_or_skip(suite, &["etcd", "kube-apiserver", "kubectl", "helm"])?;
        let plane = ControlPlane::start(&assets, &Options::default())
            .await
            .unwrap();
        let kubectl = Kubectl::new(&assets, &plane.kubeconfig()).unwrap();
        Some(Self {
            assets,
            plane,
            kubectl,
        })
    }

    /// Runs kubectl and expects it to succeed.
    pub(crate) async fn run(&self, args: &[&str]) -> String {
        self.kubectl.run(args, "").await.unwrap().success()
    }

    /// `kubectl apply -f -`, as the documents say it.
    pub(crate) async fn apply(&self, text: &str) -> String {
        self.kubectl
            .run(&["apply", "-f", "-"], text)
            .await
            .unwrap()
            .success()
    }

    /// Installs what `oxmox crds` prints.
    pub(crate) async fn install_kinds(&self) {
        let printed = Command::new(OXMOX).arg("crds").output().await.unwrap();
        assert!(printed.status.success());
        let text = String::from_utf8(printed.stdout).unwrap();
        let apply = ["apply", "--server-side", "-f", "-"];
        self.kubectl.run(&apply, &text).await.unwrap().success();
        let wait = [
            "wait",
            "--for=condition=Established",
            "crd",
            "--all",
            "--timeout=60s",
        ];
        self.run(&wait).await;
    }

    /// Waits until an object is Ready, with kubectl.
    pub(crate) async fn ready(&self, object: &str) {
        let wait = ["wait", "--for=condition=Ready", object, "--timeout=150s"];
        let outcome = self.kubectl.run(&wait, "").await.unwrap();
        if outcome.code != 0 {
            let shown = self.run(&["get", object, "-o", "yaml"]).await;
            let events = self.run(&["get", "events"]).await;
            panic!(
                "{object} is not Ready: {}\n{shown}\n{events}",
                outcome.stderr
            );
        }
    }

    /// A copy of the kubeconfig for a service account.
    pub(crate) async fn kubeconfig_of(&self, account: &str, namespace: &str) -> PathBuf {
        let path = self.kubectl.dir().join(format!("{account}.kubeconfig"));
        std::fs::copy(self.plane.kubeconfig(), &path).unwrap();
        let token = self
            .run(&["create", "token", account, "-n", namespace])
            .await;
        let file = format!("--kubeconfig={}", path.display());
        let token = format!("--token={}", token.trim());
        self.run(&["config", &file, "set-credentials", "robot", &token])
            .await;
        self.run(&["config", &file, "set-context", "--current", "--user=robot"])
            .await;
        path
    }
}

/// An operator, and what it serves.
pub(crate) struct Operator {
    pub(crate) running: Running,
    base: String,
}

impl Operator {
    pub(crate) async fn start(kubeconfig: &Path, identity: &str, namespace: &str) -> Self {
        let args = [
            "operator",
            "--listen=127.0.0.1:0",
            "--identity",
            identity,
            "--own-namespace",
            namespace,
            "--log-level=info",
        ];
        Self::start_with(&args, &[("KUBECONFIG", kubeconfig)]).await
    }

    /// One with other arguments and variables.
    pub(crate) async fn start_with(args: &[&str], env: &[(&str, &Path)]) -> Self {
        let running = Running::start(args, env);
        let base = running.says("health and metrics  http://").await;
        Self { running, base }
    }

    /// What it answers: the status and the body.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(&self.base).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: oxmox\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (status, body)
    }

    /// Whether it leads, by its own metrics.
    pub(crate) async fn leads(&self) -> bool {
        let (_, metrics) = self.get("/metrics").await;
        metrics.lines().any(|line| line == "oxmox_leader 1")
    }

    pub(crate) async fn until_ready(&self) {
        let ready = eventually("it is ready", || async {
            (self.get("/readyz").await.0 == 200).then_some(())
        });
        tokio::select! {
            () = ready => {}
            // Earlier than patience ends, to be able to say why.
            () = tokio::time::sleep(PATIENCE / 2) => panic!("it is not ready:\n{}", self.running.said()),
        }
    }

    pub(crate) async fn until_leading(&self) {
        let leading = eventually("it leads", || async { self.leads().await.then_some(()) });
        tokio::select! {
            () = leading => {}
            // Earlier than patience ends, to be able to say why.
            () = tokio::time::sleep(PATIENCE / 2) => panic!("it does not lead:\n{}", self.running.said()),
        }
    }
}
