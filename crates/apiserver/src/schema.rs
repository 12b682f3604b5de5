//! Structural schemas: what a CustomResourceDefinition says about its objects.
//!
//! A CRD carries an OpenAPI v3 schema. Kubernetes accepts it only when it is *structural*: every
//! field names its type once, outside of `allOf`/`anyOf`/`oneOf`/`not`, which may only narrow values.
//! That makes three operations well defined, always done in this order on the way in:
//!
//! 1. **prune**: fields the schema does not know are removed (and named, so that a strict client is
//!    refused and a lax one warned), except below `x-kubernetes-preserve-unknown-fields`;
//! 2. **default**: missing fields with a default get it;
//! 3. **validate**: types, bounds, patterns, enums, list sets and maps, embedded resources and CEL
//!    rules are checked. On update a value that did not change is not held against the writer
//!    (*ratcheting*), so a schema may be tightened without breaking stored objects.
//!
//! [`Schema`] is compiled once per CRD version and shared. Errors are [`FieldError`]s, whose texts
//! are those of Kubernetes, since people and tools match on them.

pub(crate) mod cel;
mod check;
mod compile;
mod default;
mod error;
mod format;
mod lists;
mod meta;
mod node;
mod pattern;
mod prune;
mod structural;

use serde_json::Value;

pub use error::{Fault, FieldError, aggregate, invalid_message};
pub(crate) use node::{Additional, ListType, Node, Type};

/// A compiled structural schema of one version of a custom resource.
#[derive(Debug)]
pub struct Schema {
    root: Node,
}

impl Schema {
    /// Compiles an `openAPIV3Schema`.
    ///
    /// Errors name fields relative to the schema (`properties[spec].type`), empty for the schema
    /// itself; [`FieldError::under`] puts them below the place in the CRD.
    pub fn from_crd(schema: &Value) -> Result<Self, Vec<FieldError>> {
        let mut errors = structural::check(schema);
        let root = compile::compile(schema, &mut errors);
        if errors.is_empty() {
            default::check_defaults(&root, &mut errors);
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self { root })
    }

    /// Fills in defaults, and drops nulls of fields that are not nullable but have none.
    pub fn default(&self, object: &mut Value) {
        default::apply(&self.root, object);
    }

    /// Nulls that [`Self::default`] would drop: an applied configuration must not have them.
    pub(crate) fn refused_nulls(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        default::refused_nulls(&self.root, object, "", &mut errors);
        errors
    }

    /// Removes fields the schema does not know and returns their paths, sorted.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    /// Checks `object`; with `old`, also transition rules, forgiving what did not change.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = check::check(&self.root, object, old);
        errors.extend(meta::check(&self.root, object));
        let lists = lists::check(&self.root, object);
        if !lists.is_empty() && old.is_none_or(|old| lists::check(&self.root, old).is_empty()) {
            errors.extend(lists);
        }
        if !self.root.has_rules() {
            return errors;
        }
        if errors.iter().any(blocks_rules) {
            errors.push(FieldError {
                fault: Fault::Invalid,
                field: "<nil>".into(),
                value: Some(Value::Null),
                detail: "some validation rules were not checked because the object was invalid; \
                         correct the existing errors to complete validation"
                    .into(),
            });
        } else {
            errors.extend(cel::check(&self.root, object, old));
        }
        errors
    }

    /// The root node, for the walks of patches and server-side apply.
    pub(crate) fn root(&self) -> &Node {
        &self.root
    }
}

/// Rules expect values of the declared types and sizes; without those they are not run.
fn blocks_rules(error: &FieldError) -> bool {
    matches!(
        error.fault,
        Fault::NotFound | Fault::Required | Fault::TooLong | Fault::TooMany | Fault::TypeInvalid
    )
}

/// Appends a field name to a path as the validator writes it.
pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Whether strings of this `format` are checked.
pub(crate) fn is_format(name: &str) -> bool {
    // Passwords can be anything.
    name == "password" || format::Format::parse(name, Some(Type::String)).is_some()
}

#[cfg(test)]
mod tests;
