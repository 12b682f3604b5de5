//! Where a kind's schema meets its objects: pruning, defaults, validation, field ownership.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Api, context::Context, decode, strategy};
use crate::{
    apply::{self, Elsewhere, Stamp},
    golang,
    kinds::BuiltIn,
    meta::{self, NameRule},
    object,
    registry::{Resource, crd::Conversion, text},
    schema::{FieldError, Schema},
    shape::Shape,
    status::{Cause, Result, Status},
};

impl Resource {
    /// The table entry of a built-in kind.
    pub(crate) fn built_in(&self) -> Option<BuiltIn> {
        if self.crd.is_some() {
            return None;
        }
        BuiltIn::find(&self.group, &self.version, &self.kind)
    }

    /// What patches and server-side apply know of its objects.
    pub(crate) fn shape(&self) -> Shape<'_> {
        match &self.crd {
            Some(crd) => crd
                .schema
                .as_deref()
                .map_or(Shape::unknown(), Shape::custom),
            None => self.built_in().map_or(Shape::unknown(), BuiltIn::shape),
        }
    }

    fn name_rule(&self) -> NameRule {
        self.built_in()
            .map_or(NameRule::Subdomain, BuiltIn::name_rule)
    }
}

impl From<FieldError> for Cause {
    fn from(error: FieldError) -> Self {
        Self::new(error.reason(), error.field.clone(), error.body())
    }
}

/// Decodes, prunes and defaults an object that came from a client.
pub(crate) fn admit(context: &Context, resource: &Resource, object: &mut Value) -> Result<()> {
    read(context, resource, object).map_err(|fault| match fault {
        Fault::Options(status) => status,
        Fault::Body(why) => decode::cannot_handle(&resource.kind, &resource.version, &why),
    })
}

/// Why an object could not be read.
pub(crate) enum Fault {
    /// The request's options are wrong.
    Options(Status),
    /// The object does not fit its kind.
    Body(String),
}

/// The same as [`admit`], for callers with their own words for a failure.
pub(crate) fn read(
    context: &Context,
    resource: &Resource,
    object: &mut Value,
) -> Result<(), Fault> {
    decode_as(resource, object).map_err(Fault::Body)?;
    let unknown = settle(resource, object);
    let validation = context.field_validation().map_err(Fault::Options)?;
    let faults = unknown
        .into_iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect();
    decode::report(context, validation, faults).map_err(Fault::Body)
}

/// Warns of what is accepted and will not do what its writer may think.
pub(crate) fn warn(context: &Context, resource: &Resource, object: &Value, old: Option<&Value>) {
    let headless = resource.is("", "services") && object["spec"]["clusterIP"] == "None";
    if headless && object["spec"]["sessionAffinity"] == "ClientIP" {
        context.warn("spec.SessionAffinity is ignored for headless services");
    }
    if &*resource.storage == super::CRDS {
        for format in strategy::unknown_formats(object, old) {
            context.warn(format!("unrecognized format {}", golang::quote(&format)));
        }
    }
}

/// Adds what Go would write for fields that nobody set.
pub(crate) fn encode(resource: &Resource, object: &mut Value) {
    if let Some(kind) = resource.built_in() {
        kind.encode(object);
    }
}

/// Refuses values of the wrong type in objects of built-in kinds.
pub(crate) fn decode_as(resource: &Resource, object: &mut Value) -> Result<(), String> {
    if let Some(kind) = resource.built_in() {
        return kind.decode(object);
    }
    // Custom kinds have the same metadata; what does not fit there is for validation.
    if let Some(metadata) = object.get_mut("metadata") {
        let mut read = metadata.clone();
        if crate::kinds::decode_metadata(&mut read).is_ok() {
            *metadata = read;
        }
    }
    Ok(())
}

/// Prunes and defaults; returns the paths of fields that were not known.
pub(crate) fn settle(resource: &Resource, object: &mut Value) -> Vec<String> {
    if let Some(crd) = &resource.crd {
        let Some(schema) = &crd.schema else {
            return Vec::new();
        };
        let unknown = if crd.open {
            Vec::new()
        } else {
            schema.prune(object)
        };
        schema.default(object);
        return unknown;
    }
    match resource.built_in() {
        Some(kind) => {
            let unknown = kind.prune(object);
            kind.default(object);
            unknown
        }
        None => Vec::new(),
    }
}

/// Prunes and defaults an object that comes from the store under an older schema of its version.
pub(crate) fn refresh(resource: &Resource, object: &mut Value) {
    let version = text(object, "apiVersion").to_owned();
    prune_as(resource, &version, object);
    if let Some(schema) = schema_of(resource, &version) {
        schema.default(object);
    }
}

/// Removes what the schema of a version of a custom kind does not know.
pub(crate) fn prune_as(resource: &Resource, version: &str, object: &mut Value) {
    if let Some(schema) = schema_of(resource, version)
        && resource.crd.as_ref().is_some_and(|crd| !crd.open)
    {
        schema.prune(object);
    }
}

fn schema_of<'a>(resource: &'a Resource, version: &str) -> Option<&'a Schema> {
    resource.crd.as_ref()?.schemas.get(version).map(|s| &**s)
}

/// What is wrong with an object.
pub(crate) fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    subresource: &str,
) -> Vec<Cause> {
    if subresource == "binding" {
        // The one way in which a pod's node may change.
        return Vec::new();
    }
    let mut errors = match old {
        None => meta::check_create(object, resource.namespaced, resource.name_rule()),
        Some(old) if subresource.is_empty() => {
            // Kubernetes checks metadata for all kinds and then once more for each, labels and the
            // like even before that; some kinds are checked as if they were new as well.
            let (errors, content) = (meta::check_update(object, old), meta::check_content(object));
            let anew = matches!(
                resource.kind.as_str(),
                "ConfigMap" | "Secret" | "PersistentVolumeClaim"
            ) && resource.group.is_empty();
            let again = if anew { content.clone() } else { Vec::new() };
            [content, errors.clone(), errors, again].concat()
        }
        Some(_) => Vec::new(),
    };
    if let Some(crd) = &resource.crd {
        if let Some(schema) = &crd.schema {
            errors.extend(schema.validate(object, old));
        }
        if let Some(scale) = &crd.scale {
            replicas(object, &scale.spec_replicas, &mut errors);
            replicas(object, &scale.status_replicas, &mut errors);
        }
    } else if let Some(kind) = resource.built_in() {
        errors.extend(kind.validate(object, old));
    }
    errors.into_iter().map(Cause::from).collect()
}

/// What `scale` reads must be a count.
fn replicas(object: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(found) = object::at_path(object, path) else {
        return;
    };
    match found.as_i64() {
        Some(count) if count < 0 => {
            let why = "should be a non-negative integer";
            errors.push(FieldError::invalid(path, count, why));
        }
        Some(count) if count > i64::from(i32::MAX) => {
            let why = format!("should be less than or equal to {}", i32::MAX);
            errors.push(FieldError::invalid(path, count, why));
        }
        Some(_) => {}
        None => {
            let kind = match found {
                Value::Null => "<nil>",
                Value::Bool(_) => "bool",
                Value::Number(_) => "float64",
                Value::String(_) => "string",
                Value::Array(_) => "[]interface {}",
                Value::Object(_) => "map[string]interface {}",
            };
            let why = format!(
                "{path} accessor error: {} is of the type {kind}, expected int64",
                golang::plain(found)
            );
            errors.push(FieldError::invalid(path, 0, why));
        }
    }
}

impl Api {
    /// Records in an object which fields its writer changed.
    pub(crate) async fn track(
        &self,
        context: &Context,
        resource: &Resource,
        (old, new): (Option<&Value>, &mut Value),
        subresource: &str,
    ) -> Result<()> {
        let manager = context.field_manager();
        let elsewhere = self.elsewhere(resource, (old, new)).await?;
        let api_version = resource.api_version();
        // The real server forgets the time of what is changed through a scale.
        let time = match subresource {
            "scale" => String::new(),
            _ => self.clock.now_rfc3339(),
        };
        let stamp = Stamp {
            manager: &manager,
            api_version: &api_version,
            subresource,
            has_status: resource.has_status(),
            time: &time,
        };
        apply::track_versions(old, new, resource.shape(), &stamp, &elsewhere);
        if subresource == "scale" && super::subresource::is_scaled_to_zero(resource, new) {
            // A scale of zero is not written out, and what is not there has no owner.
            if let Some(entries) = new["metadata"]["managedFields"].as_array_mut() {
                entries.retain(|entry| text(entry, "subresource") != "scale");
            }
        }
        Ok(())
    }

    /// A change in the other versions in which somebody owns fields, if a webhook knows them.
    async fn elsewhere<'a>(
        &self,
        resource: &'a Resource,
        (old, new): (Option<&Value>, &Value),
    ) -> Result<Vec<Elsewhere<'a>>> {
        let (Some(old), Some(crd)) = (old, &resource.crd) else {
            return Ok(Vec::new());
        };
        if !matches!(crd.conversion, Conversion::Webhook(_)) {
            return Ok(Vec::new());
        }
        let entries = old["metadata"]["managedFields"].as_array();
        let named: BTreeSet<&str> = entries
            .into_iter()
            .flatten()
            .map(|entry| text(entry, "apiVersion"))
            .collect();
        let here = resource.api_version();
        let mut elsewhere = Vec::new();
        for (version, schema) in &*crd.schemas {
            if *version == here || !named.contains(version.as_str()) {
                continue;
            }
            let both = vec![old.clone(), new.clone()];
            let mut both = self.convert_all(resource, both, version).await?.into_iter();
            if let (Some(old), Some(new)) = (both.next(), both.next()) {
                elsewhere.push(Elsewhere {
                    version,
                    old,
                    new,
                    shape: Shape::custom(schema),
                });
            }
        }
        Ok(elsewhere)
    }

    pub(crate) fn track_as(
        &self,
        manager: &str,
        resource: &Resource,
        (old, new): (Option<&Value>, &mut Value),
        subresource: &str,
    ) {
        let (api_version, time) = (resource.api_version(), self.clock.now_rfc3339());
        let stamp = Stamp {
            manager,
            api_version: &api_version,
            subresource,
            has_status: resource.has_status(),
            time: &time,
        };
        apply::track_update(old, new, resource.shape(), &stamp);
    }
}
