//! Replacing objects, and the road every change of an existing object takes.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Api, admission,
    context::Context,
    decode,
    dispatch::Answer,
    meta::{self, about},
    render::Renderer,
    strategy, subresource, typed,
};
use crate::{
    admission::{Attributes, Operation},
    object,
    registry::Resource,
    status::{Cause, Result, Status},
    store::{self, Encoded, Entry, Expect, Op, Write},
};

/// How often a change that pins no revision is tried again when others were faster.
const ATTEMPTS: usize = 16;

/// Which object, through which door.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Empty, or a subresource that shares the object: `status`, `scale`, `finalize`.
    pub(crate) subresource: &'a str,
}

/// How a change came about, which decides who records the ownership of its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Any write but apply: the server compares old and new.
    Update,
    /// Server-side apply has recorded it already.
    Apply,
}

impl Api {
    /// `PUT` on an object or its status.
    pub(crate) async fn update(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
    ) -> Result<Answer> {
        let mut body = decode::body(context, &resource.kind)?;
        meta::check_kind(resource, &mut body)?;
        context.check_manager()?;
        if object::name(&body).is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                at.name
            )));
        }
        meta::place_existing(resource, (at.namespace, at.name), &mut body)?;
        typed::admit(context, resource, &mut body)?;
        let key = resource.key(at.namespace, at.name);
        if resource.traits.create_on_update
            && at.subresource.is_empty()
            && self.store.get(&resource.storage, &key).is_none()
        {
            let created = self
                .create_object(context, resource, at.namespace, body, By::Update)
                .await?;
            return Ok(Answer::created(&created));
        }
        if object::resource_version(&body).is_empty() && !allows_unconditional(resource) {
            if self.store.get(&resource.storage, &key).is_none() {
                return Err(Status::not_found(about(resource, at.name)));
            }
            // The one fault of which the resource is told and not the kind.
            return Err(Status::invalid(
                &resource.group,
                &resource.plural,
                at.name,
                vec![Cause::invalid(
                    "metadata.resourceVersion",
                    &serde_json::json!(0),
                    "must be specified for an update",
                )],
            ));
        }
        let uid = object::uid(&body);
        let updated = self
            .change(context, resource, at, By::Update, |old| {
                if !uid.is_empty() && uid != object::uid(old) {
                    return Err(meta::other_uid(resource, old, uid));
                }
                Ok(body.clone())
            })
            .await?;
        Ok(Answer::ok(&updated))
    }

    /// Reads an object, lets `make` say what it becomes, and commits that if nobody was faster.
    ///
    /// A change that carries a resource version fails when the object has moved on; one that does not
    /// is made again on the newer object.
    pub(crate) async fn change(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
        by: By,
        make: impl Fn(&Value) -> Result<Value> + Send + Sync,
    ) -> Result<Value> {
        let dry_run = context.dry_run()?;
        let renderer = Renderer::new(self, resource);
        let key = resource.key(at.namespace, at.name);
        for _ in 0..ATTEMPTS {
            let Some(entry) = self.store.get(&resource.storage, &key) else {
                return Err(Status::not_found(about(resource, at.name)));
            };
            let old = renderer.value(&entry).await?;
            let mut new = make(&old)?;
            let given = object::resource_version(&new).to_owned();
            let pinned = !given.is_empty() && given != "0";
            if pinned && given.parse::<u64>().is_err() {
                let why = format!("strconv.ParseUint: parsing \"{given}\": invalid syntax");
                return Err(Status::foreign(500, "", why));
            }
            if pinned && given != object::resource_version(&old) {
                return Err(Status::modified(about(resource, at.name)));
            }
            self.admit_change(context, resource, (&old, &mut new), at, by)
                .await?;
            if meta::is_same(&old, &new) {
                return Ok(old);
            }
            if dry_run {
                return Ok(new);
            }
            let committed = self
                .commit_change(resource, &entry, key.clone(), new)
                .await?;
            if let Some((entry, stored)) = committed {
                return renderer.written(&entry, stored).await;
            }
        }
        Err(Status::modified(about(resource, at.name)))
    }

    async fn admit_change(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        (old, new): (&Value, &mut Value),
        at: Address<'_>,
        by: By,
    ) -> Result<()> {
        meta::stamp_update(resource, old, new, at.subresource);
        strategy::prepare_update(resource, old, new, at.subresource);
        meta::unique_owners(context, new);
        if by == By::Update && at.subresource != "binding" {
            self.track(context, resource, (Some(old), new), at.subresource)
                .await?;
        }
        let mutates = self.has_mutating_webhooks(resource);
        if mutates
            && self
                .mutate_change(context, resource, (old, new), at)
                .await?
        {
            meta::place_existing(resource, (at.namespace, at.name), new)?;
            meta::stamp_update(resource, old, new, at.subresource);
            strategy::prepare_update(resource, old, new, at.subresource);
        }
        self.plug_update(resource, new, at.subresource)?;
        self.address(resource, (Some(old), new), context.dry_run()?)?;
        typed::encode(resource, new);
        let causes = typed::validate(resource, new, Some(old), at.subresource);
        if !causes.is_empty() {
            return Err(Status::invalid(
                resource.storage_group(),
                &resource.kind,
                at.name,
                causes,
            ));
        }
        typed::warn(context, resource, new, Some(old));
        self.check_escalation(context, resource, Some(old), new)?;
        if self.has_validating_webhooks(resource)
            && let Some(attributes) = change_attributes(context, resource, (old, new), at)?
        {
            self.ask_validating(context, &attributes).await?;
        }
        Ok(())
    }

    /// Lets mutating webhooks change what an object becomes; tells whether one did.
    async fn mutate_change(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        (old, new): (&Value, &mut Value),
        at: Address<'_>,
    ) -> Result<bool> {
        let Some(mut attributes) = change_attributes(context, resource, (old, new), at)? else {
            return Ok(false);
        };
        // The generation is counted when the object is final.
        if let (Some(object), Some(generation)) =
            (&mut attributes.object, old["metadata"].get("generation"))
        {
            object::set_meta(object, "generation", generation.clone());
        }
        if !self.mutate(context, &mut attributes).await? {
            return Ok(false);
        }
        if let Some(changed) = attributes.object {
            match at.subresource {
                "scale" => subresource::set_replicas(resource, new, &changed),
                _ => *new = changed,
            }
        }
        Ok(true)
    }

    /// Commits a changed object; one that waited only for its last finalizer is gone after that.
    ///
    /// Nothing is returned, and nothing has happened, when somebody else was faster.
    pub(crate) async fn commit_change(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        entry: &Entry,
        key: String,
        new: Value,
    ) -> Result<Option<(Arc<Entry>, Value)>> {
        let gone = object::is_deleting(&new)
            && object::finalizers(&new).is_empty()
            && new["metadata"]["deletionGracePeriodSeconds"]
                .as_i64()
                .unwrap_or(0)
                == 0
            && !super::delete::keeps_itself(resource, &new);
        let stored = self.to_storage(resource, new).await?;
        // Watchers of what goes are shown what it was before, not the change that let it go.
        let encoded = if gone {
            Encoded::new(&entry.value())
        } else {
            Encoded::new(&stored)
        };
        let write = Write {
            resource: Arc::clone(&resource.storage),
            key,
            expect: Expect::Revision(entry.revision),
            op: if gone {
                Op::Delete(encoded)
            } else {
                Op::Put(encoded)
            },
        };
        let committed = match self.store.commit(write).await {
            Ok(committed) => committed,
            Err(store::Error::Conflict) => return Ok(None),
            Err(error) => return Err(Status::internal(error)),
        };
        self.after_write(resource, (!gone).then_some(&committed))
            .await;
        if gone {
            self.after_delete(resource, &committed).await;
        }
        Ok(Some((committed, stored)))
    }
}

/// A change as webhooks see it; none when it is part of something that has been shown to them already.
fn change_attributes<'a>(
    context: &'a Context,
    resource: &'a Arc<Resource>,
    (old, new): (&Value, &Value),
    at: Address<'a>,
) -> Result<Option<Attributes<'a>>> {
    let (body, object, before) = match at.subresource {
        "binding" => return Ok(None),
        "scale" => (
            Some(("autoscaling/v1", "Scale")),
            subresource::scale_of(resource, new),
            subresource::scale_of(resource, old),
        ),
        _ => (None, new.clone(), old.clone()),
    };
    let is_namespace = resource.is("", "namespaces");
    Ok(Some(Attributes {
        operation: Operation::Update,
        resource,
        subresource: at.subresource,
        body,
        namespace: if is_namespace { at.name } else { at.namespace },
        name: at.name,
        user: &context.user,
        options: admission::options(context, Operation::Update),
        dry_run: context.dry_run()?,
        object: Some(object),
        old: Some(before),
    }))
}

/// Kinds whose PUT must say which state it replaces.
fn allows_unconditional(resource: &Resource) -> bool {
    resource.is_builtin()
        && !matches!(
            resource.kind.as_str(),
            "CustomResourceDefinition"
                | "Lease"
                | "MutatingWebhookConfiguration"
                | "ValidatingWebhookConfiguration"
                | "PodDisruptionBudget"
                | "APIService"
                | "VolumeAttachment"
                | "CSIDriver"
                | "CSINode"
                | "RuntimeClass"
                | "EndpointSlice"
        )
}
