//! PVE's property strings, taken apart far enough to compare and merge them.
//!
//! A guest's configuration is full of them (`virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=5`). An
//! intent owns some of the items and not others: those it owns must match, the rest is carried
//! over when the string is written.

use std::collections::BTreeSet;

/// One property string.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Prop(Vec<(String, String)>);

/// The item that may stand without its key, for each family of configuration keys.
fn default_key(key: &str) -> &'static str {
    match key.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "scsi" | "virtio" | "sata" | "ide" | "efidisk" | "tpmstate" | "unused" => "file",
        "rootfs" | "mp" => "volume",
        "cpu" => "cputype",
        "agent" => "enabled",
        "machine" | "vga" => "type",
        "rng" => "source",
        "hostpci" | "usb" => "host",
        "watchdog" => "model",
        "startup" => "order",
        "boot" => "legacy",
        _ => "",
    }
}

/// What an item means that is not written: almost all are off.
fn implied(of: &str, item: &str) -> &'static str {
    match item {
        // Of a container, only its root is in backups unless it is said.
        "backup" if of.starts_with("mp") => "0",
        "backup" | "replicate" | "rombar" => "1",
        _ => "0",
    }
}

impl Prop {
    /// Takes the value of a configuration key apart.
    pub(crate) fn parse(key: &str, text: &str) -> Self {
        let default = default_key(key);
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(|item| match item.split_once('=') {
                Some((key, value)) => (key.trim().to_owned(), value.trim().to_owned()),
                None if default.is_empty() => (item.to_owned(), String::new()),
                None => (default.to_owned(), item.to_owned()),
            });
        Self(items.collect())
    }

    /// The value of an item.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// Sets an item, in its place if it is there.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Sets an item with this value if there is one.
    pub(crate) fn maybe(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.set(key, value.to_string());
        }
    }

    /// Sets a truth if there is one.
    pub(crate) fn flag(&mut self, key: &str, value: Option<bool>) {
        self.maybe(key, value.map(u8::from));
    }

    /// Takes an item out.
    pub(crate) fn remove(&mut self, key: &str) {
        self.0.retain(|(k, _)| k != key);
    }

    /// All items in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Whether every item of `self` is in `found`, the value of a configuration key, with the same meaning.
    pub(crate) fn satisfied_by(&self, of: &str, found: &Prop) -> bool {
        self.items().all(|(key, value)| match found.get(key) {
            Some(other) => same(value, other),
            None => value == implied(of, key),
        })
    }

    /// `self` without these items.
    pub(crate) fn without(&self, items: Option<&BTreeSet<String>>) -> Prop {
        let mut out = self.clone();
        for item in items.into_iter().flatten() {
            out.remove(item);
        }
        out
    }

    /// `self` with the items of `found` that it does not name.
    pub(crate) fn over(&self, found: &Prop) -> Prop {
        let mut out = self.clone();
        for (key, value) in found.items() {
            if out.get(key).is_none() {
                out.0.push((key.to_owned(), value.to_owned()));
            }
        }
        out
    }

    /// The value as PVE writes it: the default item without its key.
    pub(crate) fn print(&self, key: &str) -> String {
        let default = default_key(key);
        let mut out = String::new();
        for (k, v) in &self.0 {
            if !out.is_empty() {
                out.push(',');
            }
            if v.is_empty() {
                out.push_str(k);
            } else if k == default && out.is_empty() {
                out.push_str(v);
            } else {
                out.push_str(k);
                out.push('=');
                out.push_str(v);
            }
        }
        out
    }
}

/// Whether two values mean the same: case of hardware addresses and UUIDs, order of lists and the
/// spelling of truths do not matter.
fn same(a: &str, b: &str) -> bool {
    if a.eq_ignore_ascii_case(b) || truth(a) == truth(b) && truth(a).is_some() {
        return true;
    }
    if let (Ok(a), Ok(b)) = (a.parse::<f64>(), b.parse::<f64>()) {
        return (a - b).abs() < 1e-9;
    }
    if a.contains(';') || b.contains(';') {
        let sort = |text: &str| {
            let mut list: Vec<String> = text.split(';').map(str::to_owned).collect();
            list.sort();
            list
        };
        return sort(a) == sort(b);
    }
    false
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printing_and_reading_is_identity(
            items in prop::collection::btree_map("[a-z]{1,8}", "[a-z0-9:/.+;-]{1,12}", 1..6)
        ) {
            let mut prop = Prop::default();
            for (key, value) in &items {
                prop.set(key, value.clone());
            }
            prop_assert_eq!(Prop::parse("net0", &prop.print("net0")), prop.clone());
            prop_assert!(prop.satisfied_by("net0", &prop));
        }

        #[test]
        fn what_was_merged_satisfies_what_was_wanted(
            want in prop::collection::btree_map("[a-d]", "[0-9]{1,2}", 1..4),
            have in prop::collection::btree_map("[a-f]", "[0-9]{1,2}", 0..6),
        ) {
            let make = |map: &std::collections::BTreeMap<String, String>| {
                let mut prop = Prop::default();
                for (key, value) in map { prop.set(key, value.clone()); }
                prop
            };
            let (want, have) = (make(&want), make(&have));
            prop_assert!(want.satisfied_by("net0", &want.over(&have)));
            for (key, value) in have.items() {
                if want.get(key).is_none() {
                    let merged = want.over(&have);
                    prop_assert_eq!(merged.get(key), Some(value));
                }
            }
        }

        #[test]
        fn reading_never_panics(key in "[a-z]{0,6}[0-9]?", text in "\\PC{0,60}") {
            let _ = Prop::parse(&key, &text).print(&key);
        }
    }

    #[test]
    fn default_items_are_understood_with_and_without_their_key() {
        let plain = Prop::parse("agent", "1");
        assert!(plain.satisfied_by(
            "agent",
            &Prop::parse("agent", "enabled=1,fstrim_cloned_disks=1")
        ));
        let disk = Prop::parse("scsi0", "local:100/vm-100-disk-0.raw,size=8G");
        assert_eq!(disk.get("file"), Some("local:100/vm-100-disk-0.raw"));
        assert_eq!(disk.print("scsi0"), "local:100/vm-100-disk-0.raw,size=8G");
    }

    #[test]
    fn spelling_is_not_a_difference() {
        let want = Prop::parse("net0", "virtio=bc:24:11:00:00:01,trunks=5;2,firewall=0");
        assert!(want.satisfied_by(
            "net0",
            &Prop::parse("net0", "virtio=BC:24:11:00:00:01,trunks=2;5,bridge=x")
        ));
        assert!(!want.satisfied_by(
            "net0",
            &Prop::parse("net0", "virtio=BC:24:11:00:00:01,trunks=2,firewall=0")
        ));
    }
}
