//! The life of CustomResourceDefinitions: accepted names, conditions, what is served.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Api;
use crate::{
    object,
    registry::{Kinds, Resource, crd, text},
    store::{Encoded, Entry, Expect, Op, Write},
};

pub(crate) const CRDS: &str = "apiextensions.k8s.io/customresourcedefinitions";
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Api {
    /// Serves what the store's CRDs define.
    pub(crate) fn load_crds(&self) {
        if let Ok(snapshot) = self.store.list(CRDS, "", None) {
            for entry in snapshot.entries {
                self.serve_crd(&entry);
            }
        }
    }

    fn serve_crd(&self, entry: &Entry) {
        let crd = entry.value();
        let resources = if is_established(&crd) {
            crd::resources(&crd, entry.revision)
        } else {
            Vec::new()
        };
        self.registry.set_crd(&entry.key, resources);
    }

    /// Lets a write take effect before its writer gets the answer.
    pub(crate) async fn after_write(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        entry: Option<&Arc<Entry>>,
    ) {
        match (&*resource.storage, entry) {
            (CRDS, Some(entry)) => self.settle_crd(resource, entry).await,
            ("rbac.authorization.k8s.io/clusterroles", _) => self.aggregate_roles(resource).await,
            ("/namespaces", Some(entry)) => self.furnish_namespace(entry).await,
            _ => {}
        }
    }

    async fn settle_crd(self: &Arc<Self>, resource: &Arc<Resource>, entry: &Arc<Entry>) {
        let mut entry = Arc::clone(entry);
        loop {
            let old = entry.value();
            let new = self.settled(&old);
            if new == old {
                break;
            }
            let mut new = new;
            self.track_as("kube-apiserver", resource, (Some(&old), &mut new), "status");
            let write = Write {
                resource: Arc::clone(&resource.storage),
                key: entry.key.to_string(),
                expect: Expect::Revision(entry.revision),
                op: Op::Put(Encoded::new(&new)),
            };
            match self.store.commit(write).await {
                Ok(committed) => entry = committed,
                // Somebody else wrote it meanwhile and has settled it.
                Err(_) => match self.store.get(CRDS, &entry.key) {
                    Some(current) if current.revision > entry.revision => entry = current,
                    _ => return,
                },
            }
        }
        self.serve_crd(&entry);
    }

    /// A CRD with the status its spec deserves.
    fn settled(&self, crd: &Value) -> Value {
        let mut new = crd.clone();
        let now = self.clock.now_rfc3339();
        let mut conditions = crd["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        match self.name_conflict(crd) {
            None => {
                object::set_condition(
                    &mut conditions,
                    ("NamesAccepted", "True"),
                    ("NoConflicts", "no conflicts found"),
                    &now,
                );
                object::set_condition(
                    &mut conditions,
                    ("Established", "True"),
                    (
                        "InitialNamesAccepted",
                        "the initial names have been accepted",
                    ),
                    &now,
                );
                new["status"]["acceptedNames"] = crd["spec"]["names"].clone();
            }
            Some((reason, message)) => {
                new["status"]["acceptedNames"] = self.free_names(crd);
                object::set_condition(
                    &mut conditions,
                    ("NamesAccepted", "False"),
                    (&reason, &message),
                    &now,
                );
                if !is_established(crd) {
                    object::set_condition(
                        &mut conditions,
                        ("Established", "False"),
                        ("NotAccepted", "not all names are accepted"),
                        &now,
                    );
                }
            }
        }
        new["status"]["conditions"] = Value::Array(conditions);
        let storage = crd["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|v| v["storage"] == true)
            .map(|v| text(v, "name"));
        if let Some(storage) = storage {
            let stored = object::strings(&crd["status"]["storedVersions"]);
            if !stored.contains(&storage) {
                let mut stored: Vec<&str> = stored;
                stored.push(storage);
                new["status"]["storedVersions"] = json!(stored);
            }
        }
        new
    }

    /// The first of a CRD's names that another kind of the same group has.
    fn name_conflict(&self, crd: &Value) -> Option<(String, String)> {
        let taken = Taken::by_others(&self.kinds(), crd);
        let names = &crd["spec"]["names"];
        let conflict = |reason: &str, name: &str| {
            Some((reason.to_owned(), format!("\"{name}\" is already in use")))
        };
        for (field, reason) in [
            ("plural", "PluralConflict"),
            ("singular", "SingularConflict"),
        ] {
            if taken.name(text(names, field)) {
                return conflict(reason, text(names, field));
            }
        }
        let mut short = object::strings(&names["shortNames"]).into_iter();
        if let Some(short) = short.find(|short| taken.name(short)) {
            return conflict("ShortNamesConflict", short);
        }
        for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
            if taken.kind(text(names, field)) {
                return conflict(reason, text(names, field));
            }
        }
        None
    }

    /// Those of a CRD's names that it can have; one that it has already stays until then.
    fn free_names(&self, crd: &Value) -> Value {
        let taken = Taken::by_others(&self.kinds(), crd);
        let (names, before) = (&crd["spec"]["names"], &crd["status"]["acceptedNames"]);
        let mut accepted = json!({"plural": "", "kind": ""});
        for field in ["plural", "singular", "kind", "listKind"] {
            let free = match field {
                "kind" | "listKind" => !taken.kind(text(names, field)),
                _ => !taken.name(text(names, field)),
            };
            let name = text(if free { names } else { before }, field);
            if !name.is_empty() {
                accepted[field] = json!(name);
            }
        }
        let short = object::strings(&names["shortNames"]);
        let list = if short.iter().any(|short| taken.name(short)) {
            before.get("shortNames")
        } else {
            names.get("shortNames")
        };
        object::put(&mut accepted, "shortNames", list.cloned());
        let categories = names.get("categories").cloned();
        object::put(&mut accepted, "categories", categories);
        accepted
    }
}

/// The names that other kinds of a group have.
struct Taken(Vec<Arc<Resource>>);

impl Taken {
    fn by_others(kinds: &Kinds, crd: &Value) -> Self {
        let group = text(&crd["spec"], "group");
        let plural = text(&crd["spec"]["names"], "plural");
        let others = kinds.all();
        let others = others.filter(|r| r.group == group && r.plural != plural);
        Self(others.cloned().collect())
    }

    fn name(&self, name: &str) -> bool {
        let has = |r: &Arc<Resource>| {
            r.plural == name || r.singular == name || r.short_names.iter().any(|s| s == name)
        };
        !name.is_empty() && self.0.iter().any(has)
    }

    fn kind(&self, name: &str) -> bool {
        !name.is_empty() && self.0.iter().any(|r| r.kind == name || r.list_kind == name)
    }
}

/// Says that a definition is going, and its objects with it.
pub(crate) fn mark_terminating(crd: &mut Value, now: &str) {
    let conditions = crd["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default();
    object::set_condition(
        &mut conditions,
        ("Terminating", "True"),
        (
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        ),
        now,
    );
    crd["status"]["conditions"] = Value::Array(conditions);
}

/// Whether a CRD's kinds are served.
pub(crate) fn is_established(crd: &Value) -> bool {
    crd["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Established" && c["status"] == "True")
}
