//! The metadata rules that hold for every kind: names, namespaces, generation, what an update may not touch.

use serde_json::{Value, json};

use super::{Api, context::Context};
use crate::{
    kinds::BuiltIn,
    object,
    registry::{Resource, text},
    status::{About, Cause, Result, Status},
};

/// Whom an error about this object is about.
pub(crate) fn about<'a>(resource: &'a Resource, name: &'a str) -> About<'a> {
    About {
        group: &resource.group,
        resource: &resource.plural,
        name,
    }
}

/// Checks `apiVersion` and `kind` of a body against the path, filling them in when absent.
pub(crate) fn check_kind(resource: &Resource, object: &mut Value) -> Result<()> {
    expect_kind(object, &resource.api_version(), &resource.kind)
}

/// The same for a body of a given version and kind.
pub(crate) fn expect_kind(object: &mut Value, api_version: &str, kind: &str) -> Result<()> {
    if let Some(why) = other_kind(object, api_version, kind) {
        let (_, given) = object::group_version(text(object, "apiVersion"));
        let named = match text(object, "kind") {
            "" => kind,
            named => named,
        };
        return Err(Status::bad_request(format!(
            "{named} in version \"{given}\" cannot be handled as a {kind}: {why}"
        )));
    }
    let given = text(object, "apiVersion");
    if !given.is_empty() && given != api_version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({api_version})"
        )));
    }
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    Ok(())
}

/// Why a body cannot be read as this kind: it says that it is another one.
pub(crate) fn other_kind(object: &Value, api_version: &str, kind: &str) -> Option<String> {
    let (given_version, given_kind) = (text(object, "apiVersion"), text(object, "kind"));
    let (group, version) = object::group_version(api_version);
    let (given_group, given) = object::group_version(given_version);
    let built_in = BuiltIn::find(group, version, kind).is_some();
    if built_in && !given_version.is_empty() && BuiltIn::find(given_group, given, kind).is_none() {
        let known = BuiltIn::find(given_group, given, given_kind).is_some();
        if given_kind.is_empty() || given_kind == kind || !known {
            let named = if given_kind.is_empty() {
                kind
            } else {
                given_kind
            };
            return Some(unregistered(named, given_version));
        }
    }
    let other = !given_kind.is_empty() && given_kind != kind
        || !given_version.is_empty() && given_group != group;
    other.then(|| {
        let package = match group.split('.').next() {
            None | Some("") => "core",
            Some(package) => package,
        };
        format!("converting ({given}.{given_kind}) to ({package}.{kind}): unknown conversion")
    })
}

/// What Kubernetes says of a kind that it does not know.
pub(crate) fn unregistered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/runtime/scheme.go:111\""
    )
}

/// Names and namespaces of a body that creates.
pub(crate) fn place_new(resource: &Resource, namespace: &str, object: &mut Value) -> Result<()> {
    if object
        .get("metadata")
        .is_some_and(|m| !m.is_object() && !m.is_null())
    {
        return Err(Status::bad_request("metadata must be an object"));
    }
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    if resource.namespaced {
        let given = object::namespace(object);
        if !given.is_empty() && given != namespace {
            return Err(other_namespace());
        }
        object::set_meta(object, "namespace", namespace);
    } else {
        // A namespace says nothing about an object that is in none.
        object::take_meta(object, "namespace");
    }
    Ok(())
}

fn other_namespace() -> Status {
    Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

/// Names and namespaces of a body that updates.
pub(crate) fn place_existing(
    resource: &Resource,
    (namespace, name): (&str, &str),
    object: &mut Value,
) -> Result<()> {
    check_place(resource, (namespace, name), object)?;
    // PUT may leave out what the path says.
    object::set_meta(object, "name", name);
    if resource.namespaced {
        object::set_meta(object, "namespace", namespace);
    }
    Ok(())
}

/// Refuses names and namespaces other than those of the path.
pub(crate) fn check_place(
    resource: &Resource,
    (namespace, name): (&str, &str),
    object: &Value,
) -> Result<()> {
    let given = object::name(object);
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let given = object::namespace(object);
    let expected = if resource.namespaced { namespace } else { "" };
    if !given.is_empty() && given != expected {
        return Err(other_namespace());
    }
    Ok(())
}

/// Gives a new object what the server decides: uid, times, generation.
pub(crate) fn stamp_new(api: &Api, resource: &Resource, object: &mut Value) {
    let Some(metadata) = object::metadata_mut(object) else {
        return;
    };
    for field in [
        "resourceVersion",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
    ] {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), json!(api.new_uid()));
    metadata.insert("creationTimestamp".into(), json!(api.clock.now_rfc3339()));
    if resource.has_generation() {
        metadata.insert("generation".into(), json!(1));
    }
}

/// An object that replaces another one of the same name.
pub(crate) fn other_uid(resource: &Resource, old: &Value, uid: &str) -> Status {
    let (namespace, name) = (object::namespace(old), object::name(old));
    let mut key = match &resource.crd {
        Some(_) => format!("/registry/{}/{}", resource.group, resource.plural),
        None => format!("/registry/{}", resource.plural),
    };
    for part in [namespace, name].into_iter().filter(|p| !p.is_empty()) {
        key.push('/');
        key.push_str(part);
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
        object::uid(old)
    );
    Status::conflict(about(resource, name), &why)
}

/// Restores what an update may not change, and counts generations.
pub(crate) fn stamp_update(
    resource: &Resource,
    old: &Value,
    object: &mut Value,
    subresource: &str,
) {
    let old_meta = &old["metadata"];
    if let Some(metadata) = object::metadata_mut(object) {
        metadata.remove("selfLink");
        for field in [
            "name",
            "namespace",
            "creationTimestamp",
            "generation",
            "resourceVersion",
        ] {
            match old_meta.get(field) {
                Some(value) => metadata.insert(field.into(), value.clone()),
                None => metadata.remove(field),
            };
        }
        // These can be left out, but not changed.
        for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            if let Some(value) = old_meta.get(field) {
                metadata.entry(field).or_insert_with(|| value.clone());
            }
        }
        if let Some(value) = old_meta.get("deletionTimestamp") {
            metadata.insert("deletionTimestamp".into(), value.clone());
        }
    }
    if resource.has_status() {
        if subresource == "status" {
            // Only status, and of the metadata only ownership of fields, may change here.
            let (status, managed) = (
                object.get("status").cloned(),
                object["metadata"].get("managedFields").cloned(),
            );
            *object = old.clone();
            object::put(object, "status", status);
            if let Some(metadata) = object::metadata_mut(object) {
                match managed {
                    Some(managed) => metadata.insert("managedFields".into(), managed),
                    None => metadata.remove("managedFields"),
                };
            }
        } else if subresource != "binding" {
            object::put(object, "status", old.get("status").cloned());
        }
    }
    if resource.has_generation()
        && !matches!(subresource, "status" | "binding")
        && !same_desire(resource, old, object)
    {
        let generation = old_meta["generation"].as_i64().unwrap_or(0) + 1;
        object::set_meta(object, "generation", generation);
    }
}

/// Whether two states ask for the same: everything but metadata and, where it has its own subresource, status.
fn same_desire(resource: &Resource, old: &Value, new: &Value) -> bool {
    let relevant = |key: &str| match key {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => !resource.has_status(),
        _ => true,
    };
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return old == new;
    };
    let count = |map: &serde_json::Map<String, Value>| map.keys().filter(|k| relevant(k)).count();
    // Deployments keep what their controller does in annotations.
    let noted = resource.is("apps", "deployments")
        && old["metadata"].get("annotations") != new["metadata"].get("annotations");
    !noted
        && count(old) == count(new)
        && old
            .iter()
            .filter(|(key, _)| relevant(key))
            .all(|(key, value)| new.get(key) == Some(value))
}

/// Whether nothing but the times in `managedFields` differs.
pub(crate) fn is_same(old: &Value, new: &Value) -> bool {
    let strip = |object: &Value| {
        let mut object = object.clone();
        object::take_meta(&mut object, "resourceVersion");
        if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
            for entry in entries {
                if let Some(entry) = entry.as_object_mut() {
                    entry.remove("time");
                }
            }
        }
        object
    };
    strip(old) == strip(new)
}

/// Removes owners that are named twice, and says so.
pub(crate) fn unique_owners(context: &Context, object: &mut Value) {
    let Some(owners) = object["metadata"]["ownerReferences"].as_array() else {
        return;
    };
    let (mut kept, mut twice) = (Vec::new(), Vec::new());
    for owner in owners {
        if kept.contains(owner) {
            twice.push(text(owner, "uid").to_owned());
        } else {
            kept.push(owner.clone());
        }
    }
    if !twice.is_empty() {
        twice.dedup();
        object::set_meta(object, "ownerReferences", kept);
        context.warn(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

impl Api {
    /// Refuses to create in a namespace that does not exist or is going away.
    pub(crate) fn check_namespace(
        &self,
        context: &Context,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<()> {
        if !resource.namespaced || resource.is("authorization.k8s.io", "localsubjectaccessreviews")
        {
            return Ok(());
        }
        let _ = context;
        let Some(entry) = self.store.get("/namespaces", namespace) else {
            return Err(Status::not_found(About {
                group: "",
                resource: "namespaces",
                name: namespace,
            }));
        };
        let value = entry.value();
        if object::is_deleting(&value) || value["status"]["phase"] == "Terminating" {
            return Err(Status::forbidden(
                about(resource, name),
                &format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                ),
            )
            .with_causes(vec![Cause::new(
                "NamespaceTerminating",
                "metadata.namespace",
                format!("namespace {namespace} is being terminated"),
            )]));
        }
        Ok(())
    }
}
