//! The record of who owns which fields: `metadata.managedFields`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::set::FieldSet;
use crate::golang;

/// At most so many managers are remembered for updates; the oldest are merged into one.
const MAX_UPDATE_MANAGERS: usize = 10;

/// Who owns fields, and by which operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) applied: bool,
    /// Empty for appliers, who are the same whichever version they use.
    pub(crate) version: String,
    pub(crate) subresource: String,
}

impl Manager {
    pub(crate) fn new(name: &str, applied: bool, version: &str, subresource: &str) -> Self {
        Self {
            name: name.to_owned(),
            applied,
            version: if applied {
                String::new()
            } else {
                version.to_owned()
            },
            subresource: subresource.to_owned(),
        }
    }

    /// The manager as messages show it.
    pub(crate) fn shown(&self) -> String {
        let mut out = golang::quote(&self.name);
        if !self.subresource.is_empty() {
            let _ = write!(
                out,
                " with subresource {}",
                golang::quote(&self.subresource)
            );
        }
        if !self.applied {
            let _ = write!(out, " using {}", self.version);
        }
        out
    }
}

/// What a manager owns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Owned {
    pub(crate) version: String,
    pub(crate) set: FieldSet,
    pub(crate) time: Option<Value>,
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Managed(pub(crate) BTreeMap<Manager, Owned>);

impl Managed {
    /// Reads the record; an error in Kubernetes' words when it is malformed.
    pub(crate) fn decode(entries: Option<&Value>) -> Result<Self, String> {
        let mut out = BTreeMap::new();
        let entries = entries.and_then(Value::as_array);
        for (i, entry) in entries.into_iter().flatten().enumerate() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let applied = match text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let version = text("apiVersion");
            if version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {i}")),
                other => {
                    let other = golang::quote(other);
                    return Err(format!(
                        "invalid fieldsType {other} in managed fields entry {i}"
                    ));
                }
            }
            let set = match entry.get("fieldsV1") {
                None => FieldSet::default(),
                Some(fields) => FieldSet::decode(fields)
                    .ok_or_else(|| format!("error decoding set in managed fields entry {i}"))?,
            };
            out.insert(
                Manager::new(text("manager"), applied, version, text("subresource")),
                Owned {
                    version: version.to_owned(),
                    set,
                    time: entry.get("time").cloned(),
                },
            );
        }
        Ok(Self(out))
    }

    /// The record as it appears in metadata; none when nobody owns anything.
    pub(crate) fn encode(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<(&Manager, &Owned)> = self.0.iter().collect();
        entries.sort_by_key(|(manager, owned)| (!manager.applied, seconds(owned)));
        let entries = entries.into_iter().map(|(manager, owned)| {
            let mut entry = Map::new();
            let operation = if manager.applied { "Apply" } else { "Update" };
            entry.insert("manager".into(), manager.name.as_str().into());
            entry.insert("operation".into(), operation.into());
            entry.insert("apiVersion".into(), owned.version.as_str().into());
            if let Some(time) = &owned.time {
                entry.insert("time".into(), time.clone());
            }
            entry.insert("fieldsType".into(), "FieldsV1".into());
            entry.insert("fieldsV1".into(), owned.set.encode());
            if !manager.subresource.is_empty() {
                entry.insert("subresource".into(), manager.subresource.as_str().into());
            }
            Value::Object(entry)
        });
        Some(Value::Array(entries.collect()))
    }

    /// Forgets managers that own nothing.
    pub(crate) fn drop_empty(&mut self) {
        self.0.retain(|_, owned| !owned.set.is_empty());
    }

    /// Merges the oldest updaters into one per version until there are few enough.
    pub(crate) fn cap(&mut self) {
        let mut updaters: Vec<Manager> = self.0.keys().filter(|m| !m.applied).cloned().collect();
        let mut excess = updaters.len().saturating_sub(MAX_UPDATE_MANAGERS);
        updaters.sort_by_key(|manager| (self.0.get(manager).map(seconds), manager.clone()));
        let mut first_of: BTreeMap<String, Manager> = BTreeMap::new();
        for manager in updaters {
            if excess == 0 {
                break;
            }
            let Some(version) = self.0.get(&manager).map(|owned| owned.version.clone()) else {
                continue;
            };
            let Some(first) = first_of.get(&version) else {
                first_of.insert(version, manager);
                continue;
            };
            let bucket = Manager::new("ancient-changes", false, &version, "");
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            if let Some(newer) = self.0.remove(&manager)
                && let Some(owned) = self.0.get_mut(&bucket)
            {
                owned.set = owned.set.union(&newer.set);
                owned.time = newer.time;
                excess -= 1;
            }
        }
    }

    /// Whether both record the same, whenever it was.
    pub(crate) fn same_but_times(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .zip(&other.0)
                .all(|((a, x), (b, y))| a == b && x.version == y.version && x.set == y.set)
    }
}

fn seconds(owned: &Owned) -> i64 {
    let time = owned.time.as_ref().and_then(Value::as_str);
    time.and_then(|t| t.parse::<jiff::Timestamp>().ok())
        .map_or(0, jiff::Timestamp::as_second)
}
