//! Reading: one object, or a collection as it is now or was at a revision.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tokio::time;

use super::{
    Api,
    context::Context,
    dispatch::Answer,
    meta::about,
    render::{self, Form, Renderer},
};
use crate::{
    golang,
    registry::Resource,
    selector::{FieldSelector, LabelSelector},
    status::{Cause, Result, Status},
    store::{Entry, Snapshot},
};

/// How long a request waits for a revision that does not exist yet.
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// The selectors of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub(crate) fn read(context: &Context, resource: &Resource) -> Result<Self> {
        Ok(Self {
            labels: LabelSelector::parse(context.query.text("labelSelector"))?,
            fields: FieldSelector::parse(context.query.text("fieldSelector"), resource)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    /// The same, but of one object only.
    pub(crate) fn only(mut self, name: &str, resource: &Resource) -> Result<Self> {
        let fields = FieldSelector::parse(&format!("metadata.name={name}"), resource)?;
        self.fields = self.fields.and(fields);
        Ok(self)
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.name()
    }
}

/// Parses a resource version; empty is `None`.
pub(crate) fn parse_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {0}: strconv.ParseUint: parsing {0}: invalid syntax",
            golang::quote(text)
        )
    })
}

fn version_of(context: &Context) -> Result<Option<u64>> {
    parse_version(context.query.text("resourceVersion"))
        .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))
}

/// Where a chunked list goes on.
struct Continue {
    revision: Option<u64>,
    after: String,
}

impl Continue {
    fn decode(token: &str) -> Result<Self> {
        let bad = |why: &str| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .map_err(|e| bad(&golang::base64_fault(&e, token)))?;
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|_| bad(&golang::json_fault(&bytes)))?;
        if value["v"] != "meta.k8s.io/v1" {
            return Err(bad("server does not recognize this encoded version"));
        }
        let revision = match value["rv"].as_i64() {
            Some(-1) => None,
            Some(revision) if revision > 0 => u64::try_from(revision).ok(),
            _ => return Err(bad("incorrect encoded start resourceVersion")),
        };
        let after = value["start"].as_str().unwrap_or_default().to_owned();
        Ok(Self { revision, after })
    }

    fn encode(revision: Option<u64>, after: &str) -> String {
        let revision = revision.map_or(json!(-1), |revision| json!(revision));
        let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": after});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }
}

impl Api {
    /// Waits until the store has reached a revision, for a while.
    pub(crate) async fn wait_for(&self, revision: u64) -> Result<()> {
        let mut changes = self.store.changes();
        let reached = time::timeout(FRESHNESS_WAIT, changes.wait_for(|r| *r >= revision)).await;
        match reached {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Status::rv_too_large(revision, self.store.revision())),
        }
    }

    /// `GET` on an object.
    pub(crate) async fn get(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
    ) -> Result<Answer> {
        let form = render::negotiate(context, resource, false)?;
        if let Some(revision) = version_of(context)? {
            self.wait_for(revision).await?;
        }
        let key = resource.key(namespace, name);
        let Some(entry) = self.store.get(&resource.storage, &key) else {
            return Err(Status::not_found(about(resource, name)));
        };
        let renderer = Renderer::new(self, resource);
        match form {
            Form::Object => Ok(Answer::bytes(renderer.bytes(&entry).await?)),
            Form::Metadata => {
                let value = renderer.value(&entry).await?;
                Ok(Answer::ok(&render::metadata_only(&value)))
            }
            Form::Table => {
                let value = renderer.value(&entry).await?;
                let revision = entry.revision;
                Ok(Answer::ok(&self.table(
                    context,
                    resource,
                    &[value],
                    revision,
                    None,
                )?))
            }
        }
    }

    /// `GET` on a collection.
    pub(crate) async fn list(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
    ) -> Result<Answer> {
        let form = render::negotiate(context, resource, false)?;
        let selection = Selection::read(context, resource)?;
        let page = self.page(context, resource, namespace, &selection).await?;
        let renderer = Renderer::new(self, resource);
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if !resource.is_builtin() && form == Form::Object {
            metadata["continue"] = json!("");
        }
        if let Some(token) = &page.token {
            metadata["continue"] = json!(token);
            if let Some(remaining) = page.remaining {
                metadata["remainingItemCount"] = json!(remaining);
            }
        }
        match form {
            Form::Object => {
                let size: usize = page.entries.iter().map(|entry| entry.bytes.len() + 1).sum();
                let mut out = Vec::with_capacity(size + 256);
                let head = format!(
                    "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
                    resource.list_kind,
                    resource.api_version()
                );
                out.extend_from_slice(head.as_bytes());
                if renderer.asks_webhook() {
                    for (index, value) in renderer.values(&page.entries).await?.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        out.extend_from_slice(value.to_string().as_bytes());
                    }
                } else {
                    for (index, entry) in page.entries.iter().enumerate() {
                        if index > 0 {
                            out.push(b',');
                        }
                        renderer.item(entry, &mut out).await?;
                    }
                }
                out.extend_from_slice(b"]}\n");
                Ok(Answer::bytes(out.into()))
            }
            Form::Metadata => {
                let values = renderer.values(&page.entries).await?;
                let items: Vec<Value> = values.iter().map(render::metadata_only).collect();
                Ok(Answer::ok(&json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": metadata,
                    "items": items,
                })))
            }
            Form::Table => {
                let items = renderer.values(&page.entries).await?;
                let table =
                    self.table(context, resource, &items, page.revision, Some(&metadata))?;
                Ok(Answer::ok(&table))
            }
        }
    }

    async fn page(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
        selection: &Selection,
    ) -> Result<Page> {
        let query = &context.query;
        // A limit below zero is none.
        let limit: i64 = query.number("limit")?.unwrap_or(0);
        let limit = usize::try_from(limit).unwrap_or(0);
        let version = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch");
        let token = query.text("continue");
        check_version_match(
            version,
            matching,
            token,
            query.get("sendInitialEvents").is_some(),
        )?;

        let mut after = None;
        let mut at = None;
        if !token.is_empty() {
            if !matches!(version, "" | "0") {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let decoded = Continue::decode(token)?;
            at = decoded.revision;
            after = Some(decoded.after);
        } else if let Some(revision) = version_of(context)?.filter(|v| *v > 0) {
            if revision > self.store.revision() {
                self.wait_for(revision).await?;
            }
            if matching == "Exact" || (matching.is_empty() && limit > 0) {
                at = Some(revision);
            }
        }

        let prefix = if resource.namespaced && !namespace.is_empty() {
            match selection.name() {
                Some(name) => format!("{namespace}/{name}"),
                None => format!("{namespace}/"),
            }
        } else {
            String::new()
        };
        let Snapshot { revision, entries } = self
            .store
            .list(&resource.storage, &prefix, at)
            .map_err(|_| expired(after.as_deref()))?;

        let renderer = Renderer::new(self, resource);
        let mut page = Page {
            revision,
            entries: Vec::new(),
            token: None,
            remaining: None,
        };
        let start = after.as_deref().map_or(0, |after| {
            entries.partition_point(|entry| &*entry.key <= after)
        });
        let selected = if selection.is_empty() {
            None
        } else {
            let values = renderer.values(&entries[start..]).await?;
            Some(
                values
                    .iter()
                    .map(|v| selection.matches(v))
                    .collect::<Vec<_>>(),
            )
        };
        for (index, entry) in entries.iter().enumerate().skip(start) {
            if selected.as_ref().is_some_and(|s| !s[index - start]) {
                continue;
            }
            page.entries.push(Arc::clone(entry));
            let rest = entries.len() - index - 1;
            if limit > 0 && page.entries.len() == limit && rest > 0 {
                // Whether the rest fits the selectors is for the next page.
                page.token = Some(Continue::encode(Some(revision), &entry.key));
                page.remaining = selection.is_empty().then_some(rest);
                break;
            }
        }
        Ok(page)
    }
}

struct Page {
    revision: u64,
    entries: Vec<Arc<Entry>>,
    token: Option<String>,
    remaining: Option<usize>,
}

fn check_version_match(version: &str, matching: &str, token: &str, initial: bool) -> Result<()> {
    let field = "resourceVersionMatch";
    let mut causes = Vec::new();
    if !matching.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(field, why));
        }
        if !token.is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden(field, why));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let known = ["Exact", "NotOlderThan", ""];
            causes.push(Cause::unsupported(field, matching, &known));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(field, why));
        }
    }
    if initial {
        let why = "sendInitialEvents is forbidden for list";
        causes.push(Cause::forbidden("sendInitialEvents", why));
    }
    refuse(causes)
}

/// Refuses the options of a list or watch if there is anything wrong with them.
pub(crate) fn refuse(causes: Vec<Cause>) -> Result<()> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes))
}

fn expired(after: Option<&str>) -> Status {
    match after {
        Some(after) => Status::continue_expired(Continue::encode(None, after)),
        None => Status::expired("The resourceVersion for the provided list is too old."),
    }
}
