//! First-boot data.

use std::collections::BTreeMap;

use api::vm::{DeliveryMode, ProviderDefaults, VirtualMachineSpec};
use fleet::intent::{Init, InitMode, Payload};

use super::{Invalid, storage};

/// The texts a machine's first-boot data refers to, fetched.
#[derive(Clone, Debug, Default)]
pub(crate) struct InitParts {
    pub(crate) user_data: Option<Payload>,
    pub(crate) vendor_data: Option<Payload>,
    pub(crate) network_data: Option<Payload>,
    pub(crate) meta_data: Option<Payload>,
    pub(crate) password: Option<Payload>,
    pub(crate) ssh_keys: Vec<String>,
    /// They could not be fetched and need not be.
    pub(crate) forgotten: bool,
}

/// First-boot data of a machine, if it needs any: written down, or implied by fixed addresses.
pub(crate) fn init(
    spec: &VirtualMachineSpec,
    defaults: &ProviderDefaults,
    parts: InitParts,
) -> Result<Option<Init>, Invalid> {
    let addresses = spec
        .networks
        .iter()
        .any(|network| network.static_ip.is_some());
    if spec.user_data.is_none() && !addresses {
        return Ok(None);
    }
    let cloud_init = spec
        .user_data
        .as_ref()
        .and_then(|data| data.cloud_init.clone())
        .unwrap_or_default();
    let mut ssh_keys = cloud_init.ssh_keys;
    ssh_keys.extend(parts.ssh_keys);
    let mode = match cloud_init.mode.unwrap_or_default() {
        DeliveryMode::Iso => InitMode::NoCloud,
        DeliveryMode::Native => InitMode::Native,
    };
    let place = match mode {
        InitMode::NoCloud => defaults.iso_storage.as_deref(),
        InitMode::Native => defaults.storage.as_deref(),
    };
    Ok(Some(Init {
        mode,
        user_data: parts.user_data,
        vendor_data: parts.vendor_data,
        network_data: parts.network_data,
        meta_data: parts
            .meta_data
            .as_ref()
            .map(meta_data)
            .transpose()?
            .unwrap_or_default(),
        user: cloud_init.user,
        password: parts.password,
        ssh_keys,
        storage: place
            .map(|name| storage("Provider spec.defaults.isoStorage", name))
            .transpose()?,
        forgotten: parts.forgotten,
        ..Init::default()
    }))
}

fn meta_data(text: &Payload) -> Result<BTreeMap<String, String>, Invalid> {
    let field = "spec.userData.cloudInit.metaData";
    let text = text
        .as_text()
        .ok_or_else(|| Invalid::new(field, "is not text"))?;
    let read: BTreeMap<String, serde_json::Value> = serde_saphyr::from_str(text)
        .map_err(|_| Invalid::new(field, "must be a YAML map of names to values"))?;
    let plain = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(read
        .into_iter()
        .map(|(key, value)| (key, plain(value)))
        .collect())
}
