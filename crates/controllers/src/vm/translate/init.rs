//! First-boot data.

use std::collections::BTreeMap;

use api::vm::{DeliveryMode, ProviderDefaults, VirtualMachineSpec};
use fleet::intent::{Init, InitMode, Payload};
use serde_json::Value;

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
        .any(|network| network.static_ip.is_some() || network.slaac == Some(true));
    if spec.user_data.is_none() && !addresses {
        return Ok(None);
    }
    unreadable(spec)?;
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
    let (field, place) = match mode {
        InitMode::NoCloud => ("isoStorage", defaults.iso_storage.as_deref()),
        InitMode::Native => ("storage", defaults.storage.as_deref()),
    };
    let place = place.map(|name| storage(&format!("Provider spec.defaults.{field}"), name));
    let mut meta_data = parts
        .meta_data
        .as_ref()
        .map(meta_data)
        .transpose()?
        .unwrap_or_default();
    // It is told to the guest in another place as well.
    let instance_id = meta_data.remove("instance-id").map(instance_id);
    Ok(Some(Init {
        mode,
        user_data: parts.user_data,
        vendor_data: parts.vendor_data,
        network_data: parts.network_data,
        meta_data,
        instance_id: instance_id.transpose()?,
        user: cloud_init.user,
        password: parts.password,
        ssh_keys,
        storage: place.transpose()?,
        forgotten: parts.forgotten,
        ..Init::default()
    }))
}

/// Refuses what is told in network data to a guest that reads none.
fn unreadable(spec: &VirtualMachineSpec) -> Result<(), Invalid> {
    let ignition = spec
        .user_data
        .as_ref()
        .is_some_and(|data| data.ignition.is_some());
    let mut networks = spec.networks.iter().enumerate().filter(|_| ignition);
    let told = networks.find_map(|(at, network)| {
        let fixed = network.static_ip.as_ref().map(|_| "staticIP");
        let field = fixed.or((network.slaac == Some(true)).then_some("slaac"))?;
        Some(format!("spec.networks[{at}].{field}"))
    });
    match told {
        None => Ok(()),
        Some(field) => Err(Invalid::new(
            field,
            "does not reach a guest that reads Ignition, which has its own words for it: write it into spec.userData.ignition, \
             as a file in /etc/systemd/network, and leave it out here",
        )),
    }
}

const META_DATA: &str = "spec.userData.cloudInit.metaData";

fn meta_data(text: &Payload) -> Result<BTreeMap<String, Value>, Invalid> {
    let text = text
        .as_text()
        .ok_or_else(|| Invalid::new(META_DATA, "is not text"))?;
    serde_saphyr::from_str(text)
        .map_err(|_| Invalid::new(META_DATA, "must be a YAML map of names to values"))
}

fn instance_id(value: Value) -> Result<String, Invalid> {
    let text = match value {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if text.is_empty() || !text.chars().all(plain) {
        let message = "instance-id must be made of letters, digits, '-', '_', '.' and ':'";
        return Err(Invalid::new(META_DATA, message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn meta_data_keeps_its_lists_and_says_who_the_instance_is() {
        let text = Payload::from("instance-id: i-1\nkeys: [a, 1]\n");
        let read = meta_data(&text).unwrap();
        assert_eq!(read["keys"], json!(["a", 1]));
        assert_eq!(instance_id(read["instance-id"].clone()).unwrap(), "i-1");
        assert!(instance_id(json!("a;b")).is_err());
        assert!(instance_id(json!(["a"])).is_err());
    }
}
