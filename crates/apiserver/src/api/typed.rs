//! Where a kind's schema meets its objects: pruning, defaults, validation, field ownership.

use serde_json::Value;

use super::{
    Api,
    context::{Context, FieldValidation},
    decode,
};
use crate::{
    apply::{self, Stamp},
    kinds::BuiltIn,
    meta::{self, NameRule},
    registry::Resource,
    schema::FieldError,
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
        decode::report(context, validation, faults)?;
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
fn settle(resource: &Resource, object: &mut Value) -> Vec<String> {
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

/// Prunes and defaults an object that comes from the store under an older schema.
pub(crate) fn refresh(resource: &Resource, object: &mut Value) {
    if resource.crd.is_some() {
        settle(resource, object);
    }
}

/// What is wrong with an object.
pub(crate) fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    subresource: &str,
) -> Vec<Cause> {
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
    pub(crate) fn track(
        &self,
        context: &Context,
        resource: &Resource,
        (old, new): (Option<&Value>, &mut Value),
        subresource: &str,
    ) {
        let manager = context.field_manager();
        self.track_as(&manager, resource, (old, new), subresource);
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
