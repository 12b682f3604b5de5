//! What is left of a guest's own while the declared is written.

use std::collections::BTreeSet;

use pve::GuestConfig;

use super::Pass;
use crate::{diff::Changes, facts::Drift};

impl Pass<'_> {
    /// Makes room in the changes for what others have put there and nobody declares.
    pub(super) fn be_gentle(&self, changes: &mut Changes, have: &GuestConfig) {
        if self.intent.hardware.cpu.as_found {
            self.spread(changes, have);
        }
        self.leave_tags(changes, have);
    }

    /// Spreads processors over the sockets that are there, if they can be.
    fn spread(&self, changes: &mut Changes, have: &GuestConfig) {
        let Some(all) = self.intent.hardware.cpu.cores else {
            return;
        };
        let number = |key: &str| have.get(key).and_then(|text| text.parse::<u32>().ok());
        let sockets = number("sockets")
            .filter(|sockets| *sockets > 0)
            .unwrap_or(1);
        let fits = all.is_multiple_of(sockets);
        let (cores, sockets) = if fits {
            (all / sockets, sockets)
        } else {
            (all, 1)
        };
        for (key, value) in [("cores", cores), ("sockets", sockets)] {
            let wanted = (number(key).unwrap_or(1) != value).then(|| value.to_string());
            replace(changes, key, wanted, have);
        }
    }

    /// Tags of others stay, and of ours those that are declared.
    fn leave_tags(&self, changes: &mut Changes, have: &GuestConfig) {
        let options = &self.intent.options;
        let declared = options.tags.as_ref().filter(|_| !options.keep_tags);
        if self.record.tags.is_empty() || declared.is_some() {
            return;
        }
        let found = words(have.get("tags").unwrap_or_default());
        let wanted = wanted_tags(options);
        let others = found.difference(&self.record.tags).cloned();
        let all: BTreeSet<String> = others.chain(wanted).collect();
        changes.delete.remove("tags");
        if all.is_empty() && !found.is_empty() {
            replace(changes, "tags", None, have);
            changes.delete.insert("tags".to_owned());
        } else {
            let list = (all != found).then(|| all.into_iter().collect::<Vec<_>>().join(";"));
            replace(changes, "tags", list, have);
        }
    }

    /// The tags that are written beside those of others.
    pub(super) fn own_tags(&self) -> BTreeSet<String> {
        let options = &self.intent.options;
        if options.keep_tags {
            wanted_tags(options)
        } else {
            BTreeSet::new()
        }
    }
}

fn wanted_tags(options: &crate::intent::Options) -> BTreeSet<String> {
    let tags = options.tags.iter().flatten();
    tags.map(|tag| tag.to_lowercase()).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    let words = text.split([',', ';', ' ']).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// What is to be written of a key; nothing if it is well as it is.
fn replace(changes: &mut Changes, key: &str, value: Option<String>, have: &GuestConfig) {
    changes.set.remove(key);
    changes.drift.retain(|drift| drift.key != key);
    if let Some(value) = value {
        changes.drift.push(Drift {
            key: key.to_owned(),
            declared: Some(value.clone()),
            found: have.get(key).map(str::to_owned),
        });
        changes.set.insert(key.to_owned(), value);
    }
}
