//! Doors to an object beside the main one.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Api,
    context::Context,
    decode,
    dispatch::Answer,
    meta::{self, about},
    patch::Patch,
    render::{self, Form, Renderer},
    update::{Address, By},
};
use crate::{
    golang, object,
    registry::{Resource, crd::Scale, text},
    request::Verb,
    status::{Cause, Result, Status},
    table::Printer,
};

impl Api {
    pub(crate) async fn subresource(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
    ) -> Result<Answer> {
        let verb = context.target.verb;
        match (at.subresource, verb) {
            ("status", _) if !resource.is_builtin() && !resource.has_status() => {
                Err(Status::not_found(about(resource, at.name)))
            }
            ("scale", _) if !resource.is_builtin() && !resource.has_scale() => {
                Err(Status::not_found(about(resource, at.name)))
            }
            ("status", _) if !resource.has_status() => Err(Status::no_such_resource()),
            ("status", Verb::Get) => self.get(context, resource, at.namespace, at.name).await,
            ("status", Verb::Update) => self.update(context, resource, at).await,
            ("status", Verb::Patch) => self.patch(context, resource, at).await,
            ("scale", _) if !resource.has_scale() => Err(Status::no_such_resource()),
            ("scale", Verb::Get) => self.get_scale(context, resource, at).await,
            ("scale", Verb::Update | Verb::Patch) => self.set_scale(context, resource, at).await,
            ("finalize", Verb::Update) if resource.is("", "namespaces") => {
                self.update(context, resource, at).await
            }
            ("ephemeralcontainers", Verb::Get) if resource.is("", "pods") => {
                self.get(context, resource, at.namespace, at.name).await
            }
            ("ephemeralcontainers", Verb::Update) if resource.is("", "pods") => {
                self.update(context, resource, at).await
            }
            ("ephemeralcontainers", Verb::Patch) if resource.is("", "pods") => {
                self.patch(context, resource, at).await
            }
            ("token", Verb::Create) if resource.is("", "serviceaccounts") => {
                self.create_token(context, resource, at).await
            }
            ("binding", Verb::Create) if resource.is("", "pods") => {
                self.bind(context, resource, at).await
            }
            ("eviction", Verb::Create) if resource.is("", "pods") => {
                self.evict(context, resource, at).await
            }
            ("status" | "scale", _) => Err(Status::method_not_allowed()),
            _ if resource.is_builtin() => Err(Status::no_such_resource()),
            _ => Ok(Answer::page_not_found()),
        }
    }

    async fn read(&self, renderer: &Renderer, at: Address<'_>) -> Result<Value> {
        let resource = &renderer.resource;
        let key = resource.key(at.namespace, at.name);
        match self.store.get(&resource.storage, &key) {
            Some(entry) => renderer.value(&entry).await,
            None => Err(Status::not_found(about(resource, at.name))),
        }
    }

    async fn get_scale(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
    ) -> Result<Answer> {
        let object = self.read(&Renderer::new(self, resource), at).await?;
        check_scalable(resource, &object)?;
        let scale = scale_of(resource, &object);
        match render::negotiate(context, resource, false)? {
            Form::Object => Ok(Answer::ok(&scale)),
            Form::Metadata => Ok(Answer::ok(&render::metadata_only(&scale))),
            Form::Table => {
                let printer = Printer::built_in("autoscaling", "Scale");
                self.print(context, &printer, &[scale])
                    .map(|t| Answer::ok(&t))
            }
        }
    }

    async fn set_scale(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
    ) -> Result<Answer> {
        let patch = match context.target.verb {
            Verb::Patch => Some(Patch::read(context, resource)?),
            _ => None,
        };
        let body = match patch {
            None => Some(decode::body(context, "Scale")?),
            Some(_) => None,
        };
        let changed = self
            .change(context, resource, at, By::Update, |old| {
                if patch.is_some() {
                    check_scalable(resource, old)?;
                }
                let before = scale_of(resource, old);
                let mut scale = match (&patch, &body) {
                    (Some(patch), _) => patch.on(&before, resource)?,
                    (None, Some(body)) => body.clone(),
                    (None, None) => before,
                };
                meta::expect_kind(&mut scale, "autoscaling/v1", "Scale")?;
                let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
                if replicas < 0 {
                    return Err(negative(resource, at.name, replicas));
                }
                let mut new = old.clone();
                set_replicas(resource, &mut new, &scale);
                match object::resource_version(&scale) {
                    "" => object::take_meta(&mut new, "resourceVersion").map(drop),
                    version => {
                        let version = version.to_owned();
                        object::set_meta(&mut new, "resourceVersion", version);
                        None
                    }
                };
                Ok(new)
            })
            .await?;
        Ok(Answer::ok(&scale_of(resource, &changed)))
    }
}

/// A custom object whose replicas nobody has set cannot be scaled from where it is.
fn check_scalable(resource: &Resource, object: &Value) -> Result<()> {
    let path = scale_paths(resource).spec_replicas;
    if resource.is_builtin() || object::at_path(object, &path).is_some() {
        return Ok(());
    }
    Err(Status::internal(format!(
        "the spec replicas field {} does not exist",
        golang::quote(&path)
    )))
}

fn negative(resource: &Resource, name: &str, replicas: i64) -> Status {
    if resource.is_builtin() {
        let why = "must be greater than or equal to 0";
        let cause = Cause::invalid("spec.replicas", &json!(replicas), why);
        return Status::invalid("autoscaling", "Scale", name, vec![cause]);
    }
    let path = scale_paths(resource).spec_replicas;
    let why = "should be a non-negative integer";
    let cause = Cause::invalid(path, &json!(replicas), why);
    Status::invalid(&resource.group, &resource.kind, name, vec![cause])
}

fn scale_paths(resource: &Resource) -> Scale {
    resource
        .crd
        .as_ref()
        .and_then(|crd| crd.scale.clone())
        .unwrap_or_else(|| Scale {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            selector: None,
        })
}

/// Gives an object the number of replicas that its `Scale` asks for.
pub(crate) fn set_replicas(resource: &Resource, object: &mut Value, scale: &Value) {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    object::set_path(
        object,
        &scale_paths(resource).spec_replicas,
        json!(replicas),
    );
}

/// Whether an object is to have no replicas.
pub(crate) fn is_scaled_to_zero(resource: &Resource, object: &Value) -> bool {
    let path = scale_paths(resource).spec_replicas;
    object::at_path(object, &path).is_some_and(|replicas| *replicas == 0)
}

/// The `Scale` of an object.
pub(crate) fn scale_of(resource: &Resource, object: &Value) -> Value {
    let paths = scale_paths(resource);
    let number = |path: &str| object::at_path(object, path).and_then(Value::as_i64);
    let selector = match &paths.selector {
        Some(path) => object::at_path(object, path)
            .and_then(Value::as_str)
            .map(str::to_owned),
        None => Some(selector_text(&object["spec"]["selector"])).filter(|s| !s.is_empty()),
    };
    let mut status = json!({"replicas": number(&paths.status_replicas).unwrap_or(0)});
    if let Some(selector) = selector {
        status["selector"] = json!(selector);
    }
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = number(&paths.spec_replicas).filter(|n| *n != 0) {
        spec["replicas"] = json!(replicas);
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    })
}

/// A `LabelSelector` object in the syntax of query strings.
fn selector_text(selector: &Value) -> String {
    let labels = match selector["matchLabels"].as_object() {
        Some(labels) => Some(labels),
        // ReplicationControllers select by a plain map.
        None if selector.get("matchExpressions").is_none() => selector.as_object(),
        None => None,
    };
    let mut parts: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = text(expression, "key");
        let values = object::strings(&expression["values"]).join(",");
        parts.push(match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    parts.sort();
    parts.join(",")
}
