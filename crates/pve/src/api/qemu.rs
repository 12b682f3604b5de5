//! Virtual machines.

pub mod agent;

use std::ops::Deref;

use serde::Deserialize;

use super::guest::{Guest, GuestStatus};
use super::node::Node;
use crate::client::Call;
use crate::config::{ConfigChange, GuestConfig};
use crate::error::Result;
use crate::id::{GuestKind, NodeName, PoolId, StorageId, Vmid};
use crate::params::Params;
use crate::upid::Upid;

/// One virtual machine on one node.
#[derive(Debug, Clone)]
pub struct Qemu(Guest);

impl Deref for Qemu {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.0
    }
}

/// A virtual machine to create, with its whole configuration in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateQemu {
    /// Its number.
    pub vmid: Vmid,
    /// Every key it shall have. A disk is `STORAGE:SIZE` in GiB, or `STORAGE:0,import-from=VOLUME` for a copy.
    pub config: GuestConfig,
    /// The pool to put it in.
    pub pool: Option<PoolId>,
    /// Whether to start it when it is made.
    pub start: bool,
    /// A backup to restore it from.
    pub archive: Option<String>,
    /// Whether a restore may overwrite an existing guest.
    pub force: bool,
    /// Whether a restore gives new hardware addresses.
    pub unique: bool,
    /// Where restored disks go.
    pub storage: Option<StorageId>,
    /// The most to read or write, in KiB/s.
    pub bwlimit: Option<u64>,
}

impl CreateQemu {
    /// A machine that is not started.
    pub fn new(vmid: Vmid, config: GuestConfig) -> Self {
        Self {
            vmid,
            config,
            pool: None,
            start: false,
            archive: None,
            force: false,
            unique: false,
            storage: None,
            bwlimit: None,
        }
    }

    fn params(&self) -> Params {
        let mut params = Params::new().with("vmid", self.vmid);
        self.config.add_to(&mut params);
        params
            .maybe("pool", self.pool.as_ref())
            .flag("start", self.start)
            .maybe("archive", self.archive.as_ref())
            .flag("force", self.force)
            .flag("unique", self.unique)
            .maybe("storage", self.storage.as_ref())
            .maybe("bwlimit", self.bwlimit)
    }
}

/// A copy to make of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneGuest {
    /// The copy's number.
    pub newid: Vmid,
    /// The copy's name.
    pub name: Option<String>,
    /// The copy's notes. They are written with the copy's first configuration, so an owner's mark is there at once.
    pub description: Option<String>,
    /// Whether to copy the disks (`true`) or to link to a template's (`false`); by default templates are linked.
    pub full: Option<bool>,
    /// Where full copies of disks go.
    pub storage: Option<StorageId>,
    /// The format of full copies: `raw`, `qcow2` or `vmdk`; virtual machines only.
    pub format: Option<String>,
    /// The snapshot to copy from.
    pub snapname: Option<String>,
    /// The node the copy shall be on, if all disks are shared.
    pub target: Option<NodeName>,
    /// The pool to put it in.
    pub pool: Option<PoolId>,
    /// The most to read or write, in KiB/s.
    pub bwlimit: Option<u64>,
}

impl CloneGuest {
    /// A copy with the server's defaults.
    pub fn new(newid: Vmid) -> Self {
        Self {
            newid,
            name: None,
            description: None,
            full: None,
            storage: None,
            format: None,
            snapname: None,
            target: None,
            pool: None,
            bwlimit: None,
        }
    }

    pub(crate) fn params(&self, kind: GuestKind) -> Params {
        let name = match kind {
            GuestKind::Qemu => "name",
            GuestKind::Lxc => "hostname",
        };
        Params::new()
            .with("newid", self.newid)
            .maybe(name, self.name.as_ref())
            .maybe("description", self.description.as_ref())
            .choice("full", self.full)
            .maybe("storage", self.storage.as_ref())
            .maybe("format", self.format.as_ref())
            .maybe("snapname", self.snapname.as_ref())
            .maybe("target", self.target.as_ref())
            .maybe("pool", self.pool.as_ref())
            .maybe("bwlimit", self.bwlimit)
    }
}

/// Where to move a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveTo {
    /// To another storage, in another format if given.
    Storage(StorageId, Option<String>),
    /// To another guest, to another slot if given.
    Guest(Vmid, Option<String>),
}

impl Node {
    /// Its virtual machines; with `full` also the numbers that cost more to find.
    pub async fn qemu_list(&self, full: bool) -> Result<Vec<GuestStatus>> {
        let call =
            Call::get("qemu.list", self.path("/qemu")).params(Params::new().flag("full", full));
        self.client.call(call).await
    }

    /// Creates a virtual machine.
    ///
    /// The number is taken when this returns; a failed task gives it back and leaves nothing behind.
    pub async fn create_qemu(&self, create: &CreateQemu) -> Result<Upid> {
        self.client
            .call(Call::post("qemu.create", self.path("/qemu")).params(create.params()))
            .await
    }
}

impl Qemu {
    pub(crate) fn new(node: &Node, vmid: Vmid) -> Self {
        Self(Guest {
            client: node.client.clone(),
            node: node.name.clone(),
            vmid,
            kind: GuestKind::Qemu,
        })
    }

    /// Copies it. Whether the number was free only the task's end tells.
    pub async fn clone_to(&self, clone: &CloneGuest) -> Result<Upid> {
        self.client
            .call(
                Call::post("qemu.clone", self.path("/clone")).params(clone.params(GuestKind::Qemu)),
            )
            .await
    }

    /// Changes its configuration in a task, which is right for whatever allocates disks.
    ///
    /// With `wait` (1 to 30 seconds) the call returns nothing if the task ended well within that time.
    pub async fn configure_in_task(
        &self,
        change: &ConfigChange,
        wait: Option<u8>,
    ) -> Result<Option<Upid>> {
        let params = change.params().maybe("background_delay", wait);
        self.client
            .call(Call::post("qemu.config.post", self.path("/config")).params(params))
            .await
    }

    /// Grows a disk: `+10G` by, `50G` to. PVE 7.4 does it on the spot, without a task.
    pub async fn resize(
        &self,
        disk: &str,
        size: &str,
        digest: Option<&str>,
    ) -> Result<Option<Upid>> {
        let params = Params::new()
            .with("disk", disk)
            .with("size", size)
            .maybe("digest", digest);
        self.client
            .call(Call::put("qemu.resize", self.path("/resize")).params(params))
            .await
    }

    /// Moves a disk; the source becomes `unusedN` unless it shall be removed.
    pub async fn move_disk(
        &self,
        disk: &str,
        to: &MoveTo,
        remove_source: bool,
        digest: Option<&str>,
    ) -> Result<Upid> {
        let params = Params::new().with("disk", disk);
        let params = match to {
            MoveTo::Storage(storage, format) => params
                .with("storage", storage)
                .maybe("format", format.as_ref()),
            MoveTo::Guest(vmid, slot) => params
                .with("target-vmid", vmid)
                .maybe("target-disk", slot.as_ref()),
        };
        let params = params.flag("delete", remove_source).maybe("digest", digest);
        self.client
            .call(Call::post("qemu.move_disk", self.path("/move_disk")).params(params))
            .await
    }

    /// Turns one disk into a base volume, also of what is a template already: one whose making stopped half way.
    pub async fn make_base(&self, disk: &str) -> Result<Upid> {
        let call = Call::post("qemu.template", self.path("/template"));
        self.client
            .call(call.params(Params::new().with("disk", disk)))
            .await
    }

    /// Takes disks out; with force their volumes are destroyed.
    pub async fn unlink<I>(&self, disks: I, force: bool) -> Result<()>
    where
        I: IntoIterator,
        I::Item: std::fmt::Display,
    {
        let params = Params::new().list("idlist", disks).flag("force", force);
        self.client
            .call(Call::put("qemu.unlink", self.path("/unlink")).params(params))
            .await
    }

    /// Starts it, giving QEMU this many seconds; the server's default grows with the memory.
    pub async fn start_within(&self, seconds: u32) -> Result<Upid> {
        self.power(
            "start",
            "qemu.start",
            Params::new().with("timeout", seconds),
        )
        .await
    }

    /// Presses the reset button.
    pub async fn reset(&self) -> Result<Upid> {
        self.power("reset", "qemu.reset", Params::new()).await
    }

    /// Writes its memory to disk and stops it.
    pub async fn hibernate(&self, storage: Option<&StorageId>) -> Result<Upid> {
        let params = Params::new()
            .with("todisk", 1)
            .maybe("statestorage", storage);
        self.power("suspend", "qemu.hibernate", params).await
    }

    /// Sends a key, such as `ctrl-alt-delete`.
    pub async fn send_key(&self, key: &str) -> Result<()> {
        let params = Params::new().with("key", key);
        self.client
            .call(Call::put("qemu.sendkey", self.path("/sendkey")).params(params))
            .await
    }

    /// Writes the cloud-init drive anew from the configuration.
    pub async fn regenerate_cloudinit(&self) -> Result<()> {
        self.client
            .call(Call::put("qemu.cloudinit.update", self.path("/cloudinit")))
            .await
    }

    /// What the cloud-init drive says: `user`, `network` or `meta`.
    pub async fn cloudinit_dump(&self, part: &str) -> Result<String> {
        let params = Params::new().with("type", part);
        self.client
            .call(Call::get("qemu.cloudinit.dump", self.path("/cloudinit/dump")).params(params))
            .await
    }

    /// The cloud-init keys with what the drive does not have yet.
    pub async fn cloudinit_pending(&self) -> Result<Vec<CloudInitValue>> {
        self.client
            .call(Call::get("qemu.cloudinit.pending", self.path("/cloudinit")))
            .await
    }
}

/// A cloud-init key as the drive has it, and as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CloudInitValue {
    /// The key.
    pub key: String,
    /// What the drive has.
    #[serde(default, deserialize_with = "crate::scalar::optional")]
    pub value: Option<String>,
    /// What it will have.
    #[serde(default, deserialize_with = "crate::scalar::optional")]
    pub pending: Option<String>,
    /// Whether it will go.
    #[serde(default, deserialize_with = "crate::scalar::flag")]
    pub delete: bool,
}
