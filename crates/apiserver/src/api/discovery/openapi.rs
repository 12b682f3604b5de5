//! The OpenAPI documents, made once per set of kinds.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use http::header;
use serde_json::Value;

use super::VERSION;
use crate::{
    api::{Api, context::Context, dispatch::Answer},
    openapi::{self, Kind},
    registry::{Kinds, Resource},
};

/// Documents and the kinds they describe.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Option<(Arc<Kinds>, Arc<Documents>)>>);

#[derive(Default)]
struct Documents {
    made: Mutex<BTreeMap<String, Bytes>>,
}

fn describe(resource: &Resource) -> Kind<'_> {
    Kind {
        group: &resource.group,
        version: &resource.version,
        kind: &resource.kind,
        plural: &resource.plural,
        namespaced: resource.namespaced,
        status: resource.has_status(),
        scale: resource.has_scale(),
        create_only: resource.traits.virtual_only,
        schema: resource.crd.as_ref().map(|crd| &crd.source),
    }
}

impl Api {
    /// `/openapi/v2`, `/openapi/v3` and what is below.
    pub(super) fn openapi(&self, context: &Context, kinds: &Arc<Kinds>, path: &[&str]) -> Answer {
        let accept = context.header(header::ACCEPT);
        let protobuf = path == ["v2"] && accept.contains(openapi::protobuf::ASKED);
        let documents = {
            let mut cache = self
                .openapi
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match &*cache {
                Some((of, documents)) if Arc::ptr_eq(of, kinds) => Arc::clone(documents),
                _ => {
                    let documents = Arc::<Documents>::default();
                    *cache = Some((Arc::clone(kinds), Arc::clone(&documents)));
                    documents
                }
            }
        };
        let name = if protobuf {
            openapi::protobuf::MEDIA.to_owned()
        } else {
            path.join("/")
        };
        let answer = |bytes: Bytes| {
            let answer = Answer::bytes(bytes);
            if protobuf {
                answer.typed(openapi::protobuf::MEDIA)
            } else {
                answer
            }
        };
        let mut made = documents
            .made
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(document) = made.get(&name) {
            return answer(document.clone());
        }
        let document = match path {
            ["v2"] => {
                let all: Vec<Kind<'_>> = kinds.all().map(|r| describe(r)).collect();
                Some(openapi::v2(&all, VERSION.2))
            }
            ["v3"] => {
                let groups: Vec<(String, Value)> = kinds
                    .groups()
                    .flat_map(|(group, versions)| {
                        versions.into_iter().map(move |version| (group, version))
                    })
                    .filter_map(|(group, version)| {
                        let document = group_document(kinds, group, version)?;
                        Some((openapi::group_path(group, version), document))
                    })
                    .collect();
                Some(openapi::index(
                    groups.iter().map(|(path, doc)| (path.as_str(), doc)),
                ))
            }
            ["v3", "api", version] => group_document(kinds, "", version),
            ["v3", "apis", group, version] => group_document(kinds, group, version),
            _ => None,
        };
        match document {
            Some(document) => {
                let bytes = if protobuf {
                    Bytes::from(openapi::protobuf::render(&document))
                } else {
                    Bytes::from(document.to_string())
                };
                made.insert(name, bytes.clone());
                answer(bytes)
            }
            None => Answer::page_not_found(),
        }
    }
}

fn group_document(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let resources = kinds.resources_of(group, version)?;
    let described: Vec<Kind<'_>> = resources.values().map(|r| describe(r)).collect();
    Some(openapi::v3(&described, VERSION.2))
}
