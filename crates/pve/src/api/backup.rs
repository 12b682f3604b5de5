//! Backups, and the way back from them.
//!
//! A backup is a volume of content `backup`; it is listed and removed like any volume. A restore is a creation with
//! an archive.

use crate::api::node::Node;
use crate::client::Call;
use crate::config::GuestConfig;
use crate::error::{Error, Result};
use crate::id::{PoolId, StorageId, Vmid, VolumeId};
use crate::params::Params;
use crate::upid::Upid;
use crate::{CreateLxc, CreateQemu};

/// What to back up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// These guests.
    Guests(Vec<Vmid>),
    /// All guests of the pool.
    Pool(PoolId),
    /// All guests of the node.
    All,
}

/// A backup to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// What.
    pub selection: Selection,
    /// Where to.
    pub storage: Option<StorageId>,
    /// `snapshot`, `suspend` or `stop`.
    pub mode: Option<String>,
    /// `zstd`, `gzip`, `lzo` or `0`.
    pub compress: Option<String>,
    /// Whether old backups are removed by the storage's rules; the server does unless told.
    pub remove: Option<bool>,
    /// Whether it must not be removed.
    pub protected: Option<bool>,
    /// Its note, with `{{guestname}}` and others filled in.
    pub notes_template: Option<String>,
    /// The most to read, in KiB/s.
    pub bwlimit: Option<u64>,
}

impl Backup {
    /// A backup of one guest with the server's defaults.
    pub fn of(vmid: Vmid, storage: StorageId) -> Self {
        Self {
            selection: Selection::Guests(vec![vmid]),
            storage: Some(storage),
            mode: None,
            compress: None,
            remove: None,
            protected: None,
            notes_template: None,
            bwlimit: None,
        }
    }

    fn params(&self) -> Params {
        let params = match &self.selection {
            Selection::Guests(guests) => Params::new().list("vmid", guests),
            Selection::Pool(pool) => Params::new().with("pool", pool),
            Selection::All => Params::new().with("all", 1),
        };
        params
            .maybe("storage", self.storage.as_ref())
            .maybe("mode", self.mode.as_ref())
            .maybe("compress", self.compress.as_ref())
            .choice("remove", self.remove)
            .choice("protected", self.protected)
            .maybe("notes-template", self.notes_template.as_ref())
            .maybe("bwlimit", self.bwlimit)
    }
}

impl Node {
    /// Makes backups, one guest after the other, in one task.
    pub async fn backup(&self, backup: &Backup) -> Result<Upid> {
        if matches!(&backup.selection, Selection::Guests(guests) if guests.is_empty()) {
            return Err(Error::Request {
                text: "a backup needs at least one guest".to_owned(),
            });
        }
        self.client
            .call(Call::post("vzdump", self.path("/vzdump")).params(backup.params()))
            .await
    }

    /// Makes a virtual machine of a backup; keys of `config` replace those of the backup.
    pub async fn restore_qemu(
        &self,
        vmid: Vmid,
        archive: &VolumeId,
        storage: Option<&StorageId>,
        config: GuestConfig,
    ) -> Result<Upid> {
        let create = CreateQemu {
            archive: Some(archive.to_string()),
            storage: storage.cloned(),
            unique: true,
            ..CreateQemu::new(vmid, config)
        };
        self.create_qemu(&create).await
    }

    /// Makes a container of a backup; keys of `config` replace those of the backup.
    pub async fn restore_lxc(
        &self,
        vmid: Vmid,
        archive: &VolumeId,
        storage: Option<&StorageId>,
        config: GuestConfig,
    ) -> Result<Upid> {
        let create = CreateLxc {
            restore: true,
            unprivileged: None,
            storage: storage.cloned(),
            unique: true,
            ..CreateLxc::new(vmid, archive.to_string(), config)
        };
        self.create_lxc(&create).await
    }
}
