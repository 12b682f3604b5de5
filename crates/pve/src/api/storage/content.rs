//! The volumes on a storage.

use serde::Deserialize;

use super::Storage;
use crate::client::Call;
use crate::error::Result;
use crate::id::{Vmid, VolumeId};
use crate::params::{Params, escape};
use crate::scalar;
use crate::upid::Upid;

/// A volume in the list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Its name.
    pub volid: VolumeId,
    /// What it is: `images`, `iso`, ...; absent on releases that do not say.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub content: Option<String>,
    /// Such as `qcow2` or `raw`.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub format: Option<String>,
    /// Its size in bytes.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub size: Option<u64>,
    /// What it takes on the storage, where that is known.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub used: Option<u64>,
    /// The guest it belongs to.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub vmid: Option<Vmid>,
    /// When it was made, in seconds since 1970.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub ctime: Option<u64>,
    /// The base it is linked to.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub parent: Option<String>,
    /// A person's note, on backups.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub notes: Option<String>,
    /// Whether it must not be removed, on backups.
    #[serde(default, deserialize_with = "scalar::flag")]
    pub protected: bool,
}

/// Details of one volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeInfo {
    /// Where the host has it.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub path: Option<String>,
    /// Its size in bytes.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub size: Option<u64>,
    /// What it takes on the storage.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub used: Option<u64>,
    /// Such as `qcow2` or `raw`.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub format: Option<String>,
}

/// A volume to allocate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocate {
    /// The guest it shall belong to.
    pub vmid: Vmid,
    /// Its name, such as `vm-100-disk-7` or `vm-100-disk-7.qcow2`; it must carry the guest's number.
    pub filename: String,
    /// Its size: `10G`, `512M`, or a number of KiB.
    pub size: String,
    /// `raw`, `qcow2`, `vmdk` or `subvol`; by default what the storage prefers.
    pub format: Option<String>,
}

impl Storage {
    /// Its volumes: of one kind, of one guest, or all.
    pub async fn content(&self, kind: Option<&str>, vmid: Option<Vmid>) -> Result<Vec<Volume>> {
        let params = Params::new().maybe("content", kind).maybe("vmid", vmid);
        self.client
            .call(Call::get("storage.content", self.path("/content")).params(params))
            .await
    }

    /// Details of one volume.
    pub async fn volume(&self, volume: &VolumeId) -> Result<VolumeInfo> {
        self.client
            .call(Call::get("storage.volume", self.volume_path(volume)))
            .await
    }

    /// Allocates a volume, empty, and returns when it is there.
    pub async fn allocate(&self, volume: &Allocate) -> Result<VolumeId> {
        let params = Params::new()
            .with("vmid", volume.vmid)
            .with("filename", &volume.filename)
            .with("size", &volume.size)
            .maybe("format", volume.format.as_ref());
        self.client
            .call(Call::post("storage.allocate", self.path("/content")).params(params))
            .await
    }

    /// Removes a volume. With `wait` (1 to 30 seconds) nothing is returned if it was gone within that time.
    ///
    /// Removing a file that is not there succeeds.
    pub async fn delete_volume(&self, volume: &VolumeId, wait: Option<u8>) -> Result<Option<Upid>> {
        let params = Params::new().maybe("delay", wait);
        self.client
            .call(Call::delete("storage.delete", self.volume_path(volume)).params(params))
            .await
    }

    fn volume_path(&self, volume: &VolumeId) -> String {
        self.path(&format!("/content/{}", escape(volume.as_str())))
    }
}
