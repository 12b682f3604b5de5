//! CustomResourceDefinitions read into [`Resource`]s.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{Resource, Traits, builtin, text};
use crate::{
    object,
    schema::Schema,
    webhook::{self, Place},
};

/// What a CRD says about one of its versions, beyond names.
#[derive(Debug, Default)]
pub(crate) struct Version {
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    /// Paths declared selectable, such as `.spec.color`.
    pub(crate) selectable: Vec<String>,
    pub(crate) columns: Value,
    pub(crate) conversion: Conversion,
    /// Unpruned for good: `spec.preserveUnknownFields`.
    pub(crate) open: bool,
    /// Objects written before this revision may lack defaults and hold fields the schema lost.
    pub(crate) since: u64,
    pub(crate) deprecation: Option<String>,
    /// The `openAPIV3Schema`, as written and compiled.
    pub(crate) source: Value,
    pub(crate) schema: Option<Arc<Schema>>,
    /// The schemas of all versions, served or not, by `apiVersion`: stored objects may be of any.
    pub(crate) schemas: Schemas,
}

type Schemas = Arc<BTreeMap<String, Arc<Schema>>>;

/// Where a `scale` subresource finds its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) selector: Option<String>,
}

/// How objects are converted between versions.
#[derive(Debug, Clone, Default)]
pub(crate) enum Conversion {
    /// Only `apiVersion` differs.
    #[default]
    None,
    /// A webhook is asked.
    Webhook(Arc<Webhook>),
}

/// The webhook of a CRD's `spec.conversion`.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(crate) place: Result<Place, webhook::Error>,
    /// The version of reviews it speaks.
    pub(crate) speaks: &'static str,
}

impl Webhook {
    fn read(webhook: &Value) -> Self {
        let versions = object::strings(&webhook["conversionReviewVersions"]);
        let known = versions.iter().find_map(|version| match *version {
            "v1" => Some("apiextensions.k8s.io/v1"),
            "v1beta1" => Some("apiextensions.k8s.io/v1beta1"),
            _ => None,
        });
        Self {
            place: Place::read(&webhook["clientConfig"]),
            speaks: known.unwrap_or("apiextensions.k8s.io/v1"),
        }
    }
}

/// The served versions of a CRD; `since` is the revision of its last change.
pub(crate) fn resources(crd: &Value, since: u64) -> Vec<Resource> {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let (group, plural) = (text(spec, "group"), text(names, "plural"));
    let owned = |value: &Value| -> Vec<String> {
        object::strings(value)
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let kind = text(names, "kind");
    let versions = spec["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let stored = versions
        .iter()
        .find(|version| version["storage"] == true)
        .map_or("", |version| text(version, "name"));
    let conversion = match text(&spec["conversion"], "strategy") {
        "Webhook" => {
            let webhook = Webhook::read(&spec["conversion"]["webhook"]);
            Conversion::Webhook(Arc::new(webhook))
        }
        _ => Conversion::None,
    };
    let fallback = |field: &str, default: String| match text(names, field) {
        "" => default,
        given => given.to_owned(),
    };
    let schemas: Schemas = Arc::new(
        versions
            .iter()
            .filter_map(|version| {
                let schema = Schema::from_crd(&version["schema"]["openAPIV3Schema"]).ok()?;
                let name = object::api_version(group, text(version, "name"));
                Some((name, Arc::new(schema)))
            })
            .collect(),
    );
    let of_version = |version: &Value| {
        let name = text(version, "name");
        let details = Version {
            status: version["subresources"]["status"].is_object(),
            scale: scale(&version["subresources"]["scale"]),
            selectable: version["selectableFields"]
                .as_array()
                .map(|fields| {
                    fields
                        .iter()
                        .map(|f| text(f, "jsonPath").to_owned())
                        .collect()
                })
                .unwrap_or_default(),
            columns: version["additionalPrinterColumns"].clone(),
            conversion: conversion.clone(),
            open: spec["preserveUnknownFields"] == true,
            since,
            deprecation: (version["deprecated"] == true).then(|| {
                let own = version["deprecationWarning"].as_str();
                own.map_or_else(|| deprecation(spec, name), str::to_owned)
            }),
            schema: schemas.get(&object::api_version(group, name)).cloned(),
            schemas: Arc::clone(&schemas),
            source: version["schema"]["openAPIV3Schema"].clone(),
        };
        Resource {
            group: group.to_owned(),
            version: name.to_owned(),
            kind: kind.to_owned(),
            list_kind: fallback("listKind", format!("{kind}List")),
            plural: plural.to_owned(),
            singular: fallback("singular", kind.to_lowercase()),
            namespaced: spec["scope"] == "Namespaced",
            short_names: owned(&names["shortNames"]),
            categories: owned(&names["categories"]),
            storage: Arc::from(builtin::storage(group, plural)),
            storage_version: object::api_version(group, stored),
            traits: Traits::default(),
            crd: Some(Arc::new(details)),
        }
    };
    versions
        .iter()
        .filter(|version| version["served"] == true)
        .map(of_version)
        .collect()
}

fn scale(value: &Value) -> Option<Scale> {
    Some(Scale {
        spec_replicas: value["specReplicasPath"].as_str()?.to_owned(),
        status_replicas: value["statusReplicasPath"].as_str()?.to_owned(),
        selector: value["labelSelectorPath"].as_str().map(str::to_owned),
    })
}

/// What users of a version are told that will go away: a newer one that stays, if there is one.
fn deprecation(spec: &Value, name: &str) -> String {
    let (group, kind) = (text(spec, "group"), text(&spec["names"], "kind"));
    let versions = spec["versions"].as_array().into_iter().flatten();
    let newer = versions
        .filter(|version| version["served"] == true && version["deprecated"] != true)
        .map(|version| text(version, "name"))
        .filter(|other| super::version_order(other) < super::version_order(name))
        .min_by_key(|other| super::version_order(other));
    let advice = newer.map(|newer| format!("; use {group}/{newer} {kind}"));
    format!(
        "{group}/{name} {kind} is deprecated{}",
        advice.unwrap_or_default()
    )
}
