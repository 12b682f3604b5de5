//! A real control plane on loopback: etcd, kube-apiserver, and on request the controllers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::assets::{self, Assets};
use crate::http::{Client, Credentials};
use crate::kubeconfig;
use crate::pki::{Authority, Identity};
use crate::process::{self, Flags, Process, free_ports};

/// How long a component may take to become ready. Two seconds are usual; a loaded machine needs more.
const PATIENCE: Duration = Duration::from_mins(4);

/// A control plane did not come up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is not built.
    #[error(transparent)]
    Assets(#[from] assets::Error),
    /// A program cannot be started.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A certificate cannot be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// A file or a port cannot be had.
    #[error("cannot prepare the control plane's directory")]
    Io(#[from] std::io::Error),
    /// The client cannot be made.
    #[error("cannot make the client")]
    Client(#[from] crate::http::Error),
    /// A program ended or never became ready.
    #[error("{name} {what}; its last words:\n{log}")]
    NotReady {
        /// The program.
        name: String,
        /// What it did instead.
        what: &'static str,
        /// The end of its log.
        log: String,
    },
}

/// What to start, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Runs these controllers (`--controllers` of kube-controller-manager); none when empty.
    pub controllers: Vec<String>,
    /// Runs the scheduler.
    pub scheduler: bool,
    /// Lets etcd make its writes durable, for benchmarks; tests do without.
    pub durable: bool,
    /// Further flags for kube-apiserver.
    pub apiserver_flags: Vec<String>,
}

/// A running control plane. Dropping it stops everything and removes its directory.
#[derive(Debug)]
pub struct ControlPlane {
    // In the order of stopping.
    processes: Vec<Process>,
    dir: TempDir,
    authority: Authority,
    admin: Identity,
    client: Client,
    etcd_url: String,
}

impl ControlPlane {
    /// Starts a control plane and returns once kube-apiserver says that it is ready.
    ///
    /// A free port can be taken by somebody else between choosing and using it, so a component that
    /// ends at once is given another try on other ports.
    pub async fn start(assets: &Assets, options: &Options) -> Result<Self, Error> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match Self::attempt(assets, options).await {
                Err(Error::NotReady { what: ENDED, .. }) if attempt < 3 => {}
                result => return result,
            }
        }
    }

    async fn attempt(assets: &Assets, options: &Options) -> Result<Self, Error> {
        let dir = tempfile::Builder::new().prefix("testbed-").tempdir()?;
        let authority = Authority::new()?;
        let admin = authority.client("kubernetes-admin", &["system:masters"])?;
        let [etcd_port, peer_port, port] = free_ports()?;

        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let mut flags = Flags::default();
        flags
            .path("data-dir", &dir.path().join("etcd"))
            .set("listen-client-urls", &etcd_url)
            .set("advertise-client-urls", &etcd_url)
            .set("listen-peer-urls", &peer_url)
            .set("initial-advertise-peer-urls", &peer_url)
            .set("initial-cluster", &format!("default={peer_url}"))
            .set("log-level", "warn");
        if !options.durable {
            flags.set("unsafe-no-fsync", "true");
        }
        let etcd = Process::start(&assets.program("etcd")?, &flags.0, dir.path(), true)?;

        let url = format!("https://127.0.0.1:{port}");
        let flags = apiserver_flags(dir.path(), &authority, &etcd_url, port, options)?;
        let apiserver = assets.program("kube-apiserver")?;
        let apiserver = Process::start(&apiserver, &flags.0, dir.path(), false)?;
        kubeconfig::write(&dir.path().join(KUBECONFIG), &url, authority.cert(), &admin)?;
        let client = Client::new(
            &url,
            authority.cert(),
            &Credentials::Certificate(admin.clone()),
        )?;

        let mut plane = Self {
            processes: vec![apiserver, etcd],
            dir,
            authority,
            admin,
            client,
            etcd_url,
        };
        plane.wait_until_ready().await?;
        plane.start_controllers(assets, options)?;
        Ok(plane)
    }

    fn start_controllers(&mut self, assets: &Assets, options: &Options) -> Result<(), Error> {
        let kubeconfig = self.kubeconfig();
        let mut start = |program: &str, mut flags: Flags| {
            flags
                .path("kubeconfig", &kubeconfig)
                .path("authentication-kubeconfig", &kubeconfig)
                .path("authorization-kubeconfig", &kubeconfig)
                .set("bind-address", "127.0.0.1")
                // Port 0 means no listener at all.
                .set("secure-port", "0")
                .set("leader-elect", "false");
            let program = assets.program(program)?;
            let process = Process::start(&program, &flags.0, self.dir.path(), false)?;
            self.processes.insert(0, process);
            Ok::<_, Error>(())
        };
        if !options.controllers.is_empty() {
            let mut flags = Flags::default();
            flags
                .set("controllers", &options.controllers.join(","))
                .path(
                    "service-account-private-key-file",
                    &self.dir.path().join(SIGNING_KEY),
                )
                .path("root-ca-file", &self.dir.path().join(CA));
            start("kube-controller-manager", flags)?;
        }
        if options.scheduler {
            start("kube-scheduler", Flags::default())?;
        }
        Ok(())
    }

    async fn wait_until_ready(&self) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            let answer = self
                .client
                .send(&Method::GET, "/readyz", &[], Bytes::new())
                .await;
            if answer.is_ok_and(|answer| answer.status.is_success()) {
                return Ok(());
            }
            let ended = self.processes.iter().find(|process| process.has_ended());
            let late = self
                .processes
                .first()
                .filter(|_| start.elapsed() > PATIENCE);
            if let Some(process) = ended.or(late) {
                return Err(Error::NotReady {
                    name: process.name().into(),
                    what: if ended.is_some() {
                        ENDED
                    } else {
                        "did not become ready"
                    },
                    log: process.log_tail(),
                });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// A kubeconfig of a member of `system:masters`.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join(KUBECONFIG)
    }

    /// A client of a member of `system:masters`.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The certificate and key of that user.
    pub fn admin(&self) -> &Identity {
        &self.admin
    }

    /// The authority that clients trust, and that may introduce others to the server.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Where its etcd answers, for other API servers with prefixes of their own.
    pub fn etcd_url(&self) -> &str {
        &self.etcd_url
    }

    /// The directory of its files, which goes with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The processes, to be measured.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }
}

const ENDED: &str = "ended";
const KUBECONFIG: &str = "admin.kubeconfig";
const SIGNING_KEY: &str = "service-accounts.pem";
const CA: &str = "ca.pem";

fn apiserver_flags(
    dir: &Path,
    authority: &Authority,
    etcd_url: &str,
    port: u16,
    options: &Options,
) -> Result<Flags, Error> {
    let names = [
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "10.0.0.1",
    ];
    let serving = authority.server(&names)?;
    let signing = rcgen::KeyPair::generate()?;
    for (name, content) in [
        (CA, authority.cert()),
        ("serving.pem", &serving.cert),
        ("serving-key.pem", &serving.key),
        (SIGNING_KEY, &signing.serialize_pem()),
        ("service-accounts.pub", &signing.public_key_pem()),
    ] {
        std::fs::write(dir.join(name), content)?;
    }
    let mut flags = Flags::default();
    flags
        .set("etcd-servers", etcd_url)
        .set("bind-address", "127.0.0.1")
        .set("advertise-address", "127.0.0.1")
        .set("secure-port", &port.to_string())
        .path("cert-dir", dir)
        .path("tls-cert-file", &dir.join("serving.pem"))
        .path("tls-private-key-file", &dir.join("serving-key.pem"))
        .path("client-ca-file", &dir.join(CA))
        .set(
            "service-account-issuer",
            "https://kubernetes.default.svc.cluster.local",
        )
        .path(
            "service-account-key-file",
            &dir.join("service-accounts.pub"),
        )
        .path("service-account-signing-key-file", &dir.join(SIGNING_KEY))
        .set("service-cluster-ip-range", "10.0.0.0/24")
        .set("authorization-mode", "RBAC")
        .set("allow-privileged", "true")
        // Nothing routes to the `kubernetes` service here.
        .set("endpoint-reconciler-type", "none");
    flags
        .0
        .extend(options.apiserver_flags.iter().map(OsString::from));
    Ok(flags)
}
