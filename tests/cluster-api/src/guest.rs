//! The software inside guests: cloud-init, kubeadm, the kubelet.

mod api_server;
mod cloud_init;
mod join;
mod kubeadm;
mod kubelet;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pve_sim::{Boot, Cluster, Seed};
use testbed::Assets;
use testbed::process::Process;
use tokio::time::{Instant, sleep};

use crate::bed::PATIENCE;
use kubelet::Kubelet;

/// Why something inside a guest did not work; it ends up in the guest's journal.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Tries until it works or takes too long, as kubeadm and the kubelet do: a new API server learns only by and by who may do
/// what, and a busy one does not always answer.
async fn again<T, F>(act: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let start = Instant::now();
    loop {
        match act().await {
            Err(_) if start.elapsed() < *PATIENCE => sleep(Duration::from_millis(500)).await,
            result => return result,
        }
    }
}

/// What guests run on, and what they leave behind.
pub(crate) struct Guests {
    assets: Assets,
    dir: tempfile::TempDir,
    /// By SMBIOS UUID.
    disks: Mutex<BTreeMap<String, Disk>>,
    /// API servers and controllers, by the endpoint they serve.
    servers: Mutex<BTreeMap<String, Vec<Process>>>,
    journal: Mutex<Vec<String>>,
}

/// What outlives a guest's reboots.
#[derive(Clone, Default)]
struct Disk {
    boots: u64,
    seed: Option<Seed>,
    kubelet: Option<Kubelet>,
}

impl Guests {
    pub(crate) fn new(assets: &Assets) -> Arc<Self> {
        let dir = tempfile::Builder::new().prefix("guests-").tempdir();
        Arc::new(Self {
            assets: assets.clone(),
            dir: dir.unwrap(),
            disks: Mutex::default(),
            servers: Mutex::default(),
            journal: Mutex::default(),
        })
    }

    /// Gives the guests of a Proxmox VE cluster their software.
    pub(crate) fn inhabit(self: &Arc<Self>, cluster: &Cluster) {
        let (guests, cluster) = (self.clone(), cluster.clone());
        let mut boots = cluster.boots();
        tokio::spawn(async move {
            while let Ok(boot) = boots.recv().await {
                let (guests, cluster) = (guests.clone(), cluster.clone());
                tokio::spawn(async move {
                    let name = boot.hostname.clone();
                    if let Err(failure) = guests.live(&cluster, boot).await {
                        guests.note(&format!("{name}: {failure}"));
                    }
                });
            }
        });
    }

    /// What guests had to complain about, newest last.
    pub(crate) fn journal(&self) -> Vec<String> {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.clone()
    }

    /// How often a guest has booted, and what it read when it last found something to read.
    pub(crate) fn past(&self, uuid: &str) -> (u64, Option<Seed>) {
        self.disk(uuid, |disk| (disk.boots, disk.seed.clone()))
    }

    fn note(&self, line: &str) {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.push(line.to_owned());
        if std::env::var_os("GUEST_LOG").is_some() {
            let _ = writeln!(std::io::stderr(), "guest {line}");
        }
    }

    /// One boot of a guest, until it is no longer up.
    async fn live(&self, cluster: &Cluster, boot: Boot) -> Result<(), Failure> {
        let uuid = boot.uuid.clone().ok_or("the guest has no UUID")?;
        let disk = self.disk(&uuid, |disk| {
            disk.boots += 1;
            if boot.seed.is_some() {
                disk.seed.clone_from(&boot.seed);
            }
            disk.clone()
        });
        let kubelet = if let Some(kubelet) = disk.kubelet {
            kubelet
        } else {
            let Some(seed) = &boot.seed else {
                return Ok(());
            };
            let read = cloud_init::read(seed)?;
            let Some(kubelet) = kubeadm::run(self, &boot, &read).await? else {
                return Ok(());
            };
            self.disk(&uuid, |disk| disk.kubelet = Some(kubelet.clone()));
            kubelet
        };
        let up = || {
            let same_boot = self.disk(&uuid, |now| now.boots) == disk.boots;
            same_boot
                && cluster
                    .interfaces(boot.vmid)
                    .is_ok_and(|interfaces| !interfaces.is_empty())
        };
        kubelet.run(&boot, up).await
    }

    fn disk<T>(&self, uuid: &str, act: impl FnOnce(&mut Disk) -> T) -> T {
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        act(disks.entry(uuid.to_owned()).or_default())
    }

    fn dir(&self, name: &str) -> Result<PathBuf, std::io::Error> {
        let dir = self.dir.path().join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Keeps the processes that serve an endpoint.
    fn keep(&self, endpoint: &str, processes: Vec<Process>) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.insert(endpoint.to_owned(), processes);
    }

    /// Ends what serves an endpoint: its cluster is gone.
    pub(crate) fn end(&self, endpoint: &str) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.remove(endpoint);
    }
}
