//! Pools: guests and storages that share their grants.
//!
//! Since 8.1 a pool is named in the query, since its name may have slashes; before, in the path. The client asks the
//! release once and does what it takes.

use serde::Deserialize;

use crate::client::{Call, Client};
use crate::error::{Error, Object, Result};
use crate::id::{NodeName, PoolId, StorageId, Vmid};
use crate::params::Params;
use crate::scalar;

/// The calls about pools.
#[derive(Debug, Clone)]
pub struct Pools(Client);

impl Client {
    /// The calls about pools.
    pub fn pools(&self) -> Pools {
        Pools(self.clone())
    }
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Pool {
    /// Its name; absent in the answer of old releases for one pool.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub poolid: Option<PoolId>,
    /// A person's note.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub comment: Option<String>,
    /// What is in it, if one pool was asked for.
    #[serde(default)]
    pub members: Vec<PoolMember>,
}

/// A member of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PoolMember {
    /// Such as `qemu/101` or `storage/pve1/local`.
    pub id: String,
    /// `qemu`, `lxc` or `storage`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The guest's number.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub vmid: Option<Vmid>,
    /// The storage's name.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub storage: Option<StorageId>,
    /// The node.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub node: Option<NodeName>,
}

/// A change of a pool's members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolChange {
    /// A note.
    pub comment: Option<String>,
    /// Guests to add or to remove.
    pub vms: Vec<Vmid>,
    /// Storages to add or to remove.
    pub storages: Vec<StorageId>,
    /// Whether to remove instead of to add.
    pub delete: bool,
    /// Whether guests may come from another pool; since 8.1.
    pub allow_move: bool,
}

impl Pools {
    /// The pools, without their members.
    pub async fn list(&self) -> Result<Vec<Pool>> {
        self.0.call(Call::get("pools.list", "/pools")).await
    }

    /// One pool with its members.
    pub async fn get(&self, id: &PoolId) -> Result<Pool> {
        let (path, params) = self.place(id).await?;
        if path != "/pools" {
            return self.0.call(Call::get("pools.get", path)).await;
        }
        let found: Vec<Pool> = self
            .0
            .call(Call::get("pools.get", path).params(params))
            .await?;
        found.into_iter().next().ok_or_else(|| Error::NotFound {
            what: Object::Pool(id.to_string()),
            text: format!("pool '{id}' does not exist"),
        })
    }

    /// Adds a pool.
    pub async fn create(&self, id: &PoolId, comment: Option<&str>) -> Result<()> {
        if id.as_str().contains('/') {
            self.0
                .require("a pool inside of a pool", "8.1 or later", by_query)
                .await?;
        }
        let params = Params::new().with("poolid", id).maybe("comment", comment);
        self.0
            .call(Call::post("pools.create", "/pools").params(params))
            .await
    }

    /// Changes a pool.
    pub async fn update(&self, id: &PoolId, change: &PoolChange) -> Result<()> {
        let (path, params) = self.place(id).await?;
        let params = params
            .maybe("comment", change.comment.as_ref())
            .list("vms", &change.vms)
            .list("storage", &change.storages)
            .flag("delete", change.delete)
            .flag("allow-move", change.allow_move);
        self.0
            .call(Call::put("pools.update", path).params(params))
            .await
    }

    /// Removes an empty pool.
    pub async fn delete(&self, id: &PoolId) -> Result<()> {
        let (path, params) = self.place(id).await?;
        self.0
            .call(Call::delete("pools.delete", path).params(params))
            .await
    }

    async fn place(&self, id: &PoolId) -> Result<(String, Params)> {
        if by_query(self.0.release().await?) {
            Ok(("/pools".to_owned(), Params::new().with("poolid", id)))
        } else {
            Ok((
                format!("/pools/{}", crate::params::escape(id.as_str())),
                Params::new(),
            ))
        }
    }
}

fn by_query(release: crate::Release) -> bool {
    release >= crate::Release::new(8, 1)
}
