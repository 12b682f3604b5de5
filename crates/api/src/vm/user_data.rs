//! What a guest is told when it first boots.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::KeySelector;

/// What a guest is told when it first boots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.cloudInit), has(self.ignition), has(self.raw)].filter(x, x).size() <= 1").message("give one of cloudInit, ignition and raw"))]
pub struct UserData {
    /// cloud-init, complete: the text reaches the guest unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// An Ignition configuration (Flatcar, Fedora CoreOS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignition: Option<DataSource>,
    /// Any other payload (Talos machine configuration, cloudbase-init), as NoCloud user data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<GuestPayload>,
}

impl UserData {
    fn sources(&self) -> impl Iterator<Item = &DataSource> {
        let cloud_init = self.cloud_init.as_ref();
        let more = cloud_init
            .into_iter()
            .flat_map(|it| [&it.vendor_data, &it.network_data, &it.meta_data]);
        more.chain([&self.ignition, &self.raw]).flatten()
    }

    /// The texts that are written here.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let (mut inline, mut sources) = (None, vec![&mut self.ignition, &mut self.raw]);
        if let Some(it) = &mut self.cloud_init {
            inline = it.inline.as_mut();
            sources.extend([&mut it.vendor_data, &mut it.network_data, &mut it.meta_data]);
        }
        let sources = sources.into_iter().flatten();
        inline
            .into_iter()
            .chain(sources.filter_map(|source| source.inline.as_mut()))
    }

    /// The names of the Secrets that are read.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let cloud_init = self.cloud_init.as_ref();
        let own = cloud_init.into_iter().flat_map(|it| {
            [
                &it.secret_ref,
                &it.password_secret_ref,
                &it.ssh_keys_secret_ref,
            ]
        });
        let sources = self.sources().map(|source| &source.secret_ref);
        own.chain(sources).flatten().map(|key| key.name.as_str())
    }
}

/// cloud-init.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.inline), has(self.secretRef), has(self.configMapRef)].filter(x, x).size() <= 1").message("user data comes from one place: inline, secretRef or configMapRef"),
    validation = Rule::new("!has(self.mode) || self.mode != 'Native' || !(has(self.inline) || has(self.secretRef) || has(self.configMapRef) || has(self.vendorData) || has(self.networkData))").message("mode: Native hands over only user, password, sshKeys and the machine's networks; use mode: ISO (the default) for user data")
)]
pub struct CloudInit {
    /// User data, written here.
    #[schemars(length(max = 262_144))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// User data in a Secret, by default under the key `userData`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KeySelector>,
    /// User data in a ConfigMap, by default under the key `userData`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<KeySelector>,
    /// Vendor data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_data: Option<DataSource>,
    /// Network data (version 2), instead of what is generated from `networks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<DataSource>,
    /// More meta data, as YAML keys; `instance-id` and `local-hostname` are set for you.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<DataSource>,
    /// The user to create.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// That user's password, in a Secret, by default under the key `password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_secret_ref: Option<KeySelector>,
    /// Public keys that user may log in with.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ssh_keys: Vec<String>,
    /// More of them in a Secret, one per line, by default under the key `ssh-publickey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_keys_secret_ref: Option<KeySelector>,
    /// How it reaches the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<DeliveryMode>,
}

/// A text, written here or kept elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.inline), has(self.secretRef), has(self.configMapRef)].filter(x, x).size() == 1").message("give exactly one of inline, secretRef and configMapRef"))]
pub struct DataSource {
    /// The text.
    #[schemars(length(max = 262_144))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// In a Secret, by default under the key `userData`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KeySelector>,
    /// In a ConfigMap, by default under the key `userData`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<KeySelector>,
}

/// A payload for something that is not cloud-init.
pub type GuestPayload = DataSource;

/// How first-boot data reaches a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeliveryMode {
    /// A NoCloud ISO with everything, uploaded for the first boot and removed afterwards.
    #[default]
    #[serde(rename = "ISO")]
    Iso,
    /// PVE's own cloud-init drive: user, password, keys and addresses only.
    Native,
}
