//! A guest's configuration file: options, pending changes, snapshots, and its digest.
//!
//! PVE keeps one text file per guest. Its head is the current configuration; a `[PENDING]` section
//! holds what a running guest could not take yet; every snapshot is a section with a complete copy of
//! the options of its moment. The digest callers send back is the SHA-1 of the whole file, so any
//! change, also of a pending value, makes older digests fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

/// Options by name, as text.
pub(crate) type Options = BTreeMap<String, String>;

/// The configuration of one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    /// What the guest runs with, or would start with.
    pub(crate) current: Options,
    /// Values waiting for a cold start.
    #[serde(default)]
    pub(crate) pending: Options,
    /// Options waiting to be removed; `true` if their volumes go with them.
    #[serde(default)]
    pub(crate) pending_delete: BTreeMap<String, bool>,
    /// Snapshots by name; `snaptime`, `parent`, `vmstate` and `description` are among their options.
    #[serde(default)]
    pub(crate) snapshots: BTreeMap<String, Options>,
    /// The cloud-init options as they were when the drive was last written.
    #[serde(default)]
    pub(crate) cloud_init: Options,
}

impl Config {
    pub(crate) fn get(&self, option: &str) -> Option<&str> {
        self.current.get(option).map(String::as_str)
    }

    pub(crate) fn set(&mut self, option: &str, value: impl Into<String>) {
        self.current.insert(option.to_owned(), value.into());
    }

    pub(crate) fn remove(&mut self, option: &str) -> Option<String> {
        self.current.remove(option)
    }

    /// Whether the option is set to a true boolean.
    pub(crate) fn is_true(&self, option: &str) -> bool {
        self.get(option).is_some_and(|value| value == "1")
    }

    /// The operation that has locked the guest.
    pub(crate) fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    pub(crate) fn is_template(&self) -> bool {
        self.is_true("template")
    }

    /// Puts a value into the pending section; drops a pending removal of the same option.
    pub(crate) fn pend(&mut self, option: &str, value: impl Into<String>) {
        self.pending_delete.remove(option);
        self.pending.insert(option.to_owned(), value.into());
    }

    /// Marks an option for removal; drops a pending value of it.
    pub(crate) fn pend_delete(&mut self, option: &str, force: bool) {
        self.pending.remove(option);
        self.pending_delete.insert(option.to_owned(), force);
    }

    /// Forgets a pending change.
    pub(crate) fn revert(&mut self, option: &str) {
        self.pending.remove(option);
        self.pending_delete.remove(option);
    }

    /// Drops pending changes that change nothing.
    pub(crate) fn cleanup_pending(&mut self) {
        let current = &self.current;
        self.pending
            .retain(|option, value| current.get(option) != Some(value));
        self.pending_delete
            .retain(|option, _| current.contains_key(option));
    }

    /// The configuration the guest will have after its next cold start.
    pub(crate) fn merged(&self) -> Options {
        let mut options = self.current.clone();
        for option in self.pending_delete.keys() {
            options.remove(option);
        }
        options.extend(self.pending.iter().map(|(k, v)| (k.clone(), v.clone())));
        options
    }

    /// The file as PVE would write it.
    pub(crate) fn file(&self) -> String {
        let mut out = String::new();
        section(&mut out, &self.current);
        if !self.pending.is_empty() || !self.pending_delete.is_empty() {
            out.push_str("\n[PENDING]\n");
            if !self.pending_delete.is_empty() {
                let list: Vec<String> = self
                    .pending_delete
                    .iter()
                    .map(|(option, force)| format!("{}{option}", if *force { "!" } else { "" }))
                    .collect();
                let _ = writeln!(out, "delete: {}", list.join(","));
            }
            section(&mut out, &self.pending);
        }
        if !self.cloud_init.is_empty() {
            out.push_str("\n[special:cloudinit]\n");
            section(&mut out, &self.cloud_init);
        }
        for (name, options) in &self.snapshots {
            let _ = write!(out, "\n[{name}]\n");
            section(&mut out, options);
        }
        out
    }

    /// SHA-1 of the file, in hexadecimal.
    pub(crate) fn digest(&self) -> String {
        let mut text = String::with_capacity(40);
        for byte in Sha1::digest(self.file().as_bytes()) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

fn section(out: &mut String, options: &Options) {
    if let Some(description) = options.get("description") {
        for line in description.lines() {
            let _ = writeln!(out, "#{line}");
        }
    }
    for (option, value) in options
        .iter()
        .filter(|(option, _)| *option != "description")
    {
        let _ = writeln!(out, "{option}: {value}");
    }
}

/// A value as answers show it: numbers as numbers, the password as stars.
pub(crate) fn shown(option: &str, value: &str, numeric: fn(&str) -> bool) -> Value {
    if option == "cipassword" {
        return json!("**********");
    }
    if numeric(option)
        && let Ok(number) = value.parse::<i64>()
    {
        return json!(number);
    }
    json!(value)
}

/// Options as the object `GET config` answers.
pub(crate) fn object(options: &Options, digest: Option<&str>, numeric: fn(&str) -> bool) -> Value {
    let mut map: Map<String, Value> = options
        .iter()
        .map(|(k, v)| (k.clone(), shown(k, v, numeric)))
        .collect();
    if let Some(digest) = digest {
        map.insert("digest".to_owned(), json!(digest));
    }
    Value::Object(map)
}

/// The rows of `GET pending`: pending values first keep the order of their options.
pub(crate) fn pending_rows(config: &Config, numeric: fn(&str) -> bool) -> Value {
    let show = |option: &str, value: &str| shown(option, value, numeric);
    let mut rows = Vec::new();
    for (option, value) in &config.current {
        let mut row = json!({ "key": option, "value": show(option, value) });
        if let Some(next) = config.pending.get(option) {
            row["pending"] = show(option, next);
        }
        if let Some(force) = config.pending_delete.get(option) {
            row["delete"] = json!(if *force { 2 } else { 1 });
        }
        rows.push(row);
    }
    for (option, value) in &config.pending {
        if !config.current.contains_key(option) {
            rows.push(json!({ "key": option, "pending": show(option, value) }));
        }
    }
    rows.push(json!({ "key": "digest", "value": config.digest() }));
    Value::Array(rows)
}

/// Tags as PVE stores them: unique, sorted, joined by `;`.
pub(crate) fn tidy_tags(value: &str) -> String {
    let mut tags: Vec<&str> = Vec::new();
    for tag in crate::params::split_list(value) {
        if !tags.iter().any(|known| known.eq_ignore_ascii_case(tag)) {
            tags.push(tag);
        }
    }
    tags.sort_by_key(|tag| tag.to_ascii_lowercase());
    tags.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::options::is_numeric;

    fn sample() -> Config {
        let mut config = Config::default();
        config.set("cores", "2");
        config.set("memory", "512");
        config.set("name", "run");
        config
    }

    #[test]
    fn pending_values_show_beside_current_ones_and_merge_over_them() {
        let mut config = sample();
        config.pend("cores", "4");
        config.pend("numa", "1");
        config.pend_delete("name", false);
        let merged = config.merged();
        assert_eq!(merged.get("cores").map(String::as_str), Some("4"));
        assert!(!merged.contains_key("name"));
        let rows = pending_rows(&config, is_numeric);
        let row = |key: &str| {
            rows.as_array()
                .unwrap()
                .iter()
                .find(|row| row["key"] == key)
                .cloned()
                .unwrap()
        };
        assert_eq!(
            row("cores"),
            json!({"key": "cores", "value": 2, "pending": 4})
        );
        assert_eq!(
            row("name"),
            json!({"key": "name", "value": "run", "delete": 1})
        );
        assert_eq!(row("numa"), json!({"key": "numa", "pending": 1}));
        config.revert("cores");
        assert_eq!(config.merged().get("cores").map(String::as_str), Some("2"));
    }

    #[test]
    fn every_change_of_the_file_changes_the_digest() {
        let mut config = sample();
        let first = config.digest();
        assert_eq!(first.len(), 40);
        config.pend("cores", "4");
        let second = config.digest();
        assert_ne!(first, second);
        config.revert("cores");
        assert_eq!(config.digest(), first);
        config.snapshots.insert("s1".into(), config.current.clone());
        assert_ne!(config.digest(), first);
    }

    #[test]
    fn the_password_is_never_shown() {
        let options = Options::from([("cipassword".to_owned(), "secret".to_owned())]);
        assert_eq!(
            object(&options, None, is_numeric),
            json!({"cipassword": "**********"})
        );
    }

    #[test]
    fn tags_are_sorted_and_unique_without_regard_to_case() {
        assert_eq!(tidy_tags("b;a,c B"), "a;b;c");
        assert_eq!(tidy_tags("k8s;pool-a"), "k8s;pool-a");
    }
}
