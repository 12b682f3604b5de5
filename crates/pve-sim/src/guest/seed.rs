//! What cloud-init finds when a guest boots, and what it makes of it.
//!
//! A guest looks through its CD drives for a volume labelled `cidata` (NoCloud) or `config-2`
//! (ConfigDrive). The first one wins. From it come the instance id, the host name and the network
//! configuration; the user data is kept as it is, for whoever plays the software inside the guest.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::iso9660;
use super::netconfig::{self, Link};

/// The files cloud-init read, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    /// `user-data`: a cloud-config, a script, a Talos machine configuration, an Ignition file.
    pub user_data: String,
    /// `meta-data`: at least the instance id.
    pub meta_data: String,
    /// `network-config`, if there is one.
    pub network_config: Option<String>,
    /// `vendor-data`, if there is one.
    pub vendor_data: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct MetaData {
    #[serde(rename = "instance-id")]
    instance_id: Option<String>,
    uuid: Option<String>,
    #[serde(rename = "local-hostname")]
    local_hostname: Option<String>,
    hostname: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CloudConfig {
    hostname: Option<String>,
    preserve_hostname: bool,
    machine: Option<TalosMachine>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TalosMachine {
    network: Option<TalosNetwork>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TalosNetwork {
    hostname: Option<String>,
}

impl Seed {
    /// Reads a seed from the image in a CD drive, if it is one.
    pub(crate) fn from_iso(image: &Bytes) -> Option<Seed> {
        let image = iso9660::read(image).ok()?;
        let text = |name: &str| {
            image
                .files
                .get(name)
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        match image.label.to_ascii_lowercase().as_str() {
            // NoCloud needs both files; without them cloud-init passes the drive by.
            "cidata" => Some(Seed {
                user_data: text("user-data")?,
                meta_data: text("meta-data")?,
                network_config: text("network-config"),
                vendor_data: text("vendor-data"),
            }),
            "config-2" => Some(Seed {
                user_data: text("openstack/latest/user_data").unwrap_or_default(),
                meta_data: text("openstack/latest/meta_data.json")?,
                network_config: None,
                vendor_data: text("openstack/latest/vendor_data.json"),
            }),
            _ => None,
        }
    }

    /// The id by which cloud-init tells a new instance from a reboot.
    pub(crate) fn instance_id(&self) -> Option<String> {
        let meta = self.meta();
        meta.instance_id.or(meta.uuid)
    }

    /// The host name the guest takes; user data goes before meta data.
    pub(crate) fn hostname(&self) -> Option<String> {
        let config: CloudConfig = if self.user_data.starts_with("#!") {
            CloudConfig::default()
        } else {
            serde_saphyr::from_str(&self.user_data).unwrap_or_default()
        };
        let talos = config
            .machine
            .and_then(|m| m.network)
            .and_then(|n| n.hostname);
        let wished = if config.preserve_hostname {
            None
        } else {
            config.hostname.or(talos)
        };
        let meta = self.meta();
        let name = wished.or(meta.local_hostname).or(meta.hostname)?;
        Some(name.split('.').next().unwrap_or_default().to_owned())
    }

    /// The links configured, or `None` when cloud-init would fall back to DHCP on the first card.
    pub(crate) fn links(&self) -> Option<Result<Vec<Link>, netconfig::Error>> {
        self.network_config.as_deref().map(netconfig::parse)
    }

    fn meta(&self) -> MetaData {
        serde_saphyr::from_str(&self.meta_data).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::iso9660::testing::image;

    fn seed(user: &str, meta: &str) -> Seed {
        let files: &[(&str, &[u8])] = &[
            ("user-data", user.as_bytes()),
            ("meta-data", meta.as_bytes()),
        ];
        Seed::from_iso(&Bytes::from(image("CIDATA", files, true, true))).unwrap()
    }

    #[test]
    fn the_host_name_comes_from_user_data_then_meta_data() {
        let meta = "instance-id: i-1\nlocal-hostname: from-meta.example\n";
        assert_eq!(
            seed("#cloud-config\nhostname: a\n", meta)
                .hostname()
                .unwrap(),
            "a"
        );
        assert_eq!(
            seed("#cloud-config\nusers: []\n", meta).hostname().unwrap(),
            "from-meta"
        );
        assert_eq!(
            seed("#!/bin/sh\necho: x\n", meta).hostname().unwrap(),
            "from-meta"
        );
        let talos = "machine:\n  network:\n    hostname: cp-1\n";
        assert_eq!(seed(talos, "instance-id: i\n").hostname().unwrap(), "cp-1");
        assert_eq!(seed("", meta).instance_id().unwrap(), "i-1");
    }

    #[test]
    fn a_drive_without_both_files_or_label_is_passed_by() {
        let only_user: &[(&str, &[u8])] = &[("user-data", b"x")];
        assert_eq!(
            Seed::from_iso(&Bytes::from(image("cidata", only_user, true, true))),
            None
        );
        let both: &[(&str, &[u8])] = &[("user-data", b"x"), ("meta-data", b"y")];
        assert_eq!(
            Seed::from_iso(&Bytes::from(image("install", both, true, true))),
            None
        );
    }
}
