//! The configuration of a guest: every key the server knows, typed where a type helps.
//!
//! Proxmox VE keeps a guest as a flat list of keys and texts, and each release adds keys. [`GuestConfig`] is that
//! list, in order, with nothing dropped; typed views parse a value when asked for it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::params::{Params, escape, unescape};
use crate::scalar::FromScalar;

/// Keys whose values are secret.
const SECRET: &[&str] = &["cipassword", "password"];

/// A guest's configuration, as texts by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GuestConfig {
    values: BTreeMap<String, String>,
    digest: Option<String>,
    raw: Vec<(String, String)>,
}

impl GuestConfig {
    /// An empty configuration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a value; truths are written as `1` and `0` by [`GuestConfig::with_flag`].
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl fmt::Display) -> Self {
        self.set(key, value);
        self
    }

    /// Sets a truth.
    #[must_use]
    pub fn with_flag(self, key: impl Into<String>, on: bool) -> Self {
        self.with(key, u8::from(on))
    }

    /// Sets the SSH keys for cloud-init, one per line, in the escaped form the server insists on.
    #[must_use]
    pub fn with_ssh_keys<I>(self, keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let lines: Vec<String> = keys
            .into_iter()
            .map(|key| key.as_ref().trim().to_owned())
            .collect();
        self.with("sshkeys", escape(&lines.join("\n")))
    }

    /// Sets a value in place. What was changed here is no longer what the server's digest is of, so that is forgotten.
    pub fn set(&mut self, key: impl Into<String>, value: impl fmt::Display) {
        self.digest = None;
        self.values.insert(key.into(), value.to_string());
    }

    /// Removes a value, and with it the digest.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.digest = None;
        self.values.remove(key)
    }

    /// The text of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The value of a key, parsed.
    pub fn get_as<T: std::str::FromStr>(&self, key: &str) -> Option<Result<T, T::Err>> {
        self.get(key).map(str::parse)
    }

    /// The truth of a key, if it is set.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(crate::scalar::truth)
    }

    /// The fingerprint of the whole as the server has shown it, to send back with a change.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// All keys and texts, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether no key is set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The keys that are a prefix and a number (`scsi0`, `net1`), by number, with their texts.
    pub fn indexed(&self, prefix: &str) -> Vec<(u32, &str)> {
        let mut found: Vec<_> = self
            .iter()
            .filter_map(|(key, value)| Some((index(key, prefix)?, value)))
            .collect();
        found.sort_unstable();
        found
    }

    /// The guest's name, which containers call hostname.
    pub fn name(&self) -> Option<&str> {
        self.get("name").or_else(|| self.get("hostname"))
    }

    /// The notes, where the owner's mark is kept.
    pub fn description(&self) -> Option<&str> {
        self.get("description")
    }

    /// The lock an operation has put on the guest.
    pub fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    /// Whether the guest is a template.
    pub fn is_template(&self) -> bool {
        self.flag("template").unwrap_or(false)
    }

    /// Whether the guest is protected against removal.
    pub fn is_protected(&self) -> bool {
        self.flag("protection").unwrap_or(false)
    }

    /// The tags.
    pub fn tags(&self) -> Vec<&str> {
        self.get("tags")
            .map(|tags| crate::scalar::split(tags).collect())
            .unwrap_or_default()
    }

    /// The SSH keys for cloud-init, one per line.
    pub fn ssh_keys(&self) -> Option<String> {
        self.get("sshkeys").map(unescape)
    }

    /// Low-level lines of a container (`lxc.…`), which can only be read.
    pub fn raw_lines(&self) -> &[(String, String)] {
        &self.raw
    }

    pub(crate) fn add_to(&self, params: &mut Params) {
        params.extend(
            self.values
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }
}

/// The number behind a prefix, if the key is made of just these.
pub(crate) fn index(key: &str, prefix: &str) -> Option<u32> {
    let digits = key.strip_prefix(prefix)?;
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

impl fmt::Debug for GuestConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self
            .iter()
            .map(|(key, value)| (key, if SECRET.contains(&key) { "…" } else { value }));
        f.debug_map().entries(shown).finish()
    }
}

impl<K: Into<String>, V: fmt::Display> FromIterator<(K, V)> for GuestConfig {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        let mut config = Self::new();
        config.extend(pairs);
        config
    }
}

impl<K: Into<String>, V: fmt::Display> Extend<(K, V)> for GuestConfig {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, pairs: T) {
        for (key, value) in pairs {
            self.set(key, value);
        }
    }
}

impl<'de> Deserialize<'de> for GuestConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut config = Self::new();
        for (key, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            match (key.as_str(), value) {
                ("digest", value) => config.digest = String::from_scalar(&value).ok(),
                ("lxc", Value::Array(lines)) => {
                    config.raw = lines
                        .into_iter()
                        .filter_map(|line| serde_json::from_value::<(String, String)>(line).ok())
                        .collect();
                }
                (_, Value::Null) => {}
                (_, value) => {
                    let text = String::from_scalar(&value).unwrap_or_else(|_| value.to_string());
                    config.values.insert(key, text);
                }
            }
        }
        Ok(config)
    }
}

/// A change of a guest's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigChange {
    /// Keys to set.
    pub set: GuestConfig,
    /// Keys to remove. A disk becomes `unusedN`; removing `unusedN` destroys the volume.
    pub delete: Vec<String>,
    /// Pending changes to forget.
    pub revert: Vec<String>,
    /// The digest the change is based on; it is refused if the configuration has changed since.
    pub digest: Option<String>,
    /// Whether to destroy the volumes of removed disks.
    pub force: bool,
}

impl ConfigChange {
    /// A change that sets keys.
    pub fn set(set: GuestConfig) -> Self {
        Self {
            set,
            ..Self::default()
        }
    }

    /// A change that removes keys.
    pub fn delete<I>(keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self {
            delete: keys.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Whether there is nothing to change, which the server would refuse.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty() && self.revert.is_empty()
    }

    pub(crate) fn params(&self) -> Params {
        let mut params = Params::new();
        self.set.add_to(&mut params);
        params
            .list("delete", &self.delete)
            .list("revert", &self.revert)
            .maybe("digest", self.digest.as_ref())
            .flag("force", self.force)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_keys_and_perl_types_are_kept() {
        let config: GuestConfig = serde_json::from_value(json!({
            "cores": 2, "memory": "2048", "onboot": 1, "shiny-new-key": "yes", "digest": "abc",
            "net10": "virtio", "net2": "e1000", "netx": "no", "lxc": [["lxc.cap", "x"]],
        }))
        .unwrap();
        assert_eq!(config.get("cores"), Some("2"));
        assert_eq!(config.get_as::<u32>("memory"), Some(Ok(2048)));
        assert_eq!(config.flag("onboot"), Some(true));
        assert_eq!(config.get("shiny-new-key"), Some("yes"));
        assert_eq!(config.digest(), Some("abc"));
        assert_eq!(config.get("digest"), None);
        assert_eq!(config.indexed("net"), [(2, "e1000"), (10, "virtio")]);
        assert_eq!(config.raw_lines().len(), 1);
    }

    #[test]
    fn ssh_keys_are_escaped_once_inside() {
        let config =
            GuestConfig::new().with_ssh_keys(["ssh-ed25519 AAAA me@host ", "ssh-rsa B+C/="]);
        assert_eq!(
            config.get("sshkeys"),
            Some("ssh-ed25519%20AAAA%20me%40host%0Assh-rsa%20B%2BC%2F%3D")
        );
        assert_eq!(
            config.ssh_keys().unwrap(),
            "ssh-ed25519 AAAA me@host\nssh-rsa B+C/="
        );
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!(
            "{:?}",
            GuestConfig::new()
                .with("cipassword", "geheim")
                .with("ciuser", "me")
        );
        assert!(shown.contains("me") && !shown.contains("geheim"), "{shown}");
    }

    #[test]
    fn a_change_lists_what_it_removes() {
        let change = ConfigChange {
            digest: Some("d".to_owned()),
            ..ConfigChange::delete(["net1", "scsi2"])
        };
        assert_eq!(change.params().encode(), "delete=net1%2Cscsi2&digest=d");
        assert!(ConfigChange::default().is_empty());
    }
}
