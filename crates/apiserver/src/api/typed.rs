//! Where a kind's schema meets its objects: pruning, defaults, validation.

use serde_json::Value;

use super::context::Context;
use crate::{
    registry::Resource,
    status::{Cause, Result},
};

/// Prunes and defaults an object that came from a client.
pub(crate) fn admit(context: &Context, resource: &Resource, object: &mut Value) -> Result<()> {
    let _ = (context, resource, object);
    Ok(())
}

/// Prunes and defaults an object that comes from the store under an older schema.
pub(crate) fn refresh(resource: &Resource, object: &mut Value) {
    let _ = (resource, object);
}

/// What is wrong with an object.
pub(crate) fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let _ = (resource, object, old);
    Vec::new()
}
