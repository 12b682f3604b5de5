//! What virtual machines and containers have in common.

pub mod console;
pub mod migrate;
pub mod power;
pub mod snapshot;

use serde::Deserialize;

use crate::client::{Call, Client};
use crate::config::{ConfigChange, GuestConfig};
use crate::error::{Error, Result};
use crate::id::{GuestKind, NodeName, Vmid};
use crate::params::Params;
use crate::scalar;
use crate::upid::Upid;

/// One guest on one node.
///
/// [`crate::Qemu`] and [`crate::Lxc`] lead here for everything that both families do alike.
#[derive(Debug, Clone)]
pub struct Guest {
    pub(crate) client: Client,
    pub(crate) node: NodeName,
    pub(crate) vmid: Vmid,
    pub(crate) kind: GuestKind,
}

/// Which configuration to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConfigView<'a> {
    /// What the guest will have after its next start, pending changes included.
    #[default]
    Next,
    /// What the guest has now.
    Current,
    /// What the guest had when the snapshot was made.
    Snapshot(&'a str),
}

/// One key of a configuration with its pending change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PendingValue {
    /// The key.
    pub key: String,
    /// What the guest has now.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub value: Option<String>,
    /// What it will have.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub pending: Option<String>,
    /// Whether the key will go; 2 if by force.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub delete: Option<u32>,
}

impl PendingValue {
    /// Whether a change waits for the next start.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some() || self.delete.is_some_and(|delete| delete > 0)
    }
}

/// How a guest does.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GuestStatus {
    /// Its number.
    #[serde(deserialize_with = "scalar::optional")]
    pub vmid: Option<Vmid>,
    /// Its name.
    #[serde(deserialize_with = "scalar::optional")]
    pub name: Option<String>,
    /// `running` or `stopped`.
    pub status: String,
    /// What QEMU says: also `paused`, `prelaunch`, ...
    #[serde(deserialize_with = "scalar::optional")]
    pub qmpstatus: Option<String>,
    /// The lock on it.
    #[serde(deserialize_with = "scalar::optional")]
    pub lock: Option<String>,
    /// Its tags.
    #[serde(deserialize_with = "scalar::list")]
    pub tags: Vec<String>,
    /// Whether it is a template.
    #[serde(deserialize_with = "scalar::flag")]
    pub template: bool,
    /// Whether an agent is configured; not whether it lives.
    #[serde(deserialize_with = "scalar::flag")]
    pub agent: bool,
    /// The process, while it runs.
    #[serde(deserialize_with = "scalar::optional")]
    pub pid: Option<u64>,
    /// Seconds since start.
    #[serde(deserialize_with = "scalar::optional")]
    pub uptime: Option<u64>,
    /// Number of CPUs.
    #[serde(deserialize_with = "scalar::optional")]
    pub cpus: Option<f64>,
    /// Used share of its CPUs.
    #[serde(deserialize_with = "scalar::optional")]
    pub cpu: Option<f64>,
    /// Used memory in bytes.
    #[serde(deserialize_with = "scalar::optional")]
    pub mem: Option<u64>,
    /// Memory in bytes.
    #[serde(deserialize_with = "scalar::optional")]
    pub maxmem: Option<u64>,
    /// Memory its host spends on it, in bytes; since 9.
    #[serde(deserialize_with = "scalar::optional")]
    pub memhost: Option<u64>,
    /// Size of its boot disk in bytes.
    #[serde(deserialize_with = "scalar::optional")]
    pub maxdisk: Option<u64>,
    /// What high availability does with it.
    pub ha: Option<HaStatus>,
    /// The machine type it runs with.
    #[serde(rename = "running-machine", deserialize_with = "scalar::optional")]
    pub running_machine: Option<String>,
    /// The QEMU it runs with.
    #[serde(rename = "running-qemu", deserialize_with = "scalar::optional")]
    pub running_qemu: Option<String>,
}

impl GuestStatus {
    /// Whether it runs, paused or not.
    pub fn is_running(&self) -> bool {
        self.status == "running"
    }
}

/// What high availability does with a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HaStatus {
    /// Whether it cares for the guest.
    #[serde(deserialize_with = "scalar::flag")]
    pub managed: bool,
    /// The state it wants.
    #[serde(deserialize_with = "scalar::optional")]
    pub state: Option<String>,
}

/// What to remove together with a guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeleteGuest {
    /// Also from backup jobs, replication and high availability.
    pub purge: bool,
    /// Also volumes that carry the guest's number and are not in its configuration.
    pub unreferenced_disks: bool,
    /// Also while it runs; containers only.
    pub force: bool,
}

/// Whether a guest's storages can do something.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Feature {
    /// Whether they can.
    #[serde(rename = "hasFeature", deserialize_with = "scalar::flag")]
    pub has: bool,
    /// The nodes where they can.
    #[serde(default)]
    pub nodes: Vec<NodeName>,
}

impl Guest {
    /// Its number.
    pub fn vmid(&self) -> Vmid {
        self.vmid
    }

    /// Its node.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// Its family.
    pub fn kind(&self) -> GuestKind {
        self.kind
    }

    /// How it does, asked at the source.
    pub async fn status(&self) -> Result<GuestStatus> {
        let name = self.named("qemu.status", "lxc.status");
        self.client
            .call(Call::get(name, self.path("/status/current")))
            .await
    }

    /// Its configuration.
    pub async fn config(&self, view: ConfigView<'_>) -> Result<GuestConfig> {
        let params = match view {
            ConfigView::Next => Params::new(),
            ConfigView::Current => Params::new().with("current", 1),
            ConfigView::Snapshot(name) => Params::new().with("snapshot", name),
        };
        let name = self.named("qemu.config.get", "lxc.config.get");
        self.client
            .call(Call::get(name, self.path("/config")).params(params))
            .await
    }

    /// Its configuration with pending changes beside.
    pub async fn pending(&self) -> Result<Vec<PendingValue>> {
        self.client
            .call(Call::get(
                self.named("qemu.pending", "lxc.pending"),
                self.path("/pending"),
            ))
            .await
    }

    /// Changes its configuration and returns when that is done.
    ///
    /// On a running guest what cannot be plugged stays pending. New disks on slow storage take longer than servers
    /// wait for one another; for virtual machines [`crate::Qemu::configure_in_task`] is the better way then.
    pub async fn configure(&self, change: &ConfigChange) -> Result<()> {
        let name = self.named("qemu.config.put", "lxc.config.put");
        self.client
            .call(Call::put(name, self.path("/config")).params(change.params()))
            .await
    }

    /// Makes it a template, for good. Containers do it on the spot, without a task.
    pub async fn make_template(&self) -> Result<Option<Upid>> {
        let name = self.named("qemu.template", "lxc.template");
        self.client
            .call(Call::post(name, self.path("/template")))
            .await
    }

    /// Destroys it with its disks.
    pub async fn delete(&self, also: DeleteGuest) -> Result<Upid> {
        self.containers_only("force of delete", also.force)?;
        let params = Params::new()
            .flag("purge", also.purge)
            .flag("destroy-unreferenced-disks", also.unreferenced_disks)
            .flag("force", also.force);
        let name = self.named("qemu.delete", "lxc.delete");
        self.client
            .call(Call::delete(name, self.path("")).params(params))
            .await
    }

    /// Whether its storages can do something: `snapshot`, `clone` or `copy`.
    pub async fn feature(&self, feature: &str, snapshot: Option<&str>) -> Result<Feature> {
        let params = Params::new()
            .with("feature", feature)
            .maybe("snapname", snapshot);
        let name = self.named("qemu.feature", "lxc.feature");
        self.client
            .call(Call::get(name, self.path("/feature")).params(params))
            .await
    }

    fn containers_only(&self, what: &str, wanted: bool) -> Result<()> {
        if wanted && self.kind == GuestKind::Qemu {
            return Err(Error::Request {
                text: format!("{what} is for containers only"),
            });
        }
        Ok(())
    }

    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/nodes/{}/{}/{}{rest}", self.node, self.kind, self.vmid)
    }

    pub(crate) fn named(&self, qemu: &'static str, lxc: &'static str) -> &'static str {
        match self.kind {
            GuestKind::Qemu => qemu,
            GuestKind::Lxc => lxc,
        }
    }
}
