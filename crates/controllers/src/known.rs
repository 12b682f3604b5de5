//! What the watch of one kind has seen, in the order of names.
//!
//! Everything that is done for several objects is done in this order, so that the same events lead to the same calls:
//! a hash map's order differs with every start, and a failure that depended on it could never be looked at twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    ResourceExt as _,
    runtime::{reflector::ObjectRef, watcher::Event},
};
use tokio::sync::SetOnce;

use crate::{
    hub::Kind,
    readable::{Readable, Unreadable},
};

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

    /// An event as far as it can be read.
    ///
    /// An object that was readable before stays as it was, for nobody knows what it says now: it may not be taken for gone,
    /// and its deletion is still seen. One that never was is passed over.
    pub(crate) fn read(&self, event: Event<Readable<K>>) -> (Option<Event<K>>, Option<Unreadable>) {
        let read = |object: Readable<K>, event: fn(K) -> Event<K>| match object.0 {
            Ok(object) => (Some(event(object)), None),
            Err(bad) => (self.before(&bad).map(event), Some(bad)),
        };
        match event {
            Event::Apply(object) => read(object, Event::Apply),
            Event::Delete(object) => read(object, Event::Delete),
            Event::InitApply(object) => read(object, Event::InitApply),
            Event::Init => (Some(Event::Init), None),
            Event::InitDone => (Some(Event::InitDone), None),
        }
    }

    /// What an object said while it could be read, under its present metadata.
    fn before(&self, bad: &Unreadable) -> Option<K> {
        let meta = &bad.metadata;
        let key = (
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        );
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let before = objects.get(&key).filter(|it| it.meta().uid == meta.uid)?;
        let mut object = K::clone(before);
        // Its spec is the one of that generation.
        let generation = object.meta().generation;
        *object.meta_mut() = meta.clone();
        object.meta_mut().generation = generation;
        Some(object)
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
                vec![gone(object)]
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
                    .map(|(_, object)| gone(Arc::unwrap_or_clone(object)));
                let told = gone.chain(objects.values().cloned()).collect();
                drop(objects);
                self.is_seen();
                told
            }
        }
    }
}

/// An object as it is told of when it has gone: deleted, and held by nobody. The last that was seen of it may be neither.
fn gone<K: Kind>(mut object: K) -> Arc<K> {
    let meta = object.meta_mut();
    meta.finalizers = None;
    // When, nobody knows; nor does it matter any more.
    meta.deletion_timestamp
        .get_or_insert(Time(Timestamp::default()));
    Arc::new(object)
}

/// Whether an object is told of because it has gone.
pub(crate) fn is_gone<K: Kind>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty()
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

    fn written(value: serde_json::Value) -> Readable<Cluster> {
        serde_json::from_value(value).unwrap()
    }

    fn tell(notes: &mut Notes<Cluster>, event: Event<Readable<Cluster>>) -> Vec<Arc<Cluster>> {
        let (event, _) = notes.read(event);
        event.map(|event| notes.take(event)).unwrap_or_default()
    }

    #[test]
    fn what_cannot_be_read_any_more_stays_as_it_was_until_it_goes() {
        let object = |uid: &str, spec: serde_json::Value| {
            let metadata = serde_json::json!({ "name": "a", "uid": uid, "labels": { "of": uid } });
            written(serde_json::json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata, "spec": spec
            }))
        };
        let (good, bad) = (serde_json::json!({ "paused": true }), serde_json::json!(5));
        let mut notes = Notes::new();
        let known = notes.known();
        assert!(tell(&mut notes, Event::Apply(object("1", bad.clone()))).is_empty());
        assert!(known.state().is_empty(), "there is nothing to know of it");
        tell(&mut notes, Event::Apply(object("1", good)));
        for event in [Event::Apply(object("1", bad.clone())), Event::Init] {
            tell(&mut notes, event);
        }
        tell(&mut notes, Event::InitApply(object("1", bad.clone())));
        assert_eq!(names(&tell(&mut notes, Event::InitDone)), ["a"]);
        assert!(known.state()[0].spec.paused);
        let gone = tell(&mut notes, Event::Delete(object("1", bad)));
        assert_eq!((names(&gone), known.state().len()), (vec!["a"], 0));
    }
}
