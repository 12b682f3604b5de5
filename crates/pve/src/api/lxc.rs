//! Containers.

use std::ops::Deref;

use serde::Deserialize;

use super::guest::{Guest, GuestStatus};
use super::node::Node;
use super::qemu::CloneGuest;
use crate::client::Call;
use crate::config::GuestConfig;
use crate::error::{Error, Result};
use crate::id::{GuestKind, PoolId, StorageId, Vmid};
use crate::params::Params;
use crate::scalar;
use crate::upid::Upid;

/// One container on one node.
#[derive(Debug, Clone)]
pub struct Lxc(Guest);

impl Deref for Lxc {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.0
    }
}

/// A container to create, with its whole configuration in one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateLxc {
    /// Its number.
    pub vmid: Vmid,
    /// The template it is made from, or the backup it is restored from.
    pub ostemplate: String,
    /// Every key it shall have, such as `hostname`, `rootfs` and `net0`; also `password` and `ssh-public-keys`.
    pub config: GuestConfig,
    /// Whether root inside is nobody outside. The server's default differs between releases, so it is sent, unless a restored
    /// container is to be what it was.
    pub unprivileged: Option<bool>,
    /// The pool to put it in.
    pub pool: Option<PoolId>,
    /// Where volumes go that do not say so themselves.
    pub storage: Option<StorageId>,
    /// Whether to start it when it is made.
    pub start: bool,
    /// Whether the template is a backup.
    pub restore: bool,
    /// Whether a restore may overwrite an existing guest.
    pub force: bool,
    /// Whether a restore gives new hardware addresses.
    pub unique: bool,
}

impl CreateLxc {
    /// An unprivileged container that is not started.
    pub fn new(vmid: Vmid, ostemplate: impl Into<String>, config: GuestConfig) -> Self {
        Self {
            vmid,
            ostemplate: ostemplate.into(),
            config,
            unprivileged: Some(true),
            pool: None,
            storage: None,
            start: false,
            restore: false,
            force: false,
            unique: false,
        }
    }

    fn params(&self) -> Params {
        let mut params = Params::new()
            .with("vmid", self.vmid)
            .with("ostemplate", &self.ostemplate);
        self.config.add_to(&mut params);
        params
            .maybe("unprivileged", self.unprivileged.map(u8::from))
            .maybe("pool", self.pool.as_ref())
            .maybe("storage", self.storage.as_ref())
            .flag("start", self.start)
            .flag("restore", self.restore)
            .flag("force", self.force)
            .flag("unique", self.unique)
    }
}

/// A network interface of a running container, as its host sees it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ContainerInterface {
    /// Its name.
    pub name: String,
    /// Its hardware address, in lower case.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub hwaddr: Option<String>,
    /// Its IPv4 address with prefix length.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub inet: Option<String>,
    /// Its IPv6 address with prefix length.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub inet6: Option<String>,
}

/// Where to move a volume of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveVolume {
    /// To another storage.
    Storage(StorageId),
    /// To another container, to another slot if given.
    Container(Vmid, Option<String>),
}

impl Node {
    /// Its containers.
    pub async fn lxc_list(&self) -> Result<Vec<GuestStatus>> {
        self.client
            .call(Call::get("lxc.list", self.path("/lxc")))
            .await
    }

    /// Creates a container.
    pub async fn create_lxc(&self, create: &CreateLxc) -> Result<Upid> {
        self.client
            .call(Call::post("lxc.create", self.path("/lxc")).params(create.params()))
            .await
    }
}

impl Lxc {
    pub(crate) fn new(node: &Node, vmid: Vmid) -> Self {
        Self(Guest {
            client: node.client.clone(),
            node: node.name.clone(),
            vmid,
            kind: GuestKind::Lxc,
        })
    }

    /// Copies it.
    pub async fn clone_to(&self, clone: &CloneGuest) -> Result<Upid> {
        if clone.format.is_some() {
            return Err(Error::Request {
                text: "a container's copy has no disk format to choose".to_owned(),
            });
        }
        self.client
            .call(Call::post("lxc.clone", self.path("/clone")).params(clone.params(GuestKind::Lxc)))
            .await
    }

    /// Grows a volume (`rootfs`, `mp0`, ...): `+10G` by, `50G` to.
    pub async fn resize(&self, volume: &str, size: &str, digest: Option<&str>) -> Result<Upid> {
        let params = Params::new()
            .with("disk", volume)
            .with("size", size)
            .maybe("digest", digest);
        self.client
            .call(Call::put("lxc.resize", self.path("/resize")).params(params))
            .await
    }

    /// Moves a volume; the source becomes `unusedN` unless it shall be removed.
    pub async fn move_volume(
        &self,
        volume: &str,
        to: &MoveVolume,
        remove_source: bool,
        digest: Option<&str>,
    ) -> Result<Upid> {
        let params = Params::new().with("volume", volume);
        let params = match to {
            MoveVolume::Storage(storage) => params.with("storage", storage),
            MoveVolume::Container(vmid, slot) => params
                .with("target-vmid", vmid)
                .maybe("target-volume", slot.as_ref()),
        };
        let params = params.flag("delete", remove_source).maybe("digest", digest);
        self.client
            .call(Call::post("lxc.move_volume", self.path("/move_volume")).params(params))
            .await
    }

    /// Its network interfaces, without any agent; since 8.1.
    pub async fn interfaces(&self) -> Result<Vec<ContainerInterface>> {
        // A stopped container has none, which some releases say as null.
        let call = Call::get("lxc.interfaces", self.path("/interfaces"));
        Ok(self
            .client
            .call::<Option<Vec<_>>>(call)
            .await?
            .unwrap_or_default())
    }
}
