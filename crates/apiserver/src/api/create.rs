//! Creating objects.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Api, admission,
    context::Context,
    decode,
    dispatch::Answer,
    meta::{self, about},
    render::Renderer,
    strategy, typed,
    update::By,
};
use crate::{
    admission::{Attributes, Operation},
    object,
    registry::Resource,
    status::{Cause, Result, Status},
    store::{self, Encoded, Expect, Op, Write},
};

/// How often a generated name may meet a taken one.
const NAME_ATTEMPTS: usize = 8;

impl Api {
    /// `POST` on a collection.
    pub(crate) async fn create(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
    ) -> Result<Answer> {
        let mut object = decode::body(context, &resource.kind)?;
        context.check_manager()?;
        meta::check_kind(resource, &mut object)?;
        let created = self
            .create_object(context, resource, namespace, object, By::Update)
            .await?;
        Ok(Answer::created(&created))
    }

    /// Creates an object that is already decoded; `by` says who records field ownership.
    pub(crate) async fn create_object(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
        mut object: Value,
        by: By,
    ) -> Result<Value> {
        let dry_run = context.dry_run()?;
        meta::place_new(resource, namespace, &mut object)?;
        if !object::resource_version(&object).is_empty() {
            return Err(Status::foreign(
                500,
                "",
                "resourceVersion should not be set on objects to be created".to_owned(),
            ));
        }
        typed::admit(context, resource, &mut object)?;
        self.check_namespace(context, resource, namespace, object::name(&object))?;
        let managed = object::take_meta(&mut object, "managedFields");
        meta::stamp_new(self, resource, &mut object);
        if let Some(managed) = managed {
            object::set_meta(&mut object, "managedFields", managed);
        }
        reset_status(resource, &mut object);
        strategy::complete(resource, &mut object);
        meta::unique_owners(context, &mut object);
        if by == By::Update {
            self.track(context, resource, (None, &mut object), "")
                .await?;
        }
        if self.has_mutating_webhooks(resource) {
            self.mutate_new(context, resource, namespace, &mut object)
                .await?;
        }

        let generate = object::meta(&object, "generateName").to_owned();
        let generated = object::name(&object).is_empty() && !generate.is_empty();
        for attempt in 0..NAME_ATTEMPTS {
            if generated {
                let base: String = generate.chars().take(58).collect();
                object::set_meta(&mut object, "name", format!("{base}{}", self.name_suffix()));
                strategy::complete(resource, &mut object);
            }
            let mut object = object.clone();
            self.admit_new(context, resource, &mut object).await?;
            let name = object::name(&object).to_owned();
            let key = resource.key(namespace, &name);
            if dry_run {
                if self.store.get(&resource.storage, &key).is_some() {
                    return Err(Status::already_exists(about(resource, &name)));
                }
                return Ok(object);
            }
            let stored = self.to_storage(resource, object).await?;
            let write = Write {
                resource: Arc::clone(&resource.storage),
                key,
                expect: Expect::Absent,
                op: Op::Put(Encoded::new(&stored)),
            };
            match self.store.commit(write).await {
                Ok(entry) => {
                    self.after_write(resource, Some(&entry)).await;
                    let renderer = Renderer::new(self, resource);
                    return renderer.written(&entry, stored).await;
                }
                Err(store::Error::Conflict) if generated && attempt + 1 < NAME_ATTEMPTS => {}
                Err(store::Error::Conflict) if generated => {
                    return Err(Status::generate_name_conflict(about(resource, &name)));
                }
                Err(store::Error::Conflict) => {
                    return Err(Status::already_exists(about(resource, &name)));
                }
                Err(error) => return Err(Status::internal(error)),
            }
        }
        Err(Status::generate_name_conflict(about(resource, &generate)))
    }

    async fn admit_new(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        object: &mut Value,
    ) -> Result<()> {
        if object::name(object).is_empty() {
            return Err(Status::invalid(
                resource.storage_group(),
                &resource.kind,
                "",
                vec![Cause::required(
                    "metadata.name",
                    "name or generateName is required",
                )],
            ));
        }
        self.plug_new(resource, object)?;
        strategy::prepare_new(self, resource, object);
        self.address(resource, (None, object), context.dry_run()?)?;
        typed::encode(resource, object);
        let causes = typed::validate(resource, object, None, "");
        if !causes.is_empty() {
            let name = object::name(object);
            return Err(Status::invalid(
                resource.storage_group(),
                &resource.kind,
                name,
                causes,
            ));
        }
        typed::warn(context, resource, object, None);
        self.check_escalation(context, resource, None, object)?;
        if self.has_validating_webhooks(resource) {
            let attributes = new_attributes(context, resource, object)?;
            self.ask_validating(context, &attributes).await?;
        }
        Ok(())
    }

    /// Lets mutating webhooks change a new object, which has not yet what the server decides.
    async fn mutate_new(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        namespace: &str,
        object: &mut Value,
    ) -> Result<()> {
        const DECIDED: [&str; 3] = ["uid", "creationTimestamp", "generation"];
        let mut shown = object.clone();
        for field in DECIDED {
            object::take_meta(&mut shown, field);
        }
        let (name, generated) = (object::name(object), object::meta(object, "generateName"));
        let (name, generated) = (name.to_owned(), generated.to_owned());
        let mut attributes = new_attributes(context, resource, &shown)?;
        if !self.mutate(context, &mut attributes).await? {
            return Ok(());
        }
        let Some(mut changed) = attributes.object else {
            return Ok(());
        };
        for field in DECIDED {
            match object["metadata"].get(field) {
                Some(value) => object::set_meta(&mut changed, field, value.clone()),
                None => drop(object::take_meta(&mut changed, field)),
            }
        }
        object::take_meta(&mut changed, "resourceVersion");
        meta::place_new(resource, namespace, &mut changed)?;
        if object::name(&changed) != name && generated.is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                object::name(&changed)
            )));
        }
        reset_status(resource, &mut changed);
        strategy::complete(resource, &mut changed);
        *object = changed;
        Ok(())
    }
}

/// A new object has the status that the server gives it, whatever its writer thinks.
fn reset_status(resource: &Resource, object: &mut Value) {
    if resource.has_status()
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
        if let Some(kind) = resource.built_in() {
            // Shows the zero values that the status of this kind always has.
            map.insert("status".into(), Value::Object(serde_json::Map::new()));
            kind.default(object);
        }
    }
}

/// A creation as webhooks see it.
fn new_attributes<'a>(
    context: &'a Context,
    resource: &'a Arc<Resource>,
    object: &'a Value,
) -> Result<Attributes<'a>> {
    let is_namespace = resource.is("", "namespaces");
    let name = object::name(object);
    Ok(Attributes {
        operation: Operation::Create,
        resource,
        subresource: "",
        body: None,
        namespace: if is_namespace {
            name
        } else {
            object::namespace(object)
        },
        name,
        user: &context.user,
        options: admission::options(context, Operation::Create),
        dry_run: context.dry_run()?,
        object: Some(object.clone()),
        old: None,
    })
}
