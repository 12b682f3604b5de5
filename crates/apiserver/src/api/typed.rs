//! Where a kind's schema meets its objects: pruning, defaults, validation, field ownership.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Api,
    context::{Context, FieldValidation},
    decode,
};
use crate::{
    apply::{self, Elsewhere, Stamp},
    kinds::BuiltIn,
    meta::{self, NameRule},
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
    decode_as(resource, object).map_err(|why| {
        Status::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            resource.kind, resource.version, resource.kind
        ))
    })?;
    let unknown = settle(resource, object);
    let validation = context.field_validation()?;
    if validation != FieldValidation::Ignore {
        let faults = unknown
            .into_iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect();
        let kind = (resource.kind.as_str(), resource.version.as_str());
        decode::report(context, validation, kind, faults)?;
    }
    Ok(())
}

/// Refuses values of the wrong type in objects of built-in kinds.
pub(crate) fn decode_as(resource: &Resource, object: &mut Value) -> Result<(), String> {
    match resource.built_in() {
        Some(kind) => kind.decode(object),
        None => Ok(()),
    }
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
        Some(old) if subresource.is_empty() => meta::check_update(object, old),
        Some(_) => Vec::new(),
    };
    if let Some(crd) = &resource.crd {
        if let Some(schema) = &crd.schema {
            errors.extend(schema.validate(object, old));
        }
    } else if let Some(kind) = resource.built_in() {
        errors.extend(kind.validate(object, old));
    }
    errors.into_iter().map(Cause::from).collect()
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
