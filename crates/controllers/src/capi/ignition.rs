//! Ignition: bootstrap data for images that read it once, before the system starts.
//!
//! Such an image reads user data and nothing else, so what cloud-init learns from meta data and network data is written into
//! the configuration: the host's name, its addresses and identity for units that ask for them, and its network. What the
//! bootstrap provider wrote stays as it is; a file that it writes itself is not written over.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::networkd::Unit;

/// Why a configuration cannot be completed. What it holds is secret and not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("the bootstrap data is not Ignition's JSON")]
    NotJson,
    #[error("the bootstrap data names no `ignition.version` that begins with 2 or 3")]
    Version,
    #[error(
        "the bootstrap data has something else than a list where Ignition keeps its files or units"
    )]
    Shape,
}

/// What a machine is told about itself.
pub(super) struct Facts<'a> {
    pub(super) hostname: &'a str,
    pub(super) instance_id: &'a str,
    pub(super) provider_id: &'a str,
    pub(super) addresses: &'a [IpAddr],
    pub(super) network: &'a [Unit],
}

/// The configuration with everything a machine must know about itself.
pub(super) fn complete(data: &[u8], facts: &Facts<'_>) -> Result<Vec<u8>, Error> {
    let mut config: Value = serde_json::from_slice(data).map_err(|_| Error::NotJson)?;
    let version = config["ignition"]["version"].as_str().unwrap_or_default();
    let old = match version.split('.').next() {
        Some("2") => true,
        Some("3") => false,
        _ => return Err(Error::Version),
    };
    let mut files = BTreeMap::from([
        ("/etc/hostname".to_owned(), format!("{}\n", facts.hostname)),
        ("/etc/proxmox-env".to_owned(), environment(facts)),
    ]);
    for unit in facts.network {
        let path = format!("/etc/systemd/network/{}", unit.name);
        files.insert(path, unit.contents.clone());
    }
    let list = list(&mut config, "storage", "files")?;
    for (path, text) in files {
        if list.iter().any(|file| file["path"] == path.as_str()) {
            continue;
        }
        let source = format!("data:;base64,{}", STANDARD.encode(text));
        let mut file = json!({"path": path, "mode": 0o644, "contents": {"source": source}});
        if old {
            file["filesystem"] = json!("root");
        } else {
            file["overwrite"] = json!(true);
        }
        list.push(file);
    }
    let units = self::list(&mut config, "systemd", "units")?;
    for name in ["systemd-networkd.service", "systemd-resolved.service"] {
        if !units.iter().any(|unit| unit["name"] == name) {
            units.push(json!({"name": name, "enabled": true}));
        }
    }
    Ok(config.to_string().into_bytes())
}

fn list<'a>(config: &'a mut Value, section: &str, name: &str) -> Result<&'a mut Vec<Value>, Error> {
    let section = config
        .as_object_mut()
        .ok_or(Error::NotJson)?
        .entry(section)
        .or_insert_with(|| json!({}));
    section
        .as_object_mut()
        .ok_or(Error::Shape)?
        .entry(name)
        .or_insert_with(|| json!([]))
        .as_array_mut()
        .ok_or(Error::Shape)
}

/// For units that say `EnvironmentFile=/etc/proxmox-env`.
fn environment(facts: &Facts<'_>) -> String {
    let first = |is6: bool| facts.addresses.iter().find(move |ip| ip.is_ipv6() == is6);
    let entries = [
        ("HOSTNAME", Some(facts.hostname.to_owned())),
        ("INSTANCE_ID", Some(facts.instance_id.to_owned())),
        ("PROVIDER_ID", Some(facts.provider_id.to_owned())),
        ("PRIVATE_IPV4", first(false).map(ToString::to_string)),
        ("PRIVATE_IPV6", first(true).map(ToString::to_string)),
    ];
    entries
        .into_iter()
        .filter_map(|(key, value)| Some(format!("COREOS_CUSTOM_{key}={}\n", value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(config: &Value) -> Result<Value, Error> {
        let network = [Unit {
            name: "00-eth0.network".into(),
            contents: "[Match]\n".into(),
        }];
        let facts = Facts {
            hostname: "worker-1",
            instance_id: "u",
            provider_id: "proxmox://u",
            addresses: &["10.0.0.11".parse().unwrap()],
            network: &network,
        };
        complete(config.to_string().as_bytes(), &facts)
            .map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    fn text(config: &Value, path: &str) -> String {
        let files = config["storage"]["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"] == path).unwrap();
        let source = file["contents"]["source"].as_str().unwrap();
        let coded = source.strip_prefix("data:;base64,").unwrap();
        String::from_utf8(STANDARD.decode(coded).unwrap()).unwrap()
    }

    #[test]
    fn a_machine_learns_its_name_its_addresses_and_its_network() {
        let done = completed(&json!({"ignition": {"version": "3.4.0"}})).unwrap();
        assert_eq!(text(&done, "/etc/hostname"), "worker-1\n");
        assert_eq!(
            text(&done, "/etc/systemd/network/00-eth0.network"),
            "[Match]\n"
        );
        let environment = text(&done, "/etc/proxmox-env");
        assert!(environment.contains("COREOS_CUSTOM_PRIVATE_IPV4=10.0.0.11\n"));
        assert!(environment.contains("COREOS_CUSTOM_PROVIDER_ID=proxmox://u\n"));
        assert!(!environment.contains("IPV6"));
    }

    #[test]
    fn what_the_bootstrap_provider_wrote_stays() {
        let own = json!({"name": "kubeadm.service", "enabled": true});
        let hostname = json!({"path": "/etc/hostname", "filesystem": "root", "contents": {"source": "data:,mine"}});
        let done = completed(&json!({
            "ignition": {"version": "2.3.0"},
            "storage": {"files": [hostname.clone()]}, "systemd": {"units": [own.clone()]},
        }))
        .unwrap();
        let files = done["storage"]["files"].as_array().unwrap();
        assert_eq!(files[0], hostname);
        assert_eq!(
            files
                .iter()
                .filter(|file| file["path"] == "/etc/hostname")
                .count(),
            1
        );
        assert!(files.iter().all(|file| file["filesystem"] == "root"));
        assert_eq!(done["systemd"]["units"][0], own);
    }

    #[test]
    fn what_is_no_ignition_is_refused_without_being_repeated() {
        assert_eq!(
            completed(&json!({"ignition": {"version": "1.0"}})),
            Err(Error::Version)
        );
        assert_eq!(completed(&json!({})), Err(Error::Version));
        assert_eq!(
            completed(&json!({"ignition": {"version": "3.0.0"}, "storage": 7})),
            Err(Error::Shape)
        );
        assert_eq!(
            complete(
                b"#cloud-config",
                &Facts {
                    hostname: "",
                    instance_id: "",
                    provider_id: "",
                    addresses: &[],
                    network: &[],
                }
            ),
            Err(Error::NotJson)
        );
    }
}
