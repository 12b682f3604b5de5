//! Asking admission webhooks about a write.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::join_all;
use serde_json::{Value, json};

use super::{Api, context::Context, meta::about, typed, update::Address};
use crate::{
    admission::{self, Attributes, Hook, Operation, review},
    apply::{self, Stamp},
    golang,
    kinds::BuiltIn,
    object, patch,
    registry::Resource,
    status::{About, Result, Status},
    webhook::{self, Place},
};

/// What asking one webhook came to.
enum Asked {
    /// It allowed the write, perhaps with a patch.
    Allowed(Option<(String, Vec<u8>)>),
    /// It could not be asked, which its policy forgives.
    Ignored,
}

impl Api {
    /// Whether any webhook might want to see a write of this kind.
    pub(crate) fn has_mutating_webhooks(&self, resource: &Resource) -> bool {
        !admission::is_exempt(resource) && !self.hooks.mutating(&self.store).0.is_empty()
    }

    /// The same for those that only refuse.
    pub(crate) fn has_validating_webhooks(&self, resource: &Resource) -> bool {
        !admission::is_exempt(resource) && !self.hooks.validating(&self.store).0.is_empty()
    }

    /// Lets mutating webhooks change the object that is written; tells whether one did.
    pub(crate) async fn mutate(
        &self,
        context: &Context,
        attributes: &mut Attributes<'_>,
    ) -> Result<bool> {
        let hooks = self.hooks.mutating(&self.store);
        let mut changed = false;
        // Webhooks that asked for another look, until a later one changes the object.
        let mut waiting = BTreeSet::new();
        let mut again = BTreeSet::new();
        for round in 0..2 {
            for hook in &hooks.0 {
                if round == 1 && !again.contains(hook.id.as_str()) {
                    continue;
                }
                let Some(resource) = self.wanted(hook, attributes)? else {
                    continue;
                };
                if self.mutate_by(context, hook, &resource, attributes).await? {
                    changed = true;
                    again.append(&mut waiting);
                }
                if hook.reinvoked {
                    waiting.insert(hook.id.as_str());
                }
            }
            if again.is_empty() {
                break;
            }
        }
        Ok(changed)
    }

    /// Asks all validating webhooks that want to see a write; the first refusal in order counts.
    pub(crate) async fn ask_validating(
        &self,
        context: &Context,
        attributes: &Attributes<'_>,
    ) -> Result<()> {
        let hooks = self.hooks.validating(&self.store);
        let mut asked = Vec::new();
        for hook in &hooks.0 {
            if let Some(resource) = self.wanted(hook, attributes)? {
                asked.push(async move {
                    let seen = self.seen_as(attributes, &resource).await?;
                    let seen = seen.as_ref().unwrap_or(attributes);
                    self.ask(context, hook, &resource, seen, false).await
                });
            }
        }
        for answer in join_all(asked).await {
            answer?;
        }
        Ok(())
    }

    /// As which resource a webhook wants to see a write, if at all; its conditions come later.
    fn wanted(&self, hook: &Hook, attributes: &Attributes<'_>) -> Result<Option<Arc<Resource>>> {
        let Some(resource) = admission::matched(hook, attributes, &self.kinds()) else {
            return Ok(None);
        };
        let namespace = self.namespace_of(attributes)?;
        let wanted = hook.wants_namespace(namespace.as_ref()) && hook.wants_object(attributes);
        Ok(wanted.then_some(resource))
    }

    /// The namespace whose labels count; none for what lies in no namespace.
    fn namespace_of(&self, attributes: &Attributes<'_>) -> Result<Option<Value>> {
        let resource = attributes.resource;
        if resource.is("", "namespaces") {
            let labelled = match attributes.operation {
                Operation::Delete => &attributes.old,
                Operation::Create | Operation::Update => &attributes.object,
            };
            return Ok(labelled.clone());
        }
        if !resource.namespaced {
            return Ok(None);
        }
        match self.store.get("/namespaces", attributes.namespace) {
            Some(entry) => Ok(Some(entry.value())),
            None => Err(Status::not_found(About {
                group: "",
                resource: "namespaces",
                name: attributes.namespace,
            })),
        }
    }

    /// A write as it looks in another version; none when it is already of that version.
    async fn seen_as<'a>(
        &self,
        attributes: &Attributes<'a>,
        resource: &Resource,
    ) -> Result<Option<Attributes<'a>>> {
        let version = resource.api_version();
        if attributes.body.is_some() || version == attributes.resource.api_version() {
            return Ok(None);
        }
        let mut seen = [None, None];
        for (seen, object) in seen.iter_mut().zip([&attributes.object, &attributes.old]) {
            if let Some(object) = object {
                *seen = Some(self.convert(resource, object.clone(), &version).await?);
            }
        }
        let [object, old] = seen;
        Ok(Some(Attributes {
            object,
            old,
            options: attributes.options.clone(),
            ..*attributes
        }))
    }

    async fn mutate_by(
        &self,
        context: &Context,
        hook: &Hook,
        resource: &Arc<Resource>,
        attributes: &mut Attributes<'_>,
    ) -> Result<bool> {
        let converted = self.seen_as(attributes, resource).await?;
        let seen = converted.as_ref().unwrap_or(attributes);
        let Asked::Allowed(Some((kind, patch))) =
            self.ask(context, hook, resource, seen, true).await?
        else {
            return Ok(false);
        };
        let operations: Value = serde_json::from_slice(&patch).map_err(Status::internal)?;
        if operations.as_array().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        let Some(before) = &seen.object else {
            return Err(Status::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                golang::quote(&hook.name)
            )));
        };
        if kind != "JSONPatch" {
            let why = format!("unsupported patch type {}", golang::quote(&kind));
            return failed(hook, &why).map(|_| false);
        }
        let mut after = before.clone();
        patch::json(&mut after, &operations).map_err(Status::internal)?;
        if attributes.body.is_none() {
            typed::decode_as(resource, &mut after).map_err(Status::internal)?;
            typed::settle(resource, &mut after);
        }
        if after == *before {
            return Ok(false);
        }
        if converted.is_some() {
            let version = attributes.resource.api_version();
            after = self.convert(attributes.resource, after, &version).await?;
        }
        attributes.object = Some(after);
        Ok(true)
    }

    /// Asks one webhook; a refusal is the error.
    async fn ask(
        &self,
        context: &Context,
        hook: &Hook,
        resource: &Resource,
        attributes: &Attributes<'_>,
        mutating: bool,
    ) -> Result<Asked> {
        let uid = self.new_uid();
        let request = review::request(&uid, attributes, resource);
        match hook.conditions_hold(&request) {
            Ok(true) => {}
            Ok(false) => return Ok(Asked::Allowed(None)),
            Err(why) => {
                let about = about(attributes.resource, attributes.name);
                return Err(Status::forbidden(about, &why));
            }
        }
        if attributes.dry_run && !hook.takes_dry_run {
            return Err(Status::bad_request(format!(
                "admission webhook {} does not support dry run",
                golang::quote(&hook.name)
            )));
        }
        let question = json!({
            "kind": "AdmissionReview",
            "apiVersion": hook.speaks,
            "request": request,
        });
        let answered = match &hook.place {
            Ok(place) => self.call_webhook(place, &question, hook.timeout).await,
            Err(error) => Err(error.clone()),
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) => return failed(hook, &format!("failed to call webhook: {error}")),
        };
        let answer = match review::Answer::read(&answer, &uid, hook.speaks, mutating) {
            Ok(answer) => answer,
            Err(why) => return failed(hook, &format!("received invalid webhook response: {why}")),
        };
        for warning in &answer.warnings {
            context.warn(warning);
        }
        if answer.allowed {
            Ok(Asked::Allowed(answer.patch))
        } else {
            Err(answer.refusal(&hook.name))
        }
    }

    /// Asks all webhooks about the body of a request to a subresource that acts, such as an eviction.
    pub(crate) async fn admit_action(
        &self,
        context: &Context,
        resource: &Arc<Resource>,
        at: Address<'_>,
        kind: (&str, &str),
        body: &mut Value,
    ) -> Result<()> {
        let (mutates, validates) = (
            self.has_mutating_webhooks(resource),
            self.has_validating_webhooks(resource),
        );
        if !mutates && !validates {
            return Ok(());
        }
        let mut attributes = Attributes {
            operation: Operation::Create,
            resource,
            subresource: at.subresource,
            body: Some(kind),
            namespace: at.namespace,
            name: at.name,
            user: &context.user,
            options: options(context, Operation::Create),
            dry_run: context.dry_run()?,
            object: Some(body.clone()),
            old: None,
        };
        if mutates
            && self.mutate(context, &mut attributes).await?
            && let Some(changed) = &attributes.object
        {
            body.clone_from(changed);
        }
        if validates {
            self.ask_validating(context, &attributes).await?;
        }
        Ok(())
    }

    /// Puts the body of such a request in its place, and records who wrote what of it.
    pub(crate) fn track_action(
        &self,
        context: &Context,
        at: Address<'_>,
        (api_version, kind): (&str, &str),
        body: &mut Value,
    ) {
        object::set_meta(body, "namespace", at.namespace);
        let (manager, time) = (context.field_manager(), self.clock.now_rfc3339());
        let stamp = Stamp {
            manager: &manager,
            api_version,
            subresource: at.subresource,
            has_status: true,
            time: &time,
        };
        let (group, version) = object::group_version(api_version);
        if let Some(kind) = BuiltIn::find(group, version, kind) {
            apply::track_update(None, body, kind.shape(), &stamp);
        }
    }

    /// Sends a review to where a webhook is.
    pub(crate) async fn call_webhook(
        &self,
        place: &Place,
        review: &Value,
        timeout: std::time::Duration,
    ) -> Result<Value, webhook::Error> {
        let address = place
            .service
            .as_ref()
            .map(|(namespace, name, port)| self.service_address(namespace, name, *port));
        webhook::post(&self.webhooks, place, address, review, timeout).await
    }

    /// Who serves a port of a `Service`: its ready endpoints, or the name outside that it stands for.
    fn service_address(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        let quoted = golang::quote(name);
        let Some(service) = self.store.get("/services", &format!("{namespace}/{name}")) else {
            return Err(format!("service {quoted} not found"));
        };
        let service = service.value();
        let spec = &service["spec"];
        if spec["type"] == "ExternalName" {
            let host = spec["externalName"].as_str().unwrap_or_default();
            return Ok(format!("{host}:{port}"));
        }
        let ports = spec["ports"].as_array().into_iter().flatten();
        let Some(exposed) = ports.into_iter().find(|p| p["port"] == port) else {
            return Err(format!("no service port {port} found for service {quoted}"));
        };
        let port_name = exposed["name"].as_str().unwrap_or_default();
        let slices = self.store.list(
            "discovery.k8s.io/endpointslices",
            &format!("{namespace}/"),
            None,
        );
        let slices = slices.map(|s| s.entries).unwrap_or_default();
        for slice in slices.iter().map(|entry| entry.value()) {
            if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
                continue;
            }
            let ports = slice["ports"].as_array().into_iter().flatten();
            let served = ports
                .into_iter()
                .find(|p| p["name"].as_str().unwrap_or_default() == port_name)
                .and_then(|p| p["port"].as_u64());
            let endpoints = slice["endpoints"].as_array().into_iter().flatten();
            let ready = endpoints
                .into_iter()
                .filter(|e| e["conditions"]["ready"] != false)
                .find_map(|e| object::strings(&e["addresses"]).first().copied());
            if let (Some(port), Some(address)) = (served, ready) {
                let address = if address.contains(':') {
                    format!("[{address}]")
                } else {
                    address.to_owned()
                };
                return Ok(format!("{address}:{port}"));
            }
        }
        Err(format!("no endpoints available for service {quoted}"))
    }
}

/// What follows when a webhook could not be asked.
fn failed(hook: &Hook, why: &str) -> Result<Asked> {
    if hook.ignores_failure {
        tracing::warn!(
            webhook = hook.name,
            why,
            "failed calling webhook, failing open"
        );
        return Ok(Asked::Ignored);
    }
    Err(Status::internal(format!(
        "failed calling webhook {}: {why}",
        golang::quote(&hook.name)
    )))
}

/// The options of a write as reviews show them, from the query string.
pub(crate) fn options(context: &Context, operation: Operation) -> Value {
    let mut options = json!({"kind": operation.options_kind(), "apiVersion": "meta.k8s.io/v1"});
    let dry_run: Vec<&str> = context.query.all("dryRun").collect();
    if !dry_run.is_empty() {
        options["dryRun"] = json!(dry_run);
    }
    for name in ["fieldManager", "fieldValidation"] {
        let value = context.query.text(name);
        if !value.is_empty() {
            options[name] = json!(value);
        }
    }
    options
}
