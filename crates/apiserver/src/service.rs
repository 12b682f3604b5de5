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
use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::{
    api::{Api, context::Context, failure},
    auth::{User, authenticate::certificate_user, rbac::Action},
    request::{Query, Target},
    status::{About, Result as ApiResult, Status},
};

/// The largest body that is read.
const BODY_LIMIT: usize = 3 << 20;

/// The API as one user sees it.
///
/// It goes straight into `kube::Client::new`, with no socket, TLS or kubeconfig in between.
#[derive(Clone)]
pub struct ApiService {
    api: Arc<Api>,
    caller: Caller,
}

/// How a request's user is known.
#[derive(Clone)]
enum Caller {
    /// In process: it is said once and for all.
    Known(Arc<User>),
    /// Over the network: by what the connection and each request show.
    Shown(Option<Arc<User>>),
}

impl ApiService {
    pub(crate) fn new(api: Arc<Api>, user: User) -> Self {
        Self {
            api,
            caller: Caller::Known(Arc::new(user)),
        }
    }

    /// The API for callers that must show who they are.
    pub(crate) fn network(api: Arc<Api>) -> Self {
        Self {
            api,
            caller: Caller::Shown(None),
        }
    }

    /// The API for one connection, whose client may have shown a certificate.
    pub(crate) fn of_connection(&self, certificate: Option<&[u8]>) -> Self {
        Self {
            api: Arc::clone(&self.api),
            caller: Caller::Shown(certificate.and_then(certificate_user).map(Arc::new)),
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
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

impl ApiService {
    async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let mut target = Target::parse(&parts.method, parts.uri.path(), &query);
        target.pin_name(&query);
        let began = tokio::time::Instant::now();
        let verb = target.verb.as_str();
        // Only what is served is counted by name: a caller cannot invent labels.
        let known = target.resource.as_ref().and_then(|asked| {
            self.api
                .kinds()
                .find(&asked.group, &asked.version, &asked.plural)
        });
        let response = match self.admit(&parts, &target) {
            Ok(user) => match read(body).await {
                Ok(body) => {
                    let context = Context::new(user, target, query, parts.headers, body);
                    self.api.respond(&context).await
                }
                Err(status) => failure(&status),
            },
            Err(status) => failure(&status),
        };
        let (group, resource) = known
            .as_ref()
            .map_or(("", ""), |r| (r.group.as_str(), r.plural.as_str()));
        self.api.metrics.answered(
            verb,
            group,
            resource,
            response.status().as_u16(),
            began.elapsed().as_secs_f64(),
        );
        response
    }

    /// Who asks, if they may.
    fn admit(&self, parts: &Parts, target: &Target) -> ApiResult<Arc<User>> {
        let user = match &self.caller {
            Caller::Known(user) => Arc::clone(user),
            Caller::Shown(certified) => {
                self.api.authenticate(certified.as_ref(), &parts.headers)?
            }
        };
        let user = if parts
            .headers
            .keys()
            .any(|k| k.as_str().starts_with("impersonate-"))
        {
            let action = action_of(target);
            Arc::new(
                self.api
                    .impersonate(User::clone(&user), &parts.headers, action.as_ref())?,
            )
        } else {
            user
        };
        self.authorize(&user, target)?;
        Ok(user)
    }

    fn authorize(&self, user: &User, target: &Target) -> ApiResult<()> {
        let (Some(resource), Some(action)) = (&target.resource, action_of(target)) else {
            let verb = target.verb.as_str();
            if self.api.authorize_path(user, verb, &target.path).allowed {
                return Ok(());
            }
            let why = format!(
                "User \"{}\" cannot {verb} path \"{}\"",
                user.name, target.path
            );
            let nobody = About {
                group: "",
                resource: "",
                name: "",
            };
            return Err(Status::forbidden(nobody, &why));
        };
        if self.api.authorize(user, &action).allowed {
            return Ok(());
        }
        let about = About {
            group: &resource.group,
            resource: &resource.plural,
            name: &resource.name,
        };
        Err(Status::forbidden(about, &Api::denial(user, &action)))
    }
}

/// A body, up to the limit.
async fn read<B>(body: B) -> ApiResult<Bytes>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Status::too_large(BODY_LIMIT)),
        Err(error) => Err(Status::bad_request(format!(
            "cannot read the body: {error}"
        ))),
    }
}

/// What a request for a resource wants to do.
fn action_of(target: &Target) -> Option<Action<'_>> {
    let resource = target.resource.as_ref()?;
    // A namespace is its own namespace, so that a role in it can grant reading it.
    let namespace = if resource.plural == "namespaces" && resource.group.is_empty() {
        &resource.name
    } else {
        &resource.namespace
    };
    Some(Action {
        verb: target.verb.as_str(),
        namespace,
        group: &resource.group,
        resource: &resource.plural,
        subresource: &resource.subresource,
        name: if resource.name.is_empty() {
            &target.pinned
        } else {
            &resource.name
        },
    })
}
