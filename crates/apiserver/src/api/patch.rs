//! Patches: JSON patch, merge patch, strategic merge patch and server-side apply.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Api,
    context::{Context, invalid_options},
    decode,
    dispatch::Answer,
    meta, typed,
    update::{Address, By},
};
use crate::{
    apply::{self, Stamp},
    golang, object, patch,
    registry::{Resource, text},
    status::{Cause, Result, Status},
};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Api {
    /// `PATCH` on an object or one of its subresources.
    pub(crate) async fn patch(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
    ) -> Result<Answer> {
        let patch = Patch::read(context, resource)?;
        if let Patch::Apply(config) = patch {
            return self.apply(context, resource, at, config).await;
        }
        if context.query.get("force").is_some() {
            return Err(invalid_options(
                "PatchOptions",
                Cause::forbidden("force", "may not be specified for non-apply patch"),
            ));
        }
        let changed = self
            .change(context, resource, at, By::Update, |old| {
                let mut new = patch.on(old, resource)?;
                let patched = new.clone();
                let refuse = |why: &str| refuse_patch(&patch, &patched, why);
                let (version, kind) = (resource.api_version(), &resource.kind);
                if let Some(why) = meta::other_kind(&new, &version, kind)
                    && resource.is_builtin()
                {
                    return Err(refuse(&why));
                }
                meta::check_kind(resource, &mut new)?;
                if let (Patch::Strategic(_), Some(kind)) = (&patch, resource.built_in()) {
                    kind.convert(&mut new).map_err(|why| refuse(&why))?;
                }
                typed::read(context, resource, &mut new).map_err(|fault| match fault {
                    typed::Fault::Options(status) => status,
                    typed::Fault::Body(why) => refuse(&why),
                })?;
                meta::place_existing(resource, (at.namespace, at.name), &mut new)?;
                Ok(new)
            })
            .await?;
        Ok(Answer::ok(&changed))
    }

    /// Server-side apply.
    async fn apply(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
        mut config: Value,
    ) -> Result<Answer> {
        let manager = context.query.text("fieldManager");
        if manager.is_empty() {
            return Err(invalid_options(
                "PatchOptions",
                Cause::required("fieldManager", "is required for apply patch"),
            ));
        }
        context.check_manager()?;
        let force = context.query.flag("force");
        let (given_version, given_kind) = (text(&config, "apiVersion"), text(&config, "kind"));
        let other = meta::other_kind(&config, &resource.api_version(), &resource.kind);
        if given_kind.is_empty() || given_version.is_empty() || other.is_some() {
            let (group, version) = object::group_version(given_version);
            return Err(Status::bad_request(format!(
                "invalid object type: {group}/{version}, Kind={given_kind}"
            )));
        }
        if object::name(&config).is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                at.name
            )));
        }
        meta::check_kind(resource, &mut config)?;
        let key = resource.key(at.namespace, at.name);
        let exists = self.store.get(&resource.storage, &key).is_some();
        if !exists && !at.subresource.is_empty() {
            return Err(Status::not_found(meta::about(resource, at.name)));
        }
        meta::check_place(resource, (at.namespace, at.name), &config)?;
        let time = self.clock.now_rfc3339();
        let api_version = resource.api_version();
        let stamp = Stamp {
            manager,
            api_version: &api_version,
            subresource: at.subresource,
            has_status: resource.has_status(),
            time: &time,
        };
        let shape = resource.shape();
        if !exists {
            if !object::uid(&config).is_empty() {
                return Err(Status::conflict(
                    meta::about(resource, at.name),
                    &format!(
                        "uid mismatch: the provided object specified uid {}, and no existing object was found",
                        object::uid(&config)
                    ),
                ));
            }
            object::take_meta(&mut config, "resourceVersion");
            let mut object = apply::apply(None, &config, shape, &stamp, force).map_err(refusal)?;
            convert(resource, &config, &mut object)?;
            let created = self
                .create_object(context, resource, at.namespace, object, By::Apply)
                .await?;
            return Ok(Answer::created(&created));
        }
        let changed = self
            .change(context, resource, at, By::Apply, |old| {
                let mut new =
                    apply::apply(Some(old), &config, shape, &stamp, force).map_err(refusal)?;
                if object::resource_version(&config).is_empty() {
                    object::take_meta(&mut new, "resourceVersion");
                }
                convert(resource, &config, &mut new)?;
                typed::admit(context, resource, &mut new)?;
                Ok(new)
            })
            .await?;
        Ok(Answer::ok(&changed))
    }
}

/// Refuses what an applied configuration leads to if it cannot be read.
fn convert(resource: &Resource, config: &Value, object: &mut Value) -> Result<()> {
    let Some(kind) = resource.built_in() else {
        let schema = resource.crd.as_ref().and_then(|crd| crd.schema.as_ref());
        let nulls = schema.map(|schema| schema.refused_nulls(object));
        let causes: Vec<Cause> = nulls.into_iter().flatten().map(Cause::from).collect();
        if causes.is_empty() {
            return Ok(());
        }
        let (group, name) = (resource.storage_group(), object::name(config));
        return Err(Status::invalid(group, &resource.kind, name, causes));
    };
    kind.convert(object).map_err(|why| {
        let version = resource.api_version();
        let group = if version.contains('/') { "" } else { "/" };
        let of = format!("{group}{version}, Kind={}", resource.kind);
        let (namespace, name) = (object::namespace(config), object::name(config));
        let why = format!(
            "failed to convert new object ({namespace}/{name}; {of}) to proper version: unable to convert unstructured object to {of}: {why}"
        );
        Status::foreign(500, "", why)
    })
}

/// A patch whose result cannot be read.
fn refuse_patch(patch: &Patch, patched: &Value, why: &str) -> Status {
    // A strategic patch is shown itself, of the others what they lead to.
    let shown = match patch {
        Patch::Strategic(patch) => golang::plain(patch),
        Patch::Json(_) | Patch::Merge(_) | Patch::Apply(_) => golang::json(patched),
    };
    let cause = Cause::invalid("patch", &json!(shown), why);
    Status::invalid("", "", "", vec![cause])
}

fn refusal(error: apply::Error) -> Status {
    match error {
        apply::Error::Conflict { message, causes } => Status::apply_conflict(
            message,
            causes
                .iter()
                .map(|cause| {
                    Cause::new(
                        text(cause, "reason"),
                        text(cause, "field"),
                        text(cause, "message"),
                    )
                })
                .collect(),
        ),
        apply::Error::BadRequest(text) => Status::bad_request(text),
        apply::Error::Typed(text) => Status::foreign(500, "", text),
    }
}

/// A decoded patch.
pub(crate) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

impl Patch {
    pub(crate) fn read(context: &Context, resource: &Resource) -> Result<Self> {
        let body = || -> Result<Value> {
            serde_json::from_slice(&context.body)
                .map_err(|e| Status::bad_request(format!("error decoding patch: {e}")))
        };
        match context.content_type() {
            JSON_PATCH => {
                let body = body()?;
                match &body {
                    Value::Array(_) => Ok(Self::Json(body)),
                    other => Err(Status::bad_request(format!(
                        "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                        decode::go_type(other)
                    ))),
                }
            }
            MERGE_PATCH => Ok(Self::Merge(body()?)),
            STRATEGIC if resource.is_builtin() => Ok(Self::Strategic(body()?)),
            APPLY => {
                // Programs send JSON, which is read many times faster than other YAML.
                if let Ok((body, duplicates)) = decode::duplicates::parse(&context.body)
                    && duplicates.is_empty()
                {
                    return Ok(Self::Apply(body));
                }
                let text = String::from_utf8_lossy(&context.body);
                serde_saphyr::from_str(&text)
                    .map(Self::Apply)
                    .map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))
            }
            _ => Err(Status::unsupported_patch()),
        }
    }

    /// What the patch makes of an object.
    pub(crate) fn on(&self, old: &Value, resource: &Resource) -> Result<Value> {
        let mut new = old.clone();
        let rejected = |error: patch::Error| match error {
            patch::Error::Malformed(why) => Status::bad_request(why),
            patch::Error::Failed(_) => Status::rejected(),
            patch::Error::Unmergeable(why) => Status::foreign(500, "", why),
        };
        match self {
            Self::Json(patch) => {
                patch::json(&mut new, patch).map_err(|_| Status::rejected())?;
            }
            Self::Merge(patch) | Self::Apply(patch) => {
                patch::merge(&mut new, patch).map_err(rejected)?;
            }
            Self::Strategic(patch) => {
                patch::strategic(&mut new, patch, resource.shape()).map_err(rejected)?;
            }
        }
        Ok(new)
    }
}
