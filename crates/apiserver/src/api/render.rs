//! Stored objects as a client asked to see them.
//!
//! Most requests ask for the version that is stored, so an object's bytes usually go out as they lie in the
//! store. Only another version, an outdated schema or a reduced form costs a parse.

use std::sync::Arc;

use bytes::Bytes;
use http::header;
use serde_json::{Value, json};

use super::{Api, context::Context};
use crate::{
    object,
    registry::{Resource, crd::Conversion},
    request::Verb,
    status::{Result, Status},
    store::Entry,
};

/// The shape of an answer that the client negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    /// `as=Table`: rows for people.
    Table,
    /// `as=PartialObjectMetadata`, or its list.
    Metadata,
}

/// How an answer is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Yaml,
}

/// Chooses the form from the `Accept` header; the first clause that can be served wins.
pub(crate) fn negotiate(context: &Context, resource: &Resource, streaming: bool) -> Result<Form> {
    accepted(context, Some(resource), streaming).map(|(form, _)| form)
}

/// The form and the media that a client accepts.
pub(crate) fn accepted(
    context: &Context,
    resource: Option<&Resource>,
    streaming: bool,
) -> Result<(Form, Media)> {
    let accept = context.header(header::ACCEPT);
    if accept.is_empty() {
        return Ok((Form::Object, Media::Json));
    }
    let mut known = false;
    for clause in accept.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media = match parts.next().unwrap_or_default() {
            "application/json" | "*/*" => Media::Json,
            "application/yaml" => Media::Yaml,
            _ => continue,
        };
        let parameters: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
        let parameter = |name: &str| parameters.iter().find(|(k, _)| *k == name).map(|(_, v)| *v);
        if !streaming && parameter("stream").is_some() {
            continue;
        }
        known = true;
        let form = match (parameter("as"), parameter("g"), parameter("v")) {
            (None, ..) => Form::Object,
            (Some("Table"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => Form::Table,
            (Some(wanted), Some("meta.k8s.io"), Some("v1" | "v1beta1"))
                if wanted.starts_with("PartialObjectMetadata") =>
            {
                check_number(context, resource, wanted)?;
                Form::Metadata
            }
            _ => continue,
        };
        return Ok((form, media));
    }
    let whole = [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ];
    if known {
        return Err(Status::no_such_form(&whole));
    }
    let streams = [
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf;stream=watch",
    ];
    Err(match context.target.verb {
        Verb::List | Verb::Watch => Status::not_acceptable(&[&whole[..], &streams].concat()),
        _ => Status::not_acceptable(&whole),
    })
}

/// One object is no list, and a list is not one object.
fn check_number(context: &Context, resource: Option<&Resource>, wanted: &str) -> Result<()> {
    let list = match (context.target.verb, wanted) {
        (Verb::List, "PartialObjectMetadata") => true,
        (Verb::Get, "PartialObjectMetadataList") => false,
        _ => return Ok(()),
    };
    let (package, kind) = match resource {
        Some(resource) if resource.is_builtin() => {
            let package = resource.group.split('.').next().unwrap_or_default();
            let package = if package.is_empty() { "core" } else { package };
            (package, resource.kind.as_str())
        }
        _ => ("unstructured", "Unstructured"),
    };
    Err(Status::other_form(&if list {
        format!(
            "you requested {wanted}, but the requested object is a list (*{package}.{kind}List)"
        )
    } else {
        format!(
            "you requested {wanted}, but the requested object is not a list (*{package}.{kind})"
        )
    }))
}

/// Renders entries of one resource in one version.
#[derive(Clone)]
pub(crate) struct Renderer {
    api: Arc<Api>,
    pub(crate) resource: Arc<Resource>,
    head: Vec<u8>,
    since: u64,
}

impl Renderer {
    pub(crate) fn new(api: &Arc<Api>, resource: &Arc<Resource>) -> Self {
        let head = format!(
            "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",",
            resource.api_version(),
            resource.kind
        );
        Self {
            api: Arc::clone(api),
            resource: Arc::clone(resource),
            head: head.into_bytes(),
            since: resource.crd.as_ref().map_or(0, |crd| crd.since),
        }
    }

    /// Whether the stored bytes are the answer.
    pub(crate) fn is_verbatim(&self, entry: &Entry) -> bool {
        entry.head() == self.head && entry.revision >= self.since
    }

    /// The object, in the version asked for.
    pub(crate) async fn value(&self, entry: &Entry) -> Result<Value> {
        let value = entry.value();
        if self.is_verbatim(entry) {
            return Ok(value);
        }
        let value = self.refreshed(entry, value);
        self.api
            .convert(&self.resource, value, &self.resource.api_version())
            .await
    }

    /// Many objects, in the version asked for, with at most one question to a webhook.
    pub(crate) async fn values(&self, entries: &[Arc<Entry>]) -> Result<Vec<Value>> {
        let values = entries
            .iter()
            .map(|entry| self.refreshed(entry, entry.value()));
        self.api
            .convert_all(
                &self.resource,
                values.collect(),
                &self.resource.api_version(),
            )
            .await
    }

    /// An object of an older schema as the current one has it.
    fn refreshed(&self, entry: &Entry, mut value: Value) -> Value {
        if entry.revision < self.since {
            super::typed::refresh(&self.resource, &mut value);
        }
        value
    }

    /// Whether showing objects may need a webhook, so that asking once for many pays.
    pub(crate) fn asks_webhook(&self) -> bool {
        let crd = self.resource.crd.as_ref();
        crd.is_some_and(|crd| matches!(crd.conversion, Conversion::Webhook(_)))
    }

    /// An object just written, whose stored form is still at hand.
    pub(crate) async fn written(&self, entry: &Entry, mut stored: Value) -> Result<Value> {
        if !self.is_verbatim(entry) {
            return self.value(entry).await;
        }
        object::set_meta(&mut stored, "resourceVersion", entry.revision.to_string());
        Ok(stored)
    }

    pub(crate) async fn bytes(&self, entry: &Entry) -> Result<Bytes> {
        if self.is_verbatim(entry) {
            return Ok(entry.bytes.clone());
        }
        Ok(self.value(entry).await?.to_string().into())
    }

    /// As an item of a list: built-in kinds leave version and kind to the list.
    pub(crate) async fn item(&self, entry: &Entry, out: &mut Vec<u8>) -> Result<()> {
        if self.is_verbatim(entry) {
            if self.resource.is_builtin() {
                out.push(b'{');
                out.extend_from_slice(entry.body());
            } else {
                out.extend_from_slice(&entry.bytes);
            }
        } else {
            let mut value = self.value(entry).await?;
            if self.resource.is_builtin()
                && let Some(map) = value.as_object_mut()
            {
                map.remove("apiVersion");
                map.remove("kind");
            }
            out.extend_from_slice(value.to_string().as_bytes());
        }
        Ok(())
    }
}

/// The `PartialObjectMetadata` of an object.
pub(crate) fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}
