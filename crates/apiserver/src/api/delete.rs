//! Deleting objects: at once, gracefully, or when their finalizers are done.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Api,
    context::{Context, invalid_options, unknown_dry_run},
    decode,
    dispatch::Answer,
    list::Selection,
    meta::{self, about},
    render::Renderer,
};
use crate::{
    admission::{Attributes, Operation},
    clock, object,
    registry::{Resource, text},
    request::Verb,
    status::{Cause, Result, Status},
    store::{self, Encoded, Entry, Expect, Op, Write},
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// `DeleteOptions`, from the body or the query string.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) grace: Option<i64>,
    pub(crate) policy: Option<Policy>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// Part of an eviction, which webhooks have been asked about.
    pub(crate) evicts: bool,
}

/// What happens to an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Orphan,
    Background,
    Foreground,
}

/// What a deletion did.
pub(crate) struct Deleted {
    /// The object as it was left, in the version asked for.
    pub(crate) object: Value,
    /// Whether it is gone.
    pub(crate) gone: bool,
}

impl Options {
    pub(crate) fn read(context: &Context) -> Result<Self> {
        let body = if context.body.is_empty() {
            Value::Null
        } else {
            let body = decode::body(context, "DeleteOptions")?;
            let kind = text(&body, "kind");
            if !matches!(kind, "" | "DeleteOptions") {
                let why = meta::unregistered(kind, text(&body, "apiVersion"));
                return Err(Status::bad_request(why));
            }
            body
        };
        Self::from(context, &body)
    }

    pub(crate) fn from(context: &Context, body: &Value) -> Result<Self> {
        let query = &context.query;
        let policy = match body["propagationPolicy"]
            .as_str()
            .unwrap_or_else(|| query.text("propagationPolicy"))
        {
            "" => None,
            "Orphan" => Some(Policy::Orphan),
            "Background" => Some(Policy::Background),
            "Foreground" => Some(Policy::Foreground),
            other => {
                return Err(invalid_options(
                    "DeleteOptions",
                    Cause::unsupported(
                        "propagationPolicy",
                        other,
                        &["Foreground", "Background", "Orphan", "nil"],
                    ),
                ));
            }
        };
        let orphan_dependents = body["orphanDependents"].as_bool().or_else(|| {
            query
                .get("orphanDependents")
                .map(|_| query.flag("orphanDependents"))
        });
        if policy.is_some() && orphan_dependents.is_some() {
            return Err(invalid_options(
                "DeleteOptions",
                Cause::invalid(
                    "propagationPolicy",
                    &body["propagationPolicy"],
                    "orphanDependents and deletionPropagation cannot be both set",
                ),
            ));
        }
        let dry_run = match body["dryRun"].as_array() {
            Some(list) if list.iter().any(|v| v != "All") => {
                return Err(unknown_dry_run("DeleteOptions", &body["dryRun"]));
            }
            Some(list) => !list.is_empty(),
            None => context.dry_run()?,
        };
        Ok(Self {
            grace: match body["gracePeriodSeconds"].as_i64() {
                Some(grace) => Some(grace),
                None => query.number("gracePeriodSeconds")?,
            },
            policy,
            orphan_dependents,
            uid: body["preconditions"]["uid"].as_str().map(str::to_owned),
            resource_version: body["preconditions"]["resourceVersion"]
                .as_str()
                .map(str::to_owned),
            dry_run,
            evicts: false,
        })
    }

    /// As webhooks are shown them.
    fn to_value(&self) -> Value {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(grace) = self.grace {
            options["gracePeriodSeconds"] = json!(grace);
        }
        for (field, value) in [
            ("uid", &self.uid),
            ("resourceVersion", &self.resource_version),
        ] {
            if let Some(value) = value {
                options["preconditions"][field] = json!(value);
            }
        }
        if let Some(orphan) = self.orphan_dependents {
            options["orphanDependents"] = json!(orphan);
        }
        if let Some(policy) = self.policy {
            options["propagationPolicy"] = json!(match policy {
                Policy::Orphan => "Orphan",
                Policy::Background => "Background",
                Policy::Foreground => "Foreground",
            });
        }
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }

    fn policy(&self, resource: &Resource, object: &Value) -> Policy {
        match (self.policy, self.orphan_dependents) {
            (Some(policy), _) => policy,
            (None, Some(true)) => Policy::Orphan,
            (None, None) if object::has_finalizer(object, ORPHAN) => Policy::Orphan,
            (None, None) if object::has_finalizer(object, FOREGROUND) => Policy::Foreground,
            (None, None) if resource.traits.orphan_by_default => Policy::Orphan,
            (None, None | Some(false)) => Policy::Background,
        }
    }
}

/// Kinds that stay after their finalizers until somebody else finishes them.
pub(crate) fn keeps_itself(resource: &Resource, object: &Value) -> bool {
    resource.is("", "namespaces")
        && object["spec"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
}

/// Whether the answer to a deletion is the object rather than a `Status`.
fn answers_with_object(resource: &Resource) -> bool {
    match resource.group.as_str() {
        "" => matches!(
            resource.plural.as_str(),
            "namespaces"
                | "pods"
                | "podtemplates"
                | "serviceaccounts"
                | "services"
                | "resourcequotas"
                | "persistentvolumes"
                | "persistentvolumeclaims"
        ),
        "storage.k8s.io" => resource.plural != "csistoragecapacities",
        _ => false,
    }
}

impl Api {
    /// `DELETE` on an object.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
    ) -> Result<Answer> {
        let options = Options::read(context)?;
        let deleted = self
            .delete_object(context, resource, (namespace, name), &options)
            .await?;
        let cascading = options.orphan_dependents == Some(false);
        if deleted.gone && !answers_with_object(resource) {
            return Ok(Answer::ok(&json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": success_details(resource, &deleted.object),
            })));
        }
        Ok(if !deleted.gone && cascading {
            Answer::accepted(&deleted.object)
        } else {
            Answer::ok(&deleted.object)
        })
    }

    /// `DELETE` on a collection.
    pub(crate) async fn delete_collection(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
    ) -> Result<Answer> {
        let options = Options::read(context)?;
        let selection = Selection::read(context, resource)?;
        let prefix = if resource.namespaced && !namespace.is_empty() {
            format!("{namespace}/")
        } else {
            String::new()
        };
        let snapshot = self
            .store
            .list(&resource.storage, &prefix, None)
            .map_err(|_| Status::internal("the current state is always there"))?;
        let renderer = Renderer::new(self, resource);
        let mut items = Vec::new();
        for entry in snapshot.entries {
            let value = renderer.value(&entry).await?;
            if !selection.matches(&value) {
                continue;
            }
            let at = (object::namespace(&value), object::name(&value));
            match self.delete_object(context, resource, at, &options).await {
                Ok(deleted) => items.push(as_item(resource, deleted.object)),
                Err(status) if status.is_not_found() => {}
                Err(status) => return Err(status),
            }
        }
        Ok(Answer::ok(&json!({
            "kind": resource.list_kind,
            "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": self.store.revision().to_string()},
            "items": items,
        })))
    }

    /// Deletes one object, or begins to.
    pub(crate) async fn delete_object(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        (namespace, name): (&str, &str),
        options: &Options,
    ) -> Result<Deleted> {
        let renderer = Renderer::new(self, resource);
        let key = resource.key(namespace, name);
        loop {
            let Some(entry) = self.store.get(&resource.storage, &key) else {
                return Err(Status::not_found(about(resource, name)));
            };
            let old = renderer.value(&entry).await?;
            check_preconditions(resource, &old, options)?;
            if !options.evicts {
                self.admit_delete(context, resource, &old, options).await?;
            }
            let (new, gone) = self.begin_deletion(resource, &old, options);
            if new == old && !gone {
                return Ok(Deleted { object: old, gone });
            }
            if options.dry_run {
                return Ok(Deleted { object: new, gone });
            }
            let committed = if gone {
                let stored = self.to_storage(resource, new.clone()).await?;
                let write = Write {
                    resource: Arc::clone(&resource.storage),
                    key: key.clone(),
                    expect: Expect::Revision(entry.revision),
                    op: Op::Delete(Encoded::new(&stored)),
                };
                match self.store.commit(write).await {
                    Ok(committed) => Some((committed, stored)),
                    Err(store::Error::Conflict) => None,
                    Err(error) => return Err(Status::internal(error)),
                }
            } else {
                self.commit_change(resource, &entry, key.clone(), new.clone())
                    .await?
            };
            if let Some((committed, stored)) = committed {
                if gone {
                    self.after_write(resource, None).await;
                    self.after_delete(resource, &committed).await;
                    return Ok(Deleted { object: new, gone });
                }
                let object = renderer.written(&committed, stored).await?;
                return Ok(Deleted { object, gone });
            }
        }
    }

    async fn admit_delete(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        old: &Value,
        options: &Options,
    ) -> Result<()> {
        let name = object::name(old);
        if resource.is("", "namespaces")
            && matches!(name, "default" | "kube-system" | "kube-public")
        {
            return Err(Status::forbidden(
                about(resource, name),
                "this namespace may not be deleted",
            ));
        }
        let (mutates, validates) = (
            self.has_mutating_webhooks(resource),
            self.has_validating_webhooks(resource),
        );
        if !mutates && !validates {
            return Ok(());
        }
        let is_namespace = resource.is("", "namespaces");
        let mut attributes = Attributes {
            operation: Operation::Delete,
            resource,
            subresource: "",
            body: None,
            namespace: if is_namespace {
                name
            } else {
                object::namespace(old)
            },
            // A collection is deleted without naming anything.
            name: match context.target.verb {
                Verb::DeleteCollection => "",
                _ => name,
            },
            user: &context.user,
            options: options.to_value(),
            dry_run: options.dry_run,
            object: None,
            old: Some(old.clone()),
        };
        if mutates {
            self.mutate(context, &mut attributes).await?;
        }
        if validates {
            self.ask_validating(context, &attributes).await?;
        }
        Ok(())
    }

    /// What follows from an object being gone.
    pub(crate) async fn after_delete(self: &Arc<Self>, resource: &Resource, entry: &Entry) {
        if &*resource.storage == super::crds::CRDS {
            self.registry.set_crd(&entry.key, Vec::new());
        }
        if resource.is("", "services") {
            self.release(&entry.value());
        }
        self.refurnish(&resource.storage, &entry.key).await;
    }

    /// What a deletion turns an object into, and whether it goes at once.
    fn begin_deletion(&self, resource: &Resource, old: &Value, options: &Options) -> (Value, bool) {
        let mut new = old.clone();
        match options.policy(resource, old) {
            Policy::Orphan => {
                object::remove_finalizer(&mut new, FOREGROUND);
                object::add_finalizer(&mut new, ORPHAN);
            }
            Policy::Foreground => {
                object::remove_finalizer(&mut new, ORPHAN);
                object::add_finalizer(&mut new, FOREGROUND);
            }
            Policy::Background => {
                object::remove_finalizer(&mut new, ORPHAN);
                object::remove_finalizer(&mut new, FOREGROUND);
            }
        }
        if &*resource.storage == super::crds::CRDS && !object::is_deleting(old) {
            // Its objects go first.
            object::add_finalizer(&mut new, super::crds::CLEANUP);
        }
        let grace = grace(resource, old, options);
        let waits =
            grace > 0 || !object::finalizers(&new).is_empty() || keeps_itself(resource, old);
        let deleting = object::is_deleting(old);
        if !waits {
            if resource.is("", "pods") {
                // Pods are told apart by how long they had.
                if !deleting {
                    object::set_meta(&mut new, "deletionTimestamp", self.clock.now_rfc3339());
                    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                    object::set_meta(&mut new, "generation", generation);
                }
                object::set_meta(&mut new, "deletionGracePeriodSeconds", 0);
            }
            return (new, true);
        }
        let shorter = old["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .is_none_or(|before| grace < before);
        if deleting && !shorter {
            return (new, false);
        }
        if !deleting || shorter {
            let deadline = if deleting && grace == 0 {
                // Shortening keeps the beginning of the deletion visible to finalizers.
                text(&old["metadata"], "deletionTimestamp").to_owned()
            } else {
                let seconds = jiff::SignedDuration::from_secs(grace);
                let at = self
                    .clock
                    .now()
                    .checked_add(seconds)
                    .unwrap_or(jiff::Timestamp::MAX);
                clock::rfc3339(at)
            };
            object::set_meta(&mut new, "deletionTimestamp", deadline);
            if !(&*resource.storage == super::crds::CRDS || resource.is("", "namespaces")) {
                object::set_meta(&mut new, "deletionGracePeriodSeconds", grace);
            }
            let definition = &*resource.storage == super::crds::CRDS;
            if !deleting && resource.has_generation() && !definition {
                let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                object::set_meta(&mut new, "generation", generation);
            }
        }
        if &*resource.storage == super::crds::CRDS && !deleting {
            super::crds::mark_terminating(&mut new, &self.clock.now_rfc3339());
        }
        if resource.is("", "namespaces") {
            object::set_path(&mut new, "status.phase", json!("Terminating"));
        }
        (new, false)
    }
}

/// The grace a deletion gets: pods that run on a node have one, everything else goes at once.
fn grace(resource: &Resource, object: &Value, options: &Options) -> i64 {
    if !resource.is("", "pods") {
        return 0;
    }
    if text(&object["spec"], "nodeName").is_empty()
        || matches!(text(&object["status"], "phase"), "Failed" | "Succeeded")
    {
        return 0;
    }
    let asked = options.grace.or_else(|| {
        object["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64())
    });
    match asked {
        // A negative grace means one second.
        Some(grace) if grace < 0 => 1,
        Some(grace) => grace,
        None => 30,
    }
}

fn check_preconditions(resource: &Resource, object: &Value, options: &Options) -> Result<()> {
    let name = object::name(object);
    if let Some(uid) = &options.uid
        && uid != object::uid(object)
    {
        return Err(Status::conflict(
            kind_of(resource, name),
            &format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                object::uid(object)
            ),
        ));
    }
    if let Some(version) = &options.resource_version
        && version != object::resource_version(object)
    {
        return Err(Status::conflict(
            kind_of(resource, name),
            &format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
                object::resource_version(object)
            ),
        ));
    }
    Ok(())
}

fn success_details(resource: &Resource, object: &Value) -> Value {
    let mut details = json!({
        "name": object::name(object),
        "kind": resource.plural,
        "uid": object::uid(object),
    });
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    details
}

/// An object in a list: built-in kinds leave version and kind to the list.
fn as_item(resource: &Resource, mut object: Value) -> Value {
    if resource.is_builtin() {
        for name in ["apiVersion", "kind"] {
            object::put(&mut object, name, None);
        }
    }
    object
}

/// Preconditions name the kind where other conflicts name the resource.
fn kind_of<'a>(resource: &'a Resource, name: &'a str) -> crate::status::About<'a> {
    crate::status::About {
        group: &resource.group,
        resource: &resource.kind,
        name,
    }
}
