//! What the watch of one kind has seen, in the order of names.
//!
//! Everything that is done for several objects is done in this order, so that the same events lead to the same calls:
//! a hash map's order differs with every start, and a failure that depended on it could never be looked at twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use kube::runtime::{reflector::ObjectRef, watcher::Event};
use tokio::sync::SetOnce;

use crate::hub::Kind;

/// Namespace and name.
pub(crate) type Key = (String, String);

/// The key of a referenced object.
pub(crate) fn key_of<K: Kind>(reference: &ObjectRef<K>) -> Key {
    let namespace = reference.namespace.clone().unwrap_or_default();
    (namespace, reference.name.clone())
}

fn key<K: Kind>(object: &K) -> Key {
    let meta = object.meta();
    let namespace = meta.namespace.clone().unwrap_or_default();
    (namespace, meta.name.clone().unwrap_or_default())
}

type Objects<K> = BTreeMap<Key, Arc<K>>;

/// What the watch of one kind knows.
pub(crate) struct Known<K> {
    objects: Arc<RwLock<Objects<K>>>,
    seen: Arc<SetOnce<()>>,
}

impl<K> Clone for Known<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            seen: self.seen.clone(),
        }
    }
}

impl<K: Kind> Known<K> {
    /// Waits until everything there is has been seen once, or the API server is known not to serve the kind.
    pub(crate) async fn ready(&self) {
        self.seen.wait().await;
    }

    /// An object, if it is there.
    pub(crate) fn get(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        self.find(&key_of(reference))
    }

    /// An object by its namespace and name, if it is there.
    pub(crate) fn find(&self, key: &Key) -> Option<Arc<K>> {
        self.read().get(key).cloned()
    }

    /// All objects.
    pub(crate) fn state(&self) -> Vec<Arc<K>> {
        self.read().values().cloned().collect()
    }

    /// All objects that are like this.
    pub(crate) fn state_filter(&self, like: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let objects = self.read();
        objects.values().filter(|k| like(k)).cloned().collect()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An object as it is kept: what was read off the wire has room to spare in every list, a copy has not.
fn kept<K: Kind>(object: &K) -> Arc<K> {
    Arc::new(object.clone())
}

/// Where the watch of one kind writes down what it sees.
pub(crate) struct Notes<K> {
    objects: Arc<RwLock<Objects<K>>>,
    /// What a new list has shown so far.
    listed: Objects<K>,
    seen: Arc<SetOnce<()>>,
}

impl<K: Kind> Notes<K> {
    pub(crate) fn new() -> Self {
        Self {
            objects: Arc::default(),
            listed: Objects::new(),
            seen: Arc::default(),
        }
    }

    pub(crate) fn known(&self) -> Known<K> {
        Known {
            objects: self.objects.clone(),
            seen: self.seen.clone(),
        }
    }

    /// Everything has been seen, or there is nothing to be seen.
    pub(crate) fn is_seen(&self) {
        // Said before: the watch broke off since, and lists again.
        let _ = self.seen.set(());
    }

    /// Writes an event down; returns the objects that came, changed or went.
    ///
    /// A list counts when it is whole: until then nobody could find what it shows. What was there before
    /// it and is not in it has gone while nobody watched.
    pub(crate) fn take(&mut self, event: Event<K>) -> Vec<Arc<K>> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(object) => {
                let object = kept(&object);
                objects.insert(key(&*object), object.clone());
                vec![object]
            }
            Event::Delete(object) => {
                objects.remove(&key(&object));
                vec![Arc::new(object)]
            }
            Event::Init => {
                self.listed = Objects::new();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.insert(key(&object), kept(&object));
                Vec::new()
            }
            Event::InitDone => {
                let before = std::mem::replace(&mut *objects, std::mem::take(&mut self.listed));
                let gone = before
                    .into_iter()
                    .filter(|(key, _)| !objects.contains_key(key))
                    .map(|(_, object)| object);
                let told = gone.chain(objects.values().cloned()).collect();
                drop(objects);
                self.is_seen();
                told
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use api::cluster_api::{Cluster, ClusterSpec};

    use super::*;

    fn cluster(name: &str) -> Cluster {
        Cluster::new(name, ClusterSpec::default())
    }

    fn names(objects: &[Arc<Cluster>]) -> Vec<&str> {
        let name = |cluster: &'_ Arc<Cluster>| cluster.metadata.name.as_ref().map(String::len);
        assert!(objects.iter().all(|object| name(object).is_some()));
        objects
            .iter()
            .filter_map(|cluster| cluster.metadata.name.as_deref())
            .collect()
    }

    #[test]
    fn a_list_is_told_of_when_it_is_whole_and_with_what_is_missing_from_it() {
        let mut notes = Notes::new();
        let known = notes.known();
        for event in [
            Event::Init,
            Event::InitApply(cluster("c")),
            Event::InitApply(cluster("a")),
        ] {
            assert!(notes.take(event).is_empty());
        }
        assert!(known.state().is_empty());
        assert_eq!(names(&notes.take(Event::InitDone)), ["a", "c"]);
        assert_eq!(names(&known.state()), ["a", "c"]);

        // The watch broke off, and "a" went meanwhile.
        notes.take(Event::Init);
        notes.take(Event::InitApply(cluster("c")));
        notes.take(Event::InitApply(cluster("b")));
        assert_eq!(names(&known.state()), ["a", "c"], "until the list is whole");
        assert_eq!(names(&notes.take(Event::InitDone)), ["a", "b", "c"]);
        assert_eq!(names(&known.state()), ["b", "c"]);
    }
}
