//! From a request to the handler that answers it.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::{
    Api,
    context::Context,
    render::{self, Form, Media, accepted},
    update::Address,
};
use crate::{
    object,
    request::{self, Verb},
    status::{Result, Status},
    yaml,
};

/// A successful answer.
pub(crate) struct Answer {
    code: StatusCode,
    content_type: &'static str,
    body: Content,
}

/// The body of an answer.
enum Content {
    Whole(Bytes),
    Stream(Body),
}

impl Answer {
    fn json(code: StatusCode, value: &Value) -> Self {
        let mut bytes = value.to_string().into_bytes();
        bytes.push(b'\n');
        Self {
            code,
            content_type: "application/json",
            body: Content::Whole(bytes.into()),
        }
    }

    pub(crate) fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value)
    }

    pub(crate) fn created(value: &Value) -> Self {
        Self::json(StatusCode::CREATED, value)
    }

    pub(crate) fn accepted(value: &Value) -> Self {
        Self::json(StatusCode::ACCEPTED, value)
    }

    /// JSON that is serialised already.
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self {
            code: StatusCode::OK,
            content_type: "application/json",
            body: Content::Whole(bytes),
        }
    }

    /// A stream of JSON lines.
    pub(crate) fn stream(body: Body) -> Self {
        Self {
            code: StatusCode::OK,
            content_type: "application/json",
            body: Content::Stream(body),
        }
    }

    pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> Self {
        Self {
            code,
            content_type: "text/plain; charset=utf-8",
            body: Content::Whole(text.into().into()),
        }
    }

    pub(crate) fn typed(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    /// What a path that leads nowhere gets.
    pub(crate) fn page_not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    /// The value of an answer in JSON that is whole.
    fn value(&self) -> Option<Value> {
        match &self.body {
            Content::Whole(bytes) if self.content_type == "application/json" => {
                serde_json::from_slice(bytes).ok()
            }
            _ => None,
        }
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(match self.body {
            Content::Whole(bytes) => bytes.into(),
            Content::Stream(body) => body,
        });
        *response.status_mut() = self.code;
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(self.content_type),
        );
        response
    }
}

/// A failure as a response.
pub(crate) fn failure(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::from(status.to_bytes()));
    *response.status_mut() = status.code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Some(seconds) = status.retry_after() {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

impl Api {
    /// Answers a request that may be made.
    pub(crate) async fn respond(self: &Arc<Self>, context: &Context) -> Response<Body> {
        let mut response = match self.dispatch(context).await {
            Ok(answer) => answer.into_response(),
            Err(status) => failure(&status),
        };
        for warning in context.take_warnings() {
            let text = warning
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', " ");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        response
    }

    async fn dispatch(self: &Arc<Self>, context: &Context) -> Result<Answer> {
        match &context.target.resource {
            None => self.meta_path(context).await,
            Some(asked) => {
                let answer = self.dispatch_resource(context, asked).await?;
                self.in_form(context, asked, answer)
            }
        }
    }

    /// Brings an answer into the form and the media that the client accepts.
    fn in_form(
        &self,
        context: &Context,
        asked: &request::Resource,
        mut answer: Answer,
    ) -> Result<Answer> {
        let accept = context.header(header::ACCEPT);
        if !accept.contains("as=") && !accept.contains("yaml") {
            return Ok(answer);
        }
        let Some(value) = answer.value() else {
            return Ok(answer);
        };
        let verb = context.target.verb;
        let (form, media) = accepted(context, None, verb == Verb::Watch)?;
        let changed = !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
        let kinds = self.kinds();
        let resource = kinds.find(&asked.group, &asked.version, &asked.plural);
        let own = resource.filter(|resource| value["kind"] == resource.kind.as_str());
        let value = match (form, own) {
            (Form::Metadata, Some(_)) if changed => render::metadata_only(&value),
            (Form::Table, Some(resource)) if changed => {
                let revision = object::resource_version(&value).parse().unwrap_or(0);
                self.table(context, &resource, &[value], revision, None)?
            }
            _ if media == Media::Yaml => value,
            _ => return Ok(answer),
        };
        match media {
            Media::Json => answer.body = Content::Whole(value.to_string().into()),
            Media::Yaml => {
                answer.body = Content::Whole(yaml::render(&value).into());
                answer.content_type = "application/yaml";
            }
        }
        Ok(answer)
    }

    /// What a path gets that names no resource: groups of Kubernetes' own know their kinds.
    pub(crate) fn nowhere(&self, group: &str) -> Result<Answer> {
        let kinds = self.kinds();
        let known = kinds.all().any(|r| r.group == group && r.is_builtin());
        if known {
            Err(Status::no_such_resource())
        } else {
            Ok(Answer::page_not_found())
        }
    }

    async fn dispatch_resource(
        self: &Arc<Self>,
        context: &Context,
        asked: &request::Resource,
    ) -> Result<Answer> {
        let Some(resource) = self
            .kinds()
            .find(&asked.group, &asked.version, &asked.plural)
        else {
            return self.nowhere(&asked.group);
        };
        let (namespace, name) = (asked.namespace.as_str(), asked.name.as_str());
        if !namespace.is_empty() && !resource.namespaced {
            return Ok(Answer::page_not_found());
        }
        if resource.namespaced && namespace.is_empty() && !name.is_empty() {
            return Ok(Answer::page_not_found());
        }
        if let Some(warning) = resource
            .crd
            .as_ref()
            .and_then(|crd| crd.deprecation.as_ref())
        {
            context.warn(warning.clone());
        }
        if !asked.subresource.is_empty() {
            let at = Address {
                namespace,
                name,
                subresource: &asked.subresource,
            };
            return self.subresource(context, &resource, at).await;
        }
        let at = Address {
            namespace,
            name,
            subresource: "",
        };
        if resource.traits.virtual_only {
            return match context.target.verb {
                Verb::Create if name.is_empty() => {
                    self.create_virtual(context, &resource, namespace).await
                }
                _ => Err(Status::method_not_allowed()),
            };
        }
        match context.target.verb {
            Verb::Get => self.get(context, &resource, namespace, name).await,
            Verb::List => self.list(context, &resource, namespace).await,
            Verb::Watch => self.watch(context, &resource, namespace, name).await,
            Verb::DeleteCollection if resource.is("", "namespaces") => {
                Err(Status::method_not_allowed())
            }
            Verb::Create | Verb::DeleteCollection
                if resource.namespaced && namespace.is_empty() =>
            {
                Err(Status::method_not_allowed())
            }
            Verb::Create if name.is_empty() => self.create(context, &resource, namespace).await,
            Verb::Update if !name.is_empty() => self.update(context, &resource, at).await,
            Verb::Patch if !name.is_empty() => self.patch(context, &resource, at).await,
            Verb::Delete => self.delete(context, &resource, namespace, name).await,
            Verb::DeleteCollection => self.delete_collection(context, &resource, namespace).await,
            _ => Err(Status::method_not_allowed()),
        }
    }
}
