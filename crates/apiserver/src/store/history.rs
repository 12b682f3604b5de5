//! The history in memory: live objects, the recent events, and the floor below which events are gone.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use super::{Error, Expect, Write, encode};

/// An object at one revision.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) revision: u64,
    pub(crate) key: Arc<str>,
    /// The object's JSON, `resourceVersion` included.
    pub(crate) bytes: Bytes,
    metadata_at: usize,
}

impl Entry {
    pub(super) fn new(revision: u64, key: Arc<str>, bytes: Bytes) -> Self {
        let metadata_at = encode::metadata_at(&bytes);
        Self {
            revision,
            key,
            bytes,
            metadata_at,
        }
    }

    /// Parses the object.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("the store holds only JSON it serialised")
    }

    /// The JSON from `"metadata"` on, without the opening brace, `apiVersion` and `kind`.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.metadata_at..]
    }

    /// The JSON before `"metadata"`: what tells version and kind.
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..self.metadata_at]
    }
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) resource: Arc<str>,
    /// The object after the change; for a deletion its final state at the deletion's revision.
    pub(crate) entry: Arc<Entry>,
    /// The object before the change.
    pub(crate) previous: Option<Arc<Entry>>,
    pub(crate) deleted: bool,
}

impl Event {
    pub(crate) fn revision(&self) -> u64 {
        self.entry.revision
    }

    /// Bytes that only the log keeps alive.
    fn weight(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |entry| entry.bytes.len());
        let last = if self.deleted {
            self.entry.bytes.len()
        } else {
            0
        };
        previous + last
    }
}

/// History older than the floor was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// The oldest revision that can be asked for.
    pub(crate) floor: u64,
}

/// Objects of one resource as they were at one revision, in key order.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) entries: Vec<Arc<Entry>>,
}

/// How much history is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            events: 16 * 1024,
            bytes: 32 << 20,
        }
    }
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<Arc<str>, Arc<Entry>>,
    log: VecDeque<Arc<Event>>,
    changed: watch::Sender<u64>,
}

impl Table {
    fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            changed: watch::Sender::new(0),
        }
    }
}

/// What a batch of writes not yet applied would leave: the revision of a key, or `None` when deleted.
pub(super) type Overlay = BTreeMap<(Arc<str>, String), Option<Arc<Entry>>>;

pub(super) struct History {
    tables: BTreeMap<Arc<str>, Table>,
    revision: u64,
    floor: u64,
    keep: Keep,
    /// Revisions of the log in order, with the resource they belong to.
    order: VecDeque<(u64, Arc<str>)>,
    weight: usize,
}

impl History {
    pub(super) fn new(keep: Keep) -> Self {
        Self {
            tables: BTreeMap::new(),
            revision: 1,
            floor: 0,
            keep,
            order: VecDeque::new(),
            weight: 0,
        }
    }

    /// Sets where a history read from disk stands.
    pub(super) fn restore(&mut self, revision: u64, floor: u64) {
        self.revision = self.revision.max(revision);
        self.floor = floor;
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn get(&self, resource: &str, key: &str) -> Option<Arc<Entry>> {
        self.tables.get(resource)?.objects.get(key).cloned()
    }

    fn current(
        &self,
        resource: &Arc<str>,
        key: &str,
        overlay: Option<&Overlay>,
    ) -> Option<Arc<Entry>> {
        let pending = overlay.and_then(|o| o.get(&(Arc::clone(resource), key.to_owned())));
        match pending {
            Some(pending) => pending.clone(),
            None => self.get(resource, key),
        }
    }

    /// Whether the precondition of a write holds.
    pub(super) fn check(&self, write: &Write, overlay: Option<&Overlay>) -> Result<(), Error> {
        let current = self.current(&write.resource, &write.key, overlay);
        let holds = match write.expect {
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => current.is_some_and(|c| c.revision == revision),
        };
        if holds { Ok(()) } else { Err(Error::Conflict) }
    }

    /// The event a write makes.
    pub(super) fn event(
        &self,
        write: &Write,
        revision: u64,
        overlay: Option<&Overlay>,
    ) -> Arc<Event> {
        let previous = self.current(&write.resource, &write.key, overlay);
        let key = previous
            .as_ref()
            .map_or_else(|| Arc::from(write.key.as_str()), |p| Arc::clone(&p.key));
        Arc::new(Event {
            resource: Arc::clone(&write.resource),
            entry: Arc::new(Entry::new(revision, key, write.op.encoded().at(revision))),
            previous,
            deleted: write.op.is_delete(),
        })
    }

    /// Adds events, in order.
    pub(super) fn apply(&mut self, events: Vec<Arc<Event>>) {
        for event in events {
            self.revision = event.revision();
            self.weight += event.weight();
            self.order
                .push_back((event.revision(), Arc::clone(&event.resource)));
            let table = self
                .tables
                .entry(Arc::clone(&event.resource))
                .or_insert_with(Table::new);
            let key = Arc::clone(&event.entry.key);
            if event.deleted {
                table.objects.remove(&key);
            } else {
                table.objects.insert(key, Arc::clone(&event.entry));
            }
            table.log.push_back(event);
            table.changed.send_replace(self.revision);
        }
    }

    /// Drops history beyond what is kept; returns the revisions whose records nobody can ask for any more.
    pub(super) fn compact(&mut self) -> Vec<u64> {
        // Letting it grow an eighth beyond the limit makes compaction rare instead of constant.
        let slack = |limit: usize| limit + limit / 8;
        if self.order.len() <= slack(self.keep.events) && self.weight <= slack(self.keep.bytes) {
            return Vec::new();
        }
        let mut garbage = Vec::new();
        while self.order.len() > self.keep.events || self.weight > self.keep.bytes {
            if !self.pop(&mut garbage) {
                break;
            }
        }
        garbage
    }

    /// Drops all history up to a revision.
    pub(super) fn compact_to(&mut self, revision: u64) -> Vec<u64> {
        let mut garbage = Vec::new();
        while self
            .order
            .front()
            .is_some_and(|(first, _)| *first <= revision)
        {
            self.pop(&mut garbage);
        }
        self.floor = self.floor.max(revision.min(self.revision));
        garbage
    }

    fn pop(&mut self, garbage: &mut Vec<u64>) -> bool {
        let Some((revision, resource)) = self.order.pop_front() else {
            return false;
        };
        self.floor = revision;
        let event = self
            .tables
            .get_mut(&resource)
            .and_then(|table| table.log.pop_front());
        if let Some(event) = event {
            self.weight = self.weight.saturating_sub(event.weight());
            // The state at the floor needs this event's object, no longer the one before it.
            if let Some(previous) = &event.previous {
                garbage.push(previous.revision);
            }
            if event.deleted {
                garbage.push(revision);
            }
        }
        true
    }

    pub(super) fn list(
        &self,
        resource: &str,
        prefix: &str,
        at: Option<u64>,
    ) -> Result<Snapshot, Compacted> {
        let revision = at.unwrap_or(self.revision);
        if revision < self.floor {
            return Err(Compacted { floor: self.floor });
        }
        let Some(table) = self.tables.get(resource) else {
            return Ok(Snapshot {
                revision,
                entries: Vec::new(),
            });
        };
        let range = table
            .objects
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix));
        let entries = if revision >= self.revision {
            range.map(|(_, entry)| Arc::clone(entry)).collect()
        } else {
            let mut objects: BTreeMap<Arc<str>, Arc<Entry>> = range
                .map(|(key, entry)| (Arc::clone(key), Arc::clone(entry)))
                .collect();
            let later = table
                .log
                .iter()
                .rev()
                .take_while(|event| event.revision() > revision)
                .filter(|event| event.entry.key.starts_with(prefix));
            for event in later {
                match &event.previous {
                    Some(previous) => {
                        objects.insert(Arc::clone(&previous.key), Arc::clone(previous));
                    }
                    None => {
                        objects.remove(&event.entry.key);
                    }
                }
            }
            objects.into_values().collect()
        };
        Ok(Snapshot { revision, entries })
    }

    pub(super) fn events(
        &self,
        resource: Option<&str>,
        after: u64,
    ) -> Result<(Vec<Arc<Event>>, u64), Compacted> {
        if after < self.floor {
            return Err(Compacted { floor: self.floor });
        }
        let tail = |table: &Table| {
            let from = table.log.partition_point(|event| event.revision() <= after);
            table.log.range(from..).cloned().collect::<Vec<_>>()
        };
        let events = if let Some(resource) = resource {
            self.tables.get(resource).map(tail).unwrap_or_default()
        } else {
            let mut all: Vec<_> = self.tables.values().flat_map(tail).collect();
            all.sort_by_key(|event| event.revision());
            all
        };
        Ok((events, self.revision.max(after)))
    }

    pub(super) fn changed(&self, resource: &str) -> u64 {
        self.tables
            .get(resource)
            .map_or(0, |table| *table.changed.borrow())
    }

    pub(super) fn changes_of(&self, resource: &str) -> Option<watch::Receiver<u64>> {
        Some(self.tables.get(resource)?.changed.subscribe())
    }

    pub(super) fn subscribe(&mut self, resource: &Arc<str>) -> watch::Receiver<u64> {
        self.tables
            .entry(Arc::clone(resource))
            .or_insert_with(Table::new)
            .changed
            .subscribe()
    }

    pub(super) fn counts(&self) -> Vec<(Arc<str>, usize)> {
        self.tables
            .iter()
            .map(|(resource, table)| (Arc::clone(resource), table.objects.len()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::store::{Encoded, Op};

    fn write(history: &History, key: &str, delete: bool) -> Write {
        let current = history.get("t", key);
        let encoded = Encoded::new(&json!({"metadata": {"name": key}}));
        Write {
            resource: "t".into(),
            key: key.to_owned(),
            expect: current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision)),
            op: if delete {
                Op::Delete(encoded)
            } else {
                Op::Put(encoded)
            },
        }
    }

    proptest! {
        /// Every state that can be asked for is the state that was, and the records that compaction leaves
        /// rebuild the same history.
        #[test]
        fn any_kept_state_can_be_read_again(
            steps in prop::collection::vec((0_u8..5, any::<bool>()), 1..60),
            keep in 1_usize..30,
        ) {
            let mut history = History::new(Keep { events: keep, bytes: usize::MAX / 2 });
            let mut model: BTreeMap<String, u64> = BTreeMap::new();
            let mut states = vec![(history.revision(), model.clone())];
            let mut records: BTreeMap<u64, Arc<Event>> = BTreeMap::new();
            for (key, delete) in steps {
                let key = format!("k{key}");
                let delete = delete && model.contains_key(&key);
                let write = write(&history, &key, delete);
                prop_assert!(history.check(&write, None).is_ok());
                let event = history.event(&write, history.revision() + 1, None);
                records.insert(event.revision(), Arc::clone(&event));
                history.apply(vec![event]);
                if delete {
                    model.remove(&key);
                } else {
                    model.insert(key, history.revision());
                }
                for garbage in history.compact() {
                    records.remove(&garbage);
                }
                states.push((history.revision(), model.clone()));
            }
            for (revision, state) in &states {
                match history.list("t", "", Some(*revision)) {
                    Err(_) => prop_assert!(*revision < history.floor()),
                    Ok(snapshot) => {
                        let seen: BTreeMap<String, u64> = snapshot
                            .entries
                            .iter()
                            .map(|e| (e.key.to_string(), e.revision))
                            .collect();
                        prop_assert_eq!(&seen, state);
                    }
                }
            }
            let mut rebuilt = History::new(Keep { events: keep, bytes: usize::MAX / 2 });
            for event in records.into_values() {
                rebuilt.apply(vec![event]);
            }
            rebuilt.compact_to(history.floor());
            rebuilt.restore(history.revision(), history.floor());
            let keys = |history: &History| -> Vec<(String, u64)> {
                let snapshot = history.list("t", "", None).expect("now is always there");
                snapshot.entries.iter().map(|e| (e.key.to_string(), e.revision)).collect()
            };
            prop_assert_eq!(keys(&rebuilt), keys(&history));
        }
    }
}
