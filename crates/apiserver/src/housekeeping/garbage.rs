//! Objects whose owners are gone, and owners that go with or without their dependents.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::Housekeeper;
use crate::{
    api::{Address, By, DeleteOptions, Policy},
    object,
    registry::{Resource, text},
    status::Status,
    store::{Entry, Event},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// An object's place: the store's table and key.
type Place = (Arc<str>, Arc<str>);

/// Who depends on whom, by the owner's uid.
#[derive(Default)]
pub(super) struct Graph {
    owners_of: BTreeMap<Place, Vec<String>>,
    dependents_of: BTreeMap<String, BTreeSet<Place>>,
    /// Dependents to look at: an owner went, or they are new.
    doubted: BTreeSet<Place>,
    /// Owners that wait with a finalizer for their dependents, by place.
    leaving: BTreeMap<Place, String>,
}

impl Graph {
    pub(super) fn put(&mut self, storage: &Arc<str>, entry: &Entry) {
        let place = (Arc::clone(storage), Arc::clone(&entry.key));
        let mentions = |what: &str| {
            let what = what.as_bytes();
            entry.bytes.windows(what.len()).any(|window| window == what)
        };
        let owned = mentions("\"ownerReferences\"");
        let leaving = mentions("\"deletionTimestamp\"") && mentions("\"finalizers\"");
        if !owned && !leaving {
            self.forget_owners(&place);
            self.leaving.remove(&place);
            return;
        }
        let value = entry.value();
        self.forget_owners(&place);
        let owners: Vec<String> = references(&value)
            .iter()
            .map(|reference| text(reference, "uid").to_owned())
            .collect();
        if !owners.is_empty() {
            for owner in &owners {
                self.dependents_of
                    .entry(owner.clone())
                    .or_default()
                    .insert(place.clone());
            }
            self.owners_of.insert(place.clone(), owners);
            self.doubted.insert(place.clone());
        }
        let waits = object::is_deleting(&value)
            && (object::has_finalizer(&value, ORPHAN) || object::has_finalizer(&value, FOREGROUND));
        if waits {
            self.leaving.insert(place, object::uid(&value).to_owned());
        } else {
            self.leaving.remove(&place);
        }
    }

    pub(super) fn gone(&mut self, event: &Event) {
        let place = (Arc::clone(&event.resource), Arc::clone(&event.entry.key));
        self.forget_owners(&place);
        self.doubted.remove(&place);
        self.leaving.remove(&place);
        if self.dependents_of.is_empty() {
            return;
        }
        let value = event.entry.value();
        if let Some(dependents) = self.dependents_of.get(object::uid(&value)) {
            self.doubted.extend(dependents.iter().cloned());
        }
    }

    pub(super) fn doubt_all(&mut self) {
        self.doubted = self.owners_of.keys().cloned().collect();
    }

    fn forget_owners(&mut self, place: &Place) {
        for owner in self.owners_of.remove(place).unwrap_or_default() {
            if let Some(dependents) = self.dependents_of.get_mut(&owner) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents_of.remove(&owner);
                }
            }
        }
    }

    fn dependents(&self, uid: &str) -> Vec<Place> {
        self.dependents_of
            .get(uid)
            .map(|places| places.iter().cloned().collect())
            .unwrap_or_default()
    }
}

fn references(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// What an owner reference points at.
enum Owner {
    /// There, and staying.
    Solid,
    /// Being deleted in the foreground: it waits for its dependents.
    Waiting,
    /// Not there.
    Absent,
}

impl Housekeeper {
    /// Looks after dependents in doubt and owners on their way out; true when some work failed.
    pub(super) async fn collect_garbage(&mut self) -> bool {
        let mut failed = false;
        // Deleting begets deletions: follow them at once, as far as they go.
        loop {
            let doubted = std::mem::take(&mut self.graph.doubted);
            let leaving: Vec<_> = self.graph.leaving.clone().into_iter().collect();
            let before = self.api.store.revision();
            for place in doubted {
                if let Err(error) = self.settle_dependent(&place).await {
                    tracing::debug!(%error, key = %place.1, "garbage collection will try again");
                    self.graph.doubted.insert(place);
                    failed = true;
                }
            }
            for (place, uid) in leaving {
                if let Err(error) = self.settle_owner(&place, &uid).await {
                    tracing::debug!(%error, key = %place.1, "garbage collection will try again");
                    failed = true;
                }
            }
            self.catch_up();
            if failed || (self.api.store.revision() == before && self.graph.doubted.is_empty()) {
                return failed;
            }
        }
    }

    fn read(&self, place: &Place) -> Option<(Arc<Resource>, Value)> {
        let entry = self.api.store.get(&place.0, &place.1)?;
        let resource = self.api.kinds().by_storage(&place.0)?;
        Some((resource, entry.value()))
    }

    fn owner(&self, dependent: &Value, reference: &Value) -> Owner {
        let (group, version) = object::group_version(text(reference, "apiVersion"));
        let kinds = self.api.kinds();
        let Some(resource) = kinds
            .find_kind(group, version, text(reference, "kind"))
            .or_else(|| kinds.any_version(group, text(reference, "kind")))
        else {
            // A kind that is not served may come back; what depends on it stays.
            return Owner::Solid;
        };
        let key = resource.key(object::namespace(dependent), text(reference, "name"));
        let found = self
            .api
            .store
            .get(&resource.storage, &key)
            .map(|entry| entry.value())
            .filter(|owner| object::uid(owner) == text(reference, "uid"));
        match found {
            None => Owner::Absent,
            Some(owner)
                if object::is_deleting(&owner) && object::has_finalizer(&owner, FOREGROUND) =>
            {
                Owner::Waiting
            }
            Some(_) => Owner::Solid,
        }
    }

    /// Deletes a dependent that has no owner left, or drops the references that lead nowhere.
    async fn settle_dependent(&self, place: &Place) -> Result<(), Status> {
        let Some((resource, value)) = self.read(place) else {
            return Ok(());
        };
        if object::is_deleting(&value) {
            return Ok(());
        }
        let (mut solid, mut waiting, mut dangling) = (0, 0, Vec::new());
        for reference in references(&value) {
            match self.owner(&value, reference) {
                Owner::Solid => solid += 1,
                Owner::Waiting => {
                    waiting += 1;
                    dangling.push(text(reference, "uid").to_owned());
                }
                Owner::Absent => dangling.push(text(reference, "uid").to_owned()),
            }
        }
        if dangling.is_empty() {
            return Ok(());
        }
        if solid > 0 {
            return self.drop_references(&resource, &value, &dangling).await;
        }
        let has_dependents = !self.graph.dependents(object::uid(&value)).is_empty();
        let policy = match (waiting > 0, has_dependents) {
            (true, true) => Some(Policy::Foreground),
            _ => Some(Policy::Background).filter(|_| {
                !object::has_finalizer(&value, ORPHAN) && !object::has_finalizer(&value, FOREGROUND)
            }),
        };
        let options = DeleteOptions {
            policy,
            uid: Some(object::uid(&value).to_owned()),
            ..DeleteOptions::default()
        };
        let at = (object::namespace(&value), object::name(&value));
        match self
            .api
            .delete_object(&self.context, &resource, at, &options)
            .await
        {
            Err(status) if !status.is_not_found() && !status.is_conflict() => Err(status),
            _ => Ok(()),
        }
    }

    /// Helps an owner that waits for its dependents: orphans them, or sees them go.
    async fn settle_owner(&self, place: &Place, uid: &str) -> Result<(), Status> {
        let Some((resource, value)) = self.read(place) else {
            return Ok(());
        };
        if object::uid(&value) != uid || !object::is_deleting(&value) {
            return Ok(());
        }
        let dependents: Vec<_> = self
            .graph
            .dependents(uid)
            .iter()
            .filter_map(|place| self.read(place))
            .collect();
        if object::has_finalizer(&value, ORPHAN) {
            for (dependent, object) in &dependents {
                self.drop_references(dependent, object, &[uid.to_owned()])
                    .await?;
            }
            return self.drop_finalizer(&resource, &value, ORPHAN).await;
        }
        if !object::has_finalizer(&value, FOREGROUND) {
            return Ok(());
        }
        let mut blocked = false;
        for (_, object) in &dependents {
            blocked |= references(object)
                .iter()
                .any(|r| text(r, "uid") == uid && r["blockOwnerDeletion"] == true);
        }
        for (dependent, object) in dependents {
            let key: Arc<str> = dependent
                .key(object::namespace(&object), object::name(&object))
                .into();
            self.settle_dependent(&(Arc::clone(&dependent.storage), key))
                .await?;
        }
        if blocked {
            return Ok(());
        }
        self.drop_finalizer(&resource, &value, FOREGROUND).await
    }

    async fn drop_references(
        &self,
        resource: &Arc<Resource>,
        value: &Value,
        uids: &[String],
    ) -> Result<(), Status> {
        self.edit(resource, value, |object| {
            if let Some(metadata) = object::metadata_mut(object)
                && let Some(list) = metadata
                    .get_mut("ownerReferences")
                    .and_then(Value::as_array_mut)
            {
                list.retain(|r| !uids.iter().any(|uid| r["uid"] == json!(uid)));
                if list.is_empty() {
                    metadata.remove("ownerReferences");
                }
            }
        })
        .await
    }

    async fn drop_finalizer(
        &self,
        resource: &Arc<Resource>,
        value: &Value,
        finalizer: &str,
    ) -> Result<(), Status> {
        self.edit(resource, value, |object| {
            object::remove_finalizer(object, finalizer);
        })
        .await
    }

    /// Changes an object through the same road as clients.
    pub(super) async fn edit(
        &self,
        resource: &Arc<Resource>,
        value: &Value,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> Result<(), Status> {
        let at = Address {
            namespace: object::namespace(value),
            name: object::name(value),
            subresource: "",
        };
        let edited = self
            .api
            .change(&self.context, resource, at, By::Update, |old| {
                let mut new = old.clone();
                object::take_meta(&mut new, "resourceVersion");
                change(&mut new);
                Ok(new)
            })
            .await;
        match edited {
            Err(status) if status.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }
}
