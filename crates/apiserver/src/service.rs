//! The server as a `tower::Service`: what kube-rs calls in process, and what a listener calls for the network.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::{
    api::{Api, context::Context, failure},
    auth::User,
    request::{Query, Target},
    status::Status,
};

/// The largest body that is read.
const BODY_LIMIT: usize = 3 << 20;

/// The API as one user sees it.
///
/// It goes straight into `kube::Client::new`, with no socket, TLS or kubeconfig in between.
#[derive(Clone)]
pub struct ApiService {
    api: Arc<Api>,
    user: Arc<User>,
}

impl ApiService {
    pub(crate) fn new(api: Arc<Api>, user: User) -> Self {
        Self {
            api,
            user: Arc::new(user),
        }
    }

    /// The same API, seen by somebody else.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        Self::new(Arc::clone(&self.api), user)
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (api, user) = (Arc::clone(&self.api), Arc::clone(&self.user));
        Box::pin(async move { Ok(answer(&api, user, request).await) })
    }
}

async fn answer<B>(api: &Arc<Api>, user: Arc<User>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return failure(&Status::too_large(BODY_LIMIT));
        }
        Err(error) => {
            return failure(&Status::bad_request(format!(
                "cannot read the body: {error}"
            )));
        }
    };
    let query = Query::parse(parts.uri.query());
    let target = Target::parse(&parts.method, parts.uri.path(), &query);
    let context = Context::new(user, target, query, parts.headers, body);
    api.respond(&context).await
}
