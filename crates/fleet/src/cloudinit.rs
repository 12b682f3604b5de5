//! First-boot data: what cloud-init, Ignition or Talos reads when a guest first starts.
//!
//! The whole of it is rendered into one NoCloud image and uploaded through the storage API, which
//! an API token may do; PVE's snippets would need root on a host. User data goes through untouched.
//! Meta data carries the guest's own UUID as the instance id, so a copy of the guest is a new
//! instance and a reboot is not.
//!
//! The image holds secrets, so it is taken away once the guest has read it. A guest that then
//! reboots without it would look like a new instance to cloud-init; [`serial`] prevents that: it
//! is a line for the SMBIOS serial number that tells cloud-init which instance this still is.

mod native;
mod network;
mod yaml;

pub(crate) use native::{FIRST_CARD, native_keys};
pub use network::network_config;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    intent::{GuestIntent, Init, Payload},
    iso,
    record::Identity,
};

/// Why first-boot data cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two fields want the same file.
    #[error("{0}")]
    Conflict(String),
    /// A text is not UTF-8 where it must be.
    #[error("the password is not text")]
    Password,
    /// The image cannot be written.
    #[error("first-boot image cannot be written")]
    Iso(#[from] iso::Error),
}

/// The files of a NoCloud seed.
#[derive(Clone, PartialEq, Eq)]
pub struct SeedFiles {
    /// `meta-data`.
    pub meta_data: String,
    /// `user-data`.
    pub user_data: Payload,
    /// `vendor-data`, if there is any.
    pub vendor_data: Option<Payload>,
    /// `network-config`, if there is any: without one the guest brings up its first card with DHCP, and with one that
    /// names no card it brings up none.
    pub network_config: Option<Payload>,
}

impl SeedFiles {
    /// Renders the files for one guest.
    pub fn render(intent: &GuestIntent, init: &Init, identity: &Identity) -> Result<Self, Error> {
        let made = cloud_config(init)?;
        let (user_data, vendor_data) = match (&init.user_data, &init.vendor_data, made) {
            (Some(user), vendor, None) => (user.clone(), vendor.clone()),
            (Some(user), None, Some(made)) => (user.clone(), Some(made)),
            (Some(_), Some(_), Some(_)) => {
                return Err(Error::Conflict(
                    "user, password and sshKeys cannot be combined with both user data and vendor \
                     data: put them into one of the two"
                        .to_owned(),
                ));
            }
            (None, vendor, made) => (
                made.unwrap_or_else(|| Payload::from("#cloud-config\n{}\n")),
                vendor.clone(),
            ),
        };
        let network_config = match &init.network_data {
            Some(given) => Some(given.clone()),
            // The source's interfaces are kept, and only the guest knows them.
            None if intent.nics.is_empty() => None,
            None => {
                let made = network_config(&intent.nics, init, &identity.nics);
                Some(Payload::from(made))
            }
        };
        Ok(Self {
            meta_data: meta_data(intent, init, identity.uuid),
            user_data,
            vendor_data,
            network_config,
        })
    }

    /// The image's bytes.
    pub fn image(&self) -> Result<Vec<u8>, Error> {
        let mut files: Vec<(&str, &[u8])> = vec![
            ("meta-data", self.meta_data.as_bytes()),
            ("user-data", self.user_data.expose()),
        ];
        if let Some(network) = &self.network_config {
            files.push(("network-config", network.expose()));
        }
        if let Some(vendor) = &self.vendor_data {
            files.push(("vendor-data", vendor.expose()));
        }
        Ok(iso::image("cidata", &files)?)
    }

    /// Enough of a digest to see that any of the files is another one, and too little to find what is secret in them.
    pub fn glance(&self) -> String {
        let mut hash = Sha256::new();
        let none = Payload::default();
        for file in [
            self.meta_data.as_bytes(),
            self.user_data.expose(),
            self.vendor_data.as_ref().unwrap_or(&none).expose(),
            self.network_config.as_ref().unwrap_or(&none).expose(),
        ] {
            hash.update((file.len() as u64).to_le_bytes());
            hash.update(file);
        }
        hex(&hash.finalize()[..2])
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The instance id of a guest.
pub fn instance_id(init: &Init, uuid: Uuid) -> String {
    init.instance_id.clone().unwrap_or_else(|| uuid.to_string())
}

/// How a serial number begins that tells cloud-init which instance it is on.
pub(crate) const INSTANCE: &str = "ds=nocloud;i=";

/// The SMBIOS serial number that keeps an instance its own after the image is gone.
pub fn serial(init: &Init, uuid: Uuid) -> String {
    format!("{INSTANCE}{}", instance_id(init, uuid))
}

fn meta_data(intent: &GuestIntent, init: &Init, uuid: Uuid) -> String {
    let hostname = init.hostname.as_deref().unwrap_or(&intent.name);
    let mut map = Map::new();
    map.insert("instance-id".to_owned(), json!(instance_id(init, uuid)));
    map.insert("local-hostname".to_owned(), json!(hostname));
    for (key, value) in &init.meta_data {
        map.insert(key.clone(), value.clone());
    }
    yaml::document(&Value::Object(map))
}

/// The fields as `#cloud-config`, if any is set.
fn cloud_config(init: &Init) -> Result<Option<Payload>, Error> {
    let mut map = Map::new();
    if let Some(user) = &init.user {
        map.insert("user".to_owned(), json!({"name": user}));
    }
    if let Some(password) = &init.password {
        let text = password.as_text().ok_or(Error::Password)?;
        map.insert("password".to_owned(), json!(text));
        map.insert("chpasswd".to_owned(), json!({"expire": false}));
    }
    if !init.ssh_keys.is_empty() {
        map.insert("ssh_authorized_keys".to_owned(), json!(init.ssh_keys));
    }
    if map.is_empty() {
        return Ok(None);
    }
    Ok(Some(Payload::from(format!(
        "#cloud-config\n{}",
        yaml::document(&Value::Object(map))
    ))))
}

#[cfg(test)]
mod tests;
