//! The metadata rules that hold for every kind: names, namespaces, generation, what an update may not touch.

use serde_json::{Value, json};

use super::{Api, context::Context};
use crate::{
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
    let (given_version, given_kind) = (text(object, "apiVersion"), text(object, "kind"));
    let (group, _) = object::group_version(api_version);
    let (given_group, _) = object::group_version(given_version);
    if !given_kind.is_empty() && given_kind != kind
        || !given_version.is_empty() && given_group != group
    {
        let (_, given_version) = object::group_version(given_version);
        let package = match group.split('.').next() {
            None | Some("") => "core",
            Some(package) => package,
        };
        return Err(Status::bad_request(format!(
            "{given_kind} in version \"{given_version}\" cannot be handled as a {kind}: converting ({given_version}.{given_kind}) to ({package}.{kind}): unknown conversion"
        )));
    }
    if !given_version.is_empty() && given_version != api_version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({api_version})"
        )));
    }
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    Ok(())
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
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        object::set_meta(object, "namespace", namespace);
    } else {
        // A namespace says nothing about an object that is in none.
        object::take_meta(object, "namespace");
    }
    Ok(())
}

/// Names and namespaces of a body that updates.
pub(crate) fn place_existing(
    resource: &Resource,
    (namespace, name): (&str, &str),
    object: &mut Value,
) -> Result<()> {
    let given = object::name(object);
    if given.is_empty() {
        // Server-side apply and PUT may leave out what the path says.
        object::set_meta(object, "name", name);
    } else if given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let given = object::namespace(object);
    if resource.namespaced {
        if !given.is_empty() && given != namespace {
            return Err(Status::bad_request(format!(
                "the namespace of the object ({given}) does not match the namespace on the request ({namespace})"
            )));
        }
        object::set_meta(object, "namespace", namespace);
    } else if !given.is_empty() {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({given}) does not match the namespace on the request ()"
        )));
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
    for empty in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let is_empty = match metadata.get(empty) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if is_empty {
            metadata.remove(empty);
        }
    }
    metadata.insert("uid".into(), json!(api.new_uid()));
    metadata.insert("creationTimestamp".into(), json!(api.clock.now_rfc3339()));
    if resource.has_generation() {
        metadata.insert("generation".into(), json!(1));
    } else {
        metadata.remove("generation");
    }
}

/// Restores what an update may not change, and counts generations.
pub(crate) fn stamp_update(
    resource: &Resource,
    old: &Value,
    object: &mut Value,
    subresource: &str,
) -> Result<()> {
    let name = object::name(old).to_owned();
    let uid = object::uid(object);
    if !uid.is_empty() && uid != object::uid(old) {
        return Err(Status::conflict(
            about(resource, &name),
            &format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                object::uid(old)
            ),
        ));
    }
    if object::is_deleting(old) {
        let before = object::finalizers(old);
        let added: Vec<&str> = object::finalizers(object)
            .into_iter()
            .filter(|f| !before.contains(f))
            .collect();
        if !added.is_empty() {
            let list = added
                .iter()
                .map(|f| format!("\"{f}\""))
                .collect::<Vec<_>>()
                .join(", ");
            return Err(Status::invalid(
                &resource.group,
                &resource.kind,
                &name,
                vec![Cause::forbidden(
                    "metadata.finalizers",
                    &format!(
                        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
                    ),
                )],
            ));
        }
    }
    let old_meta = &old["metadata"];
    if let Some(metadata) = object::metadata_mut(object) {
        metadata.remove("selfLink");
        for field in [
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generateName",
            "generation",
            "resourceVersion",
        ] {
            match old_meta.get(field) {
                Some(value) => metadata.insert(field.into(), value.clone()),
                None => metadata.remove(field),
            };
        }
        for empty in ["labels", "annotations", "finalizers", "ownerReferences"] {
            let is_empty = match metadata.get(empty) {
                Some(Value::Object(map)) => map.is_empty(),
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Null) => true,
                _ => false,
            };
            if is_empty && old_meta.get(empty).is_none() {
                metadata.remove(empty);
            }
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
            put(object, "status", status);
            if let Some(metadata) = object::metadata_mut(object) {
                match managed {
                    Some(managed) => metadata.insert("managedFields".into(), managed),
                    None => metadata.remove("managedFields"),
                };
            }
        } else if subresource != "binding" {
            put(object, "status", old.get("status").cloned());
        }
    }
    if resource.has_generation()
        && !matches!(subresource, "status" | "binding")
        && !same_desire(resource, old, object)
    {
        let generation = old_meta["generation"].as_i64().unwrap_or(0) + 1;
        object::set_meta(object, "generation", generation);
    }
    Ok(())
}

fn put(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(map) = object.as_object_mut() {
        match value {
            Some(value) => map.insert(field.to_owned(), value),
            None => map.remove(field),
        };
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
    count(old) == count(new)
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
