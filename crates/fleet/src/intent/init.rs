//! What a guest is told at its first boot.

use std::{collections::BTreeMap, net::IpAddr};

use crate::{StorageId, intent::Payload};

/// How the guest is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InitMode {
    /// A NoCloud image with everything in it, uploaded through the storage API, ejected and
    /// removed once the guest has read it.
    #[default]
    NoCloud,
    /// PVE's own cloud-init drive and `ci*` keys: user, password, SSH keys, addresses, DNS. User
    /// data and vendor data are refused, since PVE takes them from files on the host only.
    Native,
}

/// First-boot data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Init {
    /// How it is delivered.
    pub mode: InitMode,
    /// The user data as it shall arrive: `#cloud-config`, a script, MIME, Ignition JSON, a Talos
    /// machine configuration. Nothing is changed in it. Without it a `#cloud-config` is made from
    /// the fields below.
    pub user_data: Option<Payload>,
    /// Vendor data. When user data is given, the fields below go here, where user data wins.
    pub vendor_data: Option<Payload>,
    /// Network configuration; `None` renders it from the interfaces.
    pub network_data: Option<Payload>,
    /// More entries of the meta data.
    pub meta_data: BTreeMap<String, serde_json::Value>,
    /// Instance id; `None` is the guest's UUID. A new one makes cloud-init run again at next boot.
    pub instance_id: Option<String>,
    /// Host name; `None` is the guest's name.
    pub hostname: Option<String>,
    /// The user to make or to configure.
    pub user: Option<String>,
    /// Its password, plain or hashed.
    pub password: Option<Payload>,
    /// SSH public keys allowed for it.
    pub ssh_keys: Vec<String>,
    /// Name servers beside those of the interfaces.
    pub dns: Vec<IpAddr>,
    /// Search domains beside those of the interfaces.
    pub search: Vec<String>,
    /// The storage for the image (content `iso`) or the native drive (content `images`); `None`
    /// takes the first that fits, shared ones before local ones.
    pub storage: Option<StorageId>,
    /// Leave the image attached after the first boot.
    pub keep: bool,
    /// The texts are no longer at hand, since the guest has read them: they are not compared with what it was told.
    pub forgotten: bool,
}
