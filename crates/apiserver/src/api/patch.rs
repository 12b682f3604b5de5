//! Patches: JSON patch, merge patch, strategic merge patch and server-side apply.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Api,
    context::{Context, invalid_options},
    dispatch::Answer,
    meta, typed,
    update::Address,
};
use crate::{
    registry::Resource,
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
        if let Patch::Apply(config) = &patch {
            let key = resource.key(at.namespace, at.name);
            if at.subresource.is_empty() && self.store.get(&resource.storage, &key).is_none() {
                let mut config = config.clone();
                meta::check_kind(resource, &mut config)?;
                meta::place_existing(resource, (at.namespace, at.name), &mut config)?;
                let created = self
                    .create_object(context, resource, at.namespace, config, "")
                    .await?;
                return Ok(Answer::created(&created));
            }
        } else if context.query.get("force").is_some() {
            return Err(invalid_options(
                "PatchOptions",
                Cause::forbidden("force", "may not be specified for non-apply patch"),
            ));
        }
        let changed = self
            .change(context, resource, at, |old| {
                let mut new = patch.apply(old)?;
                meta::check_kind(resource, &mut new)?;
                meta::place_existing(resource, (at.namespace, at.name), &mut new)?;
                typed::admit(context, resource, &mut new)?;
                Ok(new)
            })
            .await?;
        Ok(Answer::ok(&changed))
    }
}

/// A decoded patch.
pub(crate) enum Patch {
    Json(json_patch::Patch),
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
            JSON_PATCH => serde_json::from_slice(&context.body)
                .map(Self::Json)
                .map_err(|e| Status::bad_request(format!("error decoding patch: {e}"))),
            MERGE_PATCH => Ok(Self::Merge(body()?)),
            STRATEGIC if resource.is_builtin() => Ok(Self::Strategic(body()?)),
            APPLY => {
                let text = String::from_utf8_lossy(&context.body);
                serde_saphyr::from_str(&text)
                    .map(Self::Apply)
                    .map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))
            }
            _ if resource.is_builtin() => Err(Status::unsupported_media_type(&[
                JSON_PATCH,
                MERGE_PATCH,
                STRATEGIC,
                APPLY,
            ])),
            _ => Err(Status::unsupported_media_type(&[
                JSON_PATCH,
                MERGE_PATCH,
                APPLY,
            ])),
        }
    }

    /// What the patch makes of an object.
    pub(crate) fn apply(&self, old: &Value) -> Result<Value> {
        let mut new = old.clone();
        match self {
            Self::Json(patch) => json_patch::patch(&mut new, patch).map_err(|_| {
                Status::foreign(
                    422,
                    "Invalid",
                    "the server rejected our request due to an error in our request".into(),
                )
            })?,
            Self::Merge(patch) | Self::Strategic(patch) | Self::Apply(patch) => {
                json_patch::merge(&mut new, patch);
            }
        }
        Ok(new)
    }
}
