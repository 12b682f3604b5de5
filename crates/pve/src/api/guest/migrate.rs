//! Moves guests to other nodes.

use serde::Deserialize;

use crate::client::Call;
use crate::error::{Error, Result};
use crate::id::NodeName;
use crate::params::Params;
use crate::upid::Upid;
use crate::{Lxc, Qemu, scalar};

/// How to move a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrateQemu {
    /// Where to.
    pub target: NodeName,
    /// Whether it may run meanwhile; on a stopped machine it has no effect.
    pub online: bool,
    /// Whether disks on local storage are copied.
    pub with_local_disks: bool,
    /// Where disks go: one storage, pairs like `a:b,c:d`, or `1` for storages of the same name.
    pub targetstorage: Option<String>,
    /// The most to transfer, in KiB/s.
    pub bwlimit: Option<u64>,
    /// Whether the state of network connections moves too; since 9.
    pub with_conntrack_state: bool,
}

impl MigrateQemu {
    /// A move while it runs.
    pub fn online(target: NodeName) -> Self {
        Self {
            target,
            online: true,
            with_local_disks: false,
            targetstorage: None,
            bwlimit: None,
            with_conntrack_state: false,
        }
    }
}

/// How to move a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrateLxc {
    /// Where to.
    pub target: NodeName,
    /// Whether a running one is stopped, moved and started again.
    pub restart: bool,
    /// How long it has to stop, in seconds.
    pub timeout: Option<u32>,
    /// Where volumes go.
    pub target_storage: Option<String>,
    /// The most to transfer, in KiB/s.
    pub bwlimit: Option<u64>,
}

impl MigrateLxc {
    /// A move that stops it and starts it again.
    pub fn restart(target: NodeName) -> Self {
        Self {
            target,
            restart: true,
            timeout: None,
            target_storage: None,
            bwlimit: None,
        }
    }
}

/// What stands in the way of a move.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MigrationCheck {
    /// Whether it runs.
    #[serde(deserialize_with = "scalar::flag")]
    pub running: bool,
    /// The nodes it could move to; only known of stopped machines.
    pub allowed_nodes: Option<Vec<NodeName>>,
    /// Why it could not move to the others.
    pub not_allowed_nodes: serde_json::Map<String, serde_json::Value>,
    /// Disks on local storage.
    pub local_disks: Vec<LocalDisk>,
    /// Devices and others that bind it to its node.
    pub local_resources: Vec<String>,
    /// Devices that other nodes may have too.
    #[serde(rename = "mapped-resources")]
    pub mapped_resources: Vec<String>,
}

/// A disk on local storage.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LocalDisk {
    /// The volume.
    pub volid: String,
    /// Whether it is a CD drive.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub cdrom: bool,
    /// Its size in bytes.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub size: Option<u64>,
}

impl Qemu {
    /// What stands in the way of a move.
    pub async fn migration_check(&self, target: Option<&NodeName>) -> Result<MigrationCheck> {
        let params = Params::new().maybe("target", target);
        self.client
            .call(Call::get("qemu.migrate.check", self.path("/migrate")).params(params))
            .await
    }

    /// Moves it to another node. When the task has ended well, its configuration is there.
    pub async fn migrate(&self, how: &MigrateQemu) -> Result<Upid> {
        let params = Params::new()
            .with("target", &how.target)
            .flag("online", how.online)
            .flag("with-local-disks", how.with_local_disks)
            .maybe("targetstorage", how.targetstorage.as_ref())
            .maybe("bwlimit", how.bwlimit)
            .flag("with-conntrack-state", how.with_conntrack_state);
        self.client
            .call(Call::post("qemu.migrate", self.path("/migrate")).params(params))
            .await
    }
}

impl Lxc {
    /// Moves it to another node.
    pub async fn migrate(&self, how: &MigrateLxc) -> Result<Upid> {
        if how.timeout.is_some() && !how.restart {
            return Err(Error::Request {
                text: "timeout of a move needs restart".to_owned(),
            });
        }
        let params = Params::new()
            .with("target", &how.target)
            .flag("restart", how.restart)
            .maybe("timeout", how.timeout)
            .maybe("target-storage", how.target_storage.as_ref())
            .maybe("bwlimit", how.bwlimit);
        self.client
            .call(Call::post("lxc.migrate", self.path("/migrate")).params(params))
            .await
    }
}
