//! Snapshots of guests.

use serde::Deserialize;

use super::Guest;
use crate::client::Call;
use crate::error::{Error, Result};
use crate::id::{GuestKind, SnapshotName};
use crate::params::Params;
use crate::scalar;
use crate::upid::Upid;

/// A snapshot in the list; the entry `current` stands for the guest of now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The one it was made after.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub parent: Option<String>,
    /// When, in seconds since 1970.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub snaptime: Option<u64>,
    /// Whether it holds the memory too.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub vmstate: bool,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub description: Option<String>,
    /// What is being done to it, such as `prepare`; one that was left like this is not complete.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub snapstate: Option<String>,
    /// Whether the guest runs; of `current` only.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub running: bool,
}

impl Snapshot {
    /// Whether this is the guest of now instead of a snapshot.
    pub fn is_current(&self) -> bool {
        self.name == "current"
    }
}

/// A snapshot to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSnapshot {
    /// Its name.
    pub name: SnapshotName,
    /// A note.
    pub description: Option<String>,
    /// Whether to keep the memory too; virtual machines only.
    pub vmstate: bool,
}

impl CreateSnapshot {
    /// A snapshot of the disks.
    pub fn new(name: SnapshotName) -> Self {
        Self {
            name,
            description: None,
            vmstate: false,
        }
    }
}

impl Guest {
    /// Its snapshots, with `current` among them.
    pub async fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.client
            .call(Call::get(
                self.named("qemu.snapshot.list", "lxc.snapshot.list"),
                self.path("/snapshot"),
            ))
            .await
    }

    /// Makes a snapshot.
    pub async fn snapshot(&self, snapshot: &CreateSnapshot) -> Result<Upid> {
        if snapshot.vmstate && self.kind == GuestKind::Lxc {
            return Err(Error::Request {
                text: "a container has no memory state to keep".to_owned(),
            });
        }
        let params = Params::new()
            .with("snapname", &snapshot.name)
            .maybe("description", snapshot.description.as_ref())
            .flag("vmstate", snapshot.vmstate);
        let name = self.named("qemu.snapshot.create", "lxc.snapshot.create");
        self.client
            .call(Call::post(name, self.path("/snapshot")).params(params))
            .await
    }

    /// Goes back to a snapshot, and starts the guest if asked to.
    pub async fn rollback(&self, snapshot: &SnapshotName, start: bool) -> Result<Upid> {
        let name = self.named("qemu.snapshot.rollback", "lxc.snapshot.rollback");
        let path = self.path(&format!("/snapshot/{snapshot}/rollback"));
        self.client
            .call(Call::post(name, path).params(Params::new().flag("start", start)))
            .await
    }

    /// Removes a snapshot; with force also when a disk's part of it cannot be removed.
    pub async fn delete_snapshot(&self, snapshot: &SnapshotName, force: bool) -> Result<Upid> {
        let name = self.named("qemu.snapshot.delete", "lxc.snapshot.delete");
        let path = self.path(&format!("/snapshot/{snapshot}"));
        self.client
            .call(Call::delete(name, path).params(Params::new().flag("force", force)))
            .await
    }

    /// Changes the note of a snapshot.
    pub async fn describe_snapshot(
        &self,
        snapshot: &SnapshotName,
        description: &str,
    ) -> Result<()> {
        let name = self.named("qemu.snapshot.update", "lxc.snapshot.update");
        let path = self.path(&format!("/snapshot/{snapshot}/config"));
        self.client
            .call(Call::put(name, path).params(Params::new().with("description", description)))
            .await
    }
}
