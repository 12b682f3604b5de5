//! From a request to the handler that answers it.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::{Api, context::Context, update::Address};
use crate::{
    request::{self, Verb},
    status::{Result, Status},
};

/// A successful answer.
pub(crate) struct Answer {
    code: StatusCode,
    content_type: &'static str,
    body: Body,
}

impl Answer {
    fn json(code: StatusCode, value: &Value) -> Self {
        let mut bytes = value.to_string().into_bytes();
        bytes.push(b'\n');
        Self {
            code,
            content_type: "application/json",
            body: bytes.into(),
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
            body: bytes.into(),
        }
    }

    /// A stream of JSON lines.
    pub(crate) fn stream(body: Body) -> Self {
        Self {
            code: StatusCode::OK,
            content_type: "application/json",
            body,
        }
    }

    pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> Self {
        Self {
            code,
            content_type: "text/plain; charset=utf-8",
            body: text.into().into(),
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

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
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
            Some(asked) => self.dispatch_resource(context, asked).await,
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
            return Ok(Answer::page_not_found());
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
