//! Objects that may say what nobody can read.
//!
//! A schema is looser than a type, and a definition may be older or newer than the process that reads by it. One object that
//! does not fit must not hide all others of its kind: it is read as far as its metadata goes, and the rest is a complaint that
//! names the field.

use std::borrow::Cow;

use kube::{
    Resource,
    api::ObjectMeta,
    core::{PartialObjectMeta, PartialObjectMetaExt as _},
};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::hub::Kind;

/// An object, or what can be said about it.
#[derive(Clone, Debug)]
pub(crate) struct Readable<K>(pub(crate) Result<K, Unreadable>);

/// An object that does not fit its type.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{field}: {problem}")]
pub(crate) struct Unreadable {
    pub(crate) metadata: ObjectMeta,
    field: String,
    problem: String,
}

impl Unreadable {
    /// The object as something an event can be about.
    pub(crate) fn about<K: Kind>(&self) -> PartialObjectMeta<K> {
        self.metadata.clone().into_response_partial::<K>()
    }
}

impl<'de, K: Kind> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(default)]
            metadata: ObjectMeta,
        }
        let written = Value::deserialize(from)?;
        match serde_path_to_error::deserialize(&written) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => {
                let Named { metadata } = Named::deserialize(&written).map_err(de::Error::custom)?;
                Ok(Self(Err(Unreadable {
                    metadata,
                    field: error.path().to_string(),
                    problem: error.into_inner().to_string(),
                })))
            }
        }
    }
}

impl<K: Kind> Resource for Readable<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|bad| &bad.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0
            .as_mut()
            .map_or_else(|bad| &mut bad.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use api::vm::VMClass;
    use kube::ResourceExt as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unreadable_object_has_its_name_and_says_which_field() {
        let read = |memory: Value| -> Readable<VMClass> {
            serde_json::from_value(json!({
                "apiVersion": "infra.virtrigaud.io/v1beta1",
                "kind": "VMClass",
                "metadata": { "name": "small", "namespace": "default", "uid": "1" },
                "spec": { "cpus": 2, "memory": memory },
            }))
            .unwrap()
        };
        assert!(read(json!("2Gi")).0.is_ok());
        let bad = read(json!(-1));
        assert_eq!(bad.name_any(), "small");
        let bad = bad.0.unwrap_err();
        assert!(bad.to_string().starts_with("spec.memory: "), "{bad}");
        assert_eq!(
            bad.about::<VMClass>().object_ref(&()).kind.as_deref(),
            Some("VMClass")
        );
    }
}
