//! Controllers of others, run as plain processes beside a control plane.
//!
//! In a cluster a provider is a Deployment, a Service for its webhooks and a certificate from cert-manager. Here it is a process:
//! its definitions and webhook configurations are applied with `clientConfig` pointing at a port of this machine, and its
//! certificate comes from the control plane's own authority.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::assets::{self, Assets};
use crate::control_plane::ControlPlane;
use crate::process::{self, Flags, Process, free_ports};

/// How long a manager may take to become ready on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// A provider that can be run.
#[derive(Debug, Clone, Copy)]
pub struct Provider {
    /// The component it is.
    pub component: &'static str,
    /// Labels of its definitions: which of their versions speak which contract.
    labels: &'static [(&'static str, &'static str)],
    /// The flag that says where its health is served.
    health_flag: &'static str,
    /// Whether it takes Cluster API's flags for diagnostics.
    diagnostics: bool,
    /// Whether its webhooks run here; those of CAPMOX cannot, they insist on one port of all interfaces.
    webhooks: bool,
    flags: &'static [&'static str],
}

const KUBEADM_LABELS: &[(&str, &str)] = &[
    ("cluster.x-k8s.io/v1beta1", "v1beta1"),
    ("cluster.x-k8s.io/v1beta2", "v1beta2"),
];

impl Provider {
    /// Cluster API itself, with ClusterClass.
    pub const CORE: Self = Self {
        component: "capi-core",
        labels: &[],
        health_flag: "health-addr",
        diagnostics: true,
        webhooks: true,
        // What it missed it sees the next time it looks at everything, which by default is after ten minutes.
        flags: &["--feature-gates=ClusterTopology=true", "--sync-period=2m"],
    };
    /// The kubeadm bootstrap provider.
    pub const BOOTSTRAP: Self = Self {
        component: "capi-kubeadm-bootstrap",
        labels: KUBEADM_LABELS,
        flags: &["--feature-gates=KubeadmBootstrapFormatIgnition=true"],
        ..Self::CORE
    };
    /// The kubeadm control-plane provider.
    pub const CONTROL_PLANE: Self = Self {
        component: "capi-kubeadm-control-plane",
        labels: KUBEADM_LABELS,
        flags: &["--feature-gates=ClusterTopology=true"],
        ..Self::CORE
    };
    /// The address manager.
    pub const IPAM: Self = Self {
        component: "ipam-in-cluster",
        labels: &[],
        health_flag: "health-probe-bind-address",
        diagnostics: true,
        webhooks: true,
        flags: &[],
    };
    /// The provider that Oxmox takes the place of.
    pub const CAPMOX: Self = Self {
        component: "capmox",
        labels: &[
            ("cluster.x-k8s.io/provider", "infrastructure-proxmox"),
            ("cluster.x-k8s.io/v1beta1", "v1alpha2"),
            ("cluster.x-k8s.io/v1beta2", "v1alpha2"),
        ],
        health_flag: "health-probe-bind-address",
        diagnostics: true,
        webhooks: false,
        flags: &["--enable-webhooks=false"],
    };
    /// What Cluster API consists of, without a provider of infrastructure.
    pub const CLUSTER_API: &'static [Self] =
        &[Self::CORE, Self::BOOTSTRAP, Self::CONTROL_PLANE, Self::IPAM];
}

/// A manager did not come up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not built.
    #[error(transparent)]
    Assets(#[from] assets::Error),
    /// It cannot be started.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A file or a port cannot be had.
    #[error("cannot prepare the manager's files")]
    Io(#[from] std::io::Error),
    /// Its certificate cannot be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// A manifest is not YAML.
    #[error("cannot read {file}")]
    Manifest {
        /// The file.
        file: String,
        /// What is wrong.
        #[source]
        source: Box<serde_saphyr::Error>,
    },
    /// The API server does not answer.
    #[error("cannot apply the manager's manifests")]
    Client(#[from] crate::http::Error),
    /// The API server refuses a manifest.
    #[error("{name} was refused: {answer}")]
    Refused {
        /// The object.
        name: String,
        /// What the server said.
        answer: String,
    },
    /// It ended or never became ready.
    #[error("{name} {what}; its last words:\n{log}")]
    NotReady {
        /// The manager.
        name: &'static str,
        /// What it did instead.
        what: &'static str,
        /// The end of its log.
        log: String,
    },
}

/// A running manager; dropping it kills it.
#[derive(Debug)]
pub struct Manager {
    provider: Provider,
    process: Process,
    health: u16,
    webhook: Option<u16>,
}

impl Manager {
    /// Starts providers: first the definitions of all, then their processes. Returns once all are ready.
    pub async fn start(
        assets: &Assets,
        plane: &ControlPlane,
        providers: &[Provider],
    ) -> Result<Vec<Self>, Error> {
        let mut prepared = Vec::new();
        for provider in providers {
            let [health, webhook] = free_ports()?;
            let webhook = provider.webhooks.then_some(webhook);
            install(assets, plane, provider, webhook).await?;
            prepared.push((*provider, health, webhook));
        }
        for provider in providers {
            established(assets, plane, provider).await?;
        }
        let mut managers = Vec::new();
        for (provider, health, webhook) in prepared {
            let flags = flags(plane, &provider, health, webhook)?;
            let program = assets.program(provider.component)?;
            managers.push(Self {
                provider,
                process: Process::start(&program, &flags.0, plane.dir(), false)?,
                health,
                webhook,
            });
        }
        for manager in &managers {
            manager.ready().await?;
        }
        Ok(managers)
    }

    /// The process, for its log and its memory.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Which provider it is.
    pub fn component(&self) -> &'static str {
        self.provider.component
    }

    async fn ready(&self) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            let listens = match self.webhook {
                Some(port) => TcpStream::connect(("127.0.0.1", port)).await.is_ok(),
                None => true,
            };
            if listens && is_healthy(self.health).await {
                return Ok(());
            }
            let ended = self.process.has_ended();
            if ended || start.elapsed() > PATIENCE {
                return Err(Error::NotReady {
                    name: self.provider.component,
                    what: if ended {
                        "ended"
                    } else {
                        "did not become ready"
                    },
                    log: self.process.log_tail(),
                });
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Whether a manager says at this port of ours that it is ready.
pub async fn is_healthy(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = "GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(5), ask).await;
    matches!(answer, Ok(Ok(answer)) if answer.split(' ').nth(1) == Some("200"))
}

fn flags(
    plane: &ControlPlane,
    provider: &Provider,
    health: u16,
    webhook: Option<u16>,
) -> Result<Flags, Error> {
    let mut flags = Flags::default();
    flags
        .path("kubeconfig", &plane.kubeconfig())
        .set("leader-elect", "false")
        .set(provider.health_flag, &format!("127.0.0.1:{health}"));
    if provider.diagnostics {
        // Nobody reads metrics here; "0" means no listener.
        flags
            .set("diagnostics-address", "0")
            .set("insecure-diagnostics", "true");
    }
    if let Some(port) = webhook {
        let dir = plane.dir().join(format!("{}-certs", provider.component));
        std::fs::create_dir_all(&dir)?;
        let serving = plane.authority().server(&["127.0.0.1", "localhost"])?;
        std::fs::write(dir.join("tls.crt"), serving.cert)?;
        std::fs::write(dir.join("tls.key"), serving.key)?;
        flags
            .set("webhook-port", &port.to_string())
            .path("webhook-cert-dir", &dir)
            .set("webhook-cert-name", "tls.crt")
            .set("webhook-key-name", "tls.key");
    }
    flags
        .0
        .extend(provider.flags.iter().map(std::ffi::OsString::from));
    Ok(flags)
}

/// Applies a provider's definitions, and its webhook configurations where its webhooks run.
async fn install(
    assets: &Assets,
    plane: &ControlPlane,
    provider: &Provider,
    webhook: Option<u16>,
) -> Result<(), Error> {
    let reach = |path: &str, port: u16| {
        json!({
            "url": format!("https://127.0.0.1:{port}{path}"),
            "caBundle": STANDARD.encode(plane.authority().cert()),
        })
    };
    for mut crd in definitions(assets, provider)? {
        let versions = crd["spec"]["versions"].as_array().map_or(0, Vec::len);
        crd["spec"]["conversion"] = match webhook {
            Some(port) if versions > 1 => json!({
                "strategy": "Webhook",
                "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": reach("/convert", port)},
            }),
            _ => json!({"strategy": "None"}),
        };
        // By it clusterctl knows what to move.
        crd["metadata"]["labels"]["clusterctl.cluster.x-k8s.io"] = json!("");
        for (name, value) in provider.labels {
            crd["metadata"]["labels"][*name] = json!(value);
        }
        apply(plane, &crd).await?;
    }
    let file = assets.manifests(provider.component)?.join("webhook.yaml");
    let Some(port) = webhook.filter(|_| file.is_file()) else {
        return Ok(());
    };
    for mut configuration in documents(&file)? {
        let name = configuration["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        configuration["metadata"]["name"] = json!(format!("{}-{name}", provider.component));
        for hook in configuration["webhooks"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            let path = hook["clientConfig"]["service"]["path"]
                .as_str()
                .unwrap_or("/")
                .to_owned();
            hook["clientConfig"] = reach(&path, port);
        }
        apply(plane, &configuration).await?;
    }
    Ok(())
}

fn definitions(assets: &Assets, provider: &Provider) -> Result<Vec<Value>, Error> {
    let dir = assets.manifests(provider.component)?.join("crd");
    let mut files = std::fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    files.sort();
    let mut all = Vec::new();
    for file in files {
        all.extend(documents(&file)?);
    }
    Ok(all)
}

fn documents(file: &Path) -> Result<Vec<Value>, Error> {
    let text = std::fs::read_to_string(file)?;
    // The parser's limits are for strangers' input; these definitions are large and known.
    let options = serde_saphyr::options! { budget: None };
    serde_saphyr::from_multiple_with_options(&text, options).map_err(|source| Error::Manifest {
        file: file.display().to_string(),
        source: Box::new(source),
    })
}

/// Applies an object without a namespace, as its only owner.
async fn apply(plane: &ControlPlane, object: &Value) -> Result<(), Error> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/apis/{version}/{kind}s/{name}?fieldManager=testbed&force=true");
    let kinds = [("content-type", "application/apply-patch+yaml")];
    let body = Bytes::from(object.to_string());
    let answer = plane
        .client()
        .send(&Method::PATCH, &path, &kinds, body)
        .await?;
    if answer.status.is_success() {
        return Ok(());
    }
    Err(Error::Refused {
        name: name.to_owned(),
        answer: String::from_utf8_lossy(&answer.body).into_owned(),
    })
}

/// Waits until a provider's kinds are served.
async fn established(
    assets: &Assets,
    plane: &ControlPlane,
    provider: &Provider,
) -> Result<(), Error> {
    for crd in definitions(assets, provider)? {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let start = Instant::now();
        loop {
            let answer = plane
                .client()
                .send(&Method::GET, &path, &[], Bytes::new())
                .await?;
            let shown: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let conditions = shown["status"]["conditions"].as_array();
            let served = conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "Established" && condition["status"] == "True"
            });
            if served {
                break;
            }
            if start.elapsed() > PATIENCE {
                return Err(Error::Refused {
                    name: name.to_owned(),
                    answer: "it is not served".to_owned(),
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}
