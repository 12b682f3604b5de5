//! The servers under test, each in processes of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tempfile::TempDir;
use testbed::http::{Client, Credentials};
use testbed::pki::Identity;
use testbed::process::Process;
use testbed::{ControlPlane, Options, assets};
use tokio::process::Child;
use tokio::time::{Instant, sleep};

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ours.
    Embedded,
    /// etcd and kube-apiserver.
    Durable,
    /// The same, with an etcd that does not wait for the disk.
    Hasty,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded, durable",
            Self::Durable => "kube-apiserver + etcd, durable",
            Self::Hasty => "kube-apiserver + etcd, no fsync",
        }
    }
}

/// A running server.
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    /// From starting the processes to the first positive answer of `/readyz`.
    pub(crate) started_in: Duration,
    client: Client,
    credentials: Credentials,
    running: Running,
}

enum Running {
    /// The process, and the directory of its data.
    Embedded(Box<(Child, TempDir)>),
    Real(Box<ControlPlane>),
}

impl Subject {
    pub(crate) async fn start(kind: Kind) -> Result<Self> {
        match kind {
            Kind::Embedded => embedded().await,
            Kind::Durable => real(kind, true).await,
            Kind::Hasty => real(kind, false).await,
        }
    }

    /// A client with a connection of its own.
    pub(crate) fn client(&self) -> Result<Client> {
        Ok(self.client.with(&self.credentials)?)
    }

    /// The memory that its processes hold, in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        let pids = match &self.running {
            Running::Embedded(running) => vec![running.0.id().context("the server has ended")?],
            Running::Real(plane) => plane.processes().iter().map(Process::pid).collect(),
        };
        pids.into_iter().map(resident).sum()
    }
}

async fn real(kind: Kind, durable: bool) -> Result<Subject> {
    let assets = assets();
    let options = Options {
        durable,
        apiserver_flags: vec!["--disable-admission-plugins=ServiceAccount".into()],
        ..Options::default()
    };
    let start = Instant::now();
    let plane = ControlPlane::start(&assets, &options).await?;
    Ok(Subject {
        kind,
        started_in: start.elapsed(),
        client: plane.client().clone(),
        credentials: Credentials::Certificate(plane.admin().clone()),
        running: Running::Real(Box::new(plane)),
    })
}

async fn embedded() -> Result<Subject> {
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    let start = Instant::now();
    let child = tokio::process::Command::new(std::env::current_exe()?)
        .arg("serve")
        .arg(directory.path())
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut found = None;
    while start.elapsed() < Duration::from_secs(30) {
        if found.is_none() {
            found = read(&kubeconfig).ok();
        }
        if let Some((client, _)) = &found {
            let answer = client
                .send(&Method::GET, "/readyz", &[], Bytes::new())
                .await;
            if answer.is_ok_and(|answer| answer.status.is_success()) {
                break;
            }
        }
        sleep(Duration::from_millis(2)).await;
    }
    let started_in = start.elapsed();
    let Some((client, credentials)) = found else {
        bail!("the embedded server did not start");
    };
    Ok(Subject {
        kind: Kind::Embedded,
        started_in,
        client,
        credentials,
        running: Running::Embedded(Box::new((child, directory))),
    })
}

/// The client that a kubeconfig describes.
fn read(kubeconfig: &Path) -> Result<(Client, Credentials)> {
    let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    let pem = |value: &Value| -> Result<String> {
        let text = STANDARD.decode(value.as_str().unwrap_or_default())?;
        Ok(String::from_utf8(text)?)
    };
    let cluster = &config["clusters"][0]["cluster"];
    let user = &config["users"][0]["user"];
    let credentials = Credentials::Certificate(Identity {
        cert: pem(&user["client-certificate-data"])?,
        key: pem(&user["client-key-data"])?,
    });
    let ca = pem(&cluster["certificate-authority-data"])?;
    let server = cluster["server"].as_str().unwrap_or_default();
    Ok((Client::new(server, &ca, &credentials)?, credentials))
}

/// Runs the embedded server until standard input ends, which it does when the benchmark does.
pub(crate) async fn serve(directory: PathBuf) -> Result<()> {
    let server = apiserver::Server::start(apiserver::Config::new(directory)).await?;
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .await??;
    server.shutdown().await;
    Ok(())
}

/// The resident memory of a process.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("the process has no memory")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kilobytes * 1024)
}
