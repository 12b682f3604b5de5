//! The endpoints of one cluster: which to ask, and what a failure to answer means.

use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Collected, Full, Limited};
use tokio::time::Instant;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::auth::Grant;
use super::builder::Timeouts;
use super::call::{Answer, Call, Payload};
use super::{Body, BoxError, boxed, unreachable};
use crate::error::{Cause, Error, Result};

/// An answer longer than this is no answer of Proxmox VE.
const MAX_BODY: usize = 256 << 20;

/// What a client is made of: one service per endpoint.
pub(crate) type Service = BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>;

/// A service reports this (anywhere in its chain of sources) when the request certainly did not leave.
///
/// hyper's connection errors are understood without it; it is for services of other make.
#[derive(Debug, thiserror::Error)]
#[error("request was not sent: {0}")]
pub struct NotSent(pub String);

/// How one endpoint does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointHealth {
    /// Its address.
    pub uri: Uri,
    /// Whether the last exchange with it went through, or none was tried yet.
    pub healthy: bool,
    /// How many exchanges have failed since one went through.
    pub failures: u32,
}

pub(crate) struct Endpoints {
    list: Vec<Endpoint>,
    state: Mutex<State>,
}

struct Endpoint {
    uri: Uri,
    service: Service,
}

#[derive(Default)]
struct State {
    /// The endpoint that worked last.
    preferred: usize,
    health: Vec<Health>,
}

#[derive(Default, Clone, Copy)]
struct Health {
    failures: u32,
    rest_until: Option<Instant>,
}

/// Why an exchange brought no answer.
enum Failure {
    /// Nothing was sent.
    NotSent(BoxError),
    /// It was sent, or may have been.
    Lost(BoxError),
}

impl Endpoints {
    pub(crate) fn new(list: Vec<(Uri, Service)>) -> Self {
        let health = vec![Health::default(); list.len()];
        let list = list
            .into_iter()
            .map(|(uri, service)| Endpoint { uri, service })
            .collect();
        Self {
            list,
            state: Mutex::new(State {
                preferred: 0,
                health,
            }),
        }
    }

    pub(crate) fn health(&self) -> Vec<EndpointHealth> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.list
            .iter()
            .zip(&state.health)
            .map(|(endpoint, health)| EndpointHealth {
                uri: endpoint.uri.clone(),
                healthy: health.failures == 0,
                failures: health.failures,
            })
            .collect()
    }

    /// Sends the call until an endpoint answers, as far as repeating is safe and `until` is not past.
    ///
    /// The deadline is kept here too, not only around the whole call: an endpoint that lets a call hang is
    /// known from then on, and the next call goes elsewhere.
    pub(crate) async fn send(
        &self,
        call: &mut Call,
        grant: Option<&Grant>,
        timeouts: &Timeouts,
        until: Instant,
    ) -> Result<Answer> {
        let mut tried = vec![0_u32; self.list.len()];
        let mut attempt = 0;
        loop {
            let at = self.choose(&tried);
            tried[at] += 1;
            attempt += 1;
            let request = self.list[at].request(call, grant)?;
            // Repeating anything else is for the caller to decide, who can look first.
            let again = call.is_read() && attempt < timeouts.read_attempts;
            let left = until.saturating_duration_since(Instant::now());
            let limit = if again {
                timeouts.read_attempt.min(left)
            } else {
                left
            };
            let exchange = self.list[at].exchange(request);
            let outcome = tokio::time::timeout(limit, exchange)
                .await
                .unwrap_or_else(|_| {
                    let text = format!("no answer within {limit:?}");
                    Err(Failure::Lost(text.into()))
                });
            let (error, elsewhere) = match outcome {
                Ok(answer) if is_forwarding_failure(answer.status) => {
                    self.worked(at);
                    (lost(call, &answer.reason(), None), false)
                }
                Ok(answer) if matches!(answer.status, 502..=504) => {
                    // A proxy in front of the cluster speaks, not Proxmox VE.
                    self.failed(at);
                    (lost(call, &answer.reason(), None), false)
                }
                Ok(answer) => {
                    self.worked(at);
                    return Ok(answer);
                }
                Err(Failure::NotSent(cause)) => {
                    self.failed(at);
                    let text = format!("cannot connect to {}", self.list[at].uri);
                    (unreachable(text, Some(Cause::from(cause))), true)
                }
                Err(Failure::Lost(cause)) => {
                    self.failed(at);
                    let text = format!("no answer from {}", self.list[at].uri);
                    (lost(call, &text, Some(Cause::from(cause))), false)
                }
            };
            // What was not sent is safe anywhere else, once; a read is safe everywhere.
            let untried = tried.contains(&0);
            if !(again || elsewhere && untried) || !call.is_repeatable() {
                return Err(error);
            }
            tracing::debug!(%error, attempt, "trying again");
            if !untried {
                tokio::time::sleep(timeouts.pause * attempt).await;
            }
        }
    }

    /// The preferred endpoint while it is well; then the one tried least, healthy before resting, in order.
    fn choose(&self, tried: &[u32]) -> usize {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let rank = |at: usize| {
            let rest = state.health[at].rest_until.filter(|until| *until > now);
            let distance = (at + self.list.len() - state.preferred) % self.list.len();
            (tried[at], rest, distance)
        };
        (0..self.list.len())
            .min_by_key(|at| rank(*at))
            .unwrap_or_default()
    }

    fn worked(&self, at: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.preferred = at;
        let before = std::mem::take(&mut state.health[at]);
        if before.failures > 0 {
            let failures = before.failures;
            tracing::info!(endpoint = %self.list[at].uri, failures, "endpoint answers again");
        }
    }

    fn failed(&self, at: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let health = &mut state.health[at];
        if health.failures == 0 {
            tracing::warn!(endpoint = %self.list[at].uri, "endpoint does not answer");
        }
        health.failures = health.failures.saturating_add(1);
        let rest = Duration::from_secs(2) * 2_u32.pow(health.failures.min(6) - 1);
        health.rest_until = Some(Instant::now() + rest.min(Duration::from_mins(1)));
    }
}

impl Endpoint {
    fn request(&self, call: &mut Call, grant: Option<&Grant>) -> Result<Request<Body>> {
        let fail = |error: http::Error| Error::Request {
            text: error.to_string(),
        };
        let mut uri = format!("{}api2/json{}", self.uri, call.path);
        let mut builder = Request::builder().method(call.method.clone());
        let body = match &mut call.payload {
            Payload::Params(params) if params.is_empty() => boxed(Full::new(Bytes::new())),
            Payload::Params(params)
                if call.method == http::Method::GET || call.method == http::Method::DELETE =>
            {
                uri.push('?');
                uri.push_str(&params.encode());
                boxed(Full::new(Bytes::new()))
            }
            Payload::Params(params) => {
                builder = builder.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
                boxed(Full::new(Bytes::from(params.encode())))
            }
            Payload::Stream {
                content_type,
                length,
                body,
            } => {
                builder = builder
                    .header(header::CONTENT_TYPE, content_type.as_str())
                    .header(header::CONTENT_LENGTH, *length);
                body.take().ok_or_else(|| Error::Request {
                    text: "the stream was sent before".to_owned(),
                })?
            }
        };
        if let Some(key) = &call.upgrade {
            builder = builder
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_PROTOCOL, "binary")
                .header(header::SEC_WEBSOCKET_KEY, key.as_str());
        }
        let mut request = builder
            .uri(uri)
            .header(header::ACCEPT, "application/json")
            .body(body)
            .map_err(fail)?;
        if let Some(grant) = grant {
            grant.sign(&mut request);
        }
        Ok(request)
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Answer, Failure> {
        let mut response = one_shot(self.service.clone(), request)
            .await
            .map_err(|error| {
                if was_not_sent(error.as_ref()) {
                    Failure::NotSent(error)
                } else {
                    Failure::Lost(error)
                }
            })?;
        let phrase = response
            .extensions()
            .get::<hyper::ext::ReasonPhrase>()
            .map(|phrase| String::from_utf8_lossy(phrase.as_bytes()).into_owned());
        let status = response.status().as_u16();
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Answer {
                status,
                body: Bytes::new(),
                phrase,
                upgrade: Some(hyper::upgrade::on(&mut response)),
            });
        }
        let body = whole(response.into_body()).await.map_err(Failure::Lost)?;
        Ok(Answer {
            status,
            body: body.to_bytes(),
            phrase,
            upgrade: None,
        })
    }
}

/// Sends one request. Boxed outside of any async block: inside of one the compiler cannot show that
/// the future is `Send`, and callers want to spawn what waits for it.
fn one_shot(
    service: Service,
    request: Request<Body>,
) -> BoxFuture<'static, Result<Response<Body>, BoxError>> {
    Box::pin(service.oneshot(request))
}

/// Reads a body to its end. Boxed for the same reason.
fn whole(body: Body) -> BoxFuture<'static, Result<Collected<Bytes>, BoxError>> {
    Box::pin(Limited::new(body, MAX_BODY).collect())
}

/// 595 to 599 are the node's own words for "the other node did not answer me".
fn is_forwarding_failure(status: u16) -> bool {
    (595..=599).contains(&status)
}

fn lost(call: &Call, text: &str, cause: Option<Cause>) -> Error {
    if call.is_read() {
        unreachable(text, cause)
    } else {
        Error::OutcomeUnknown {
            text: text.to_owned(),
            cause,
        }
    }
}

/// The error of a call whose deadline passed.
pub(crate) fn late(read: bool, deadline: Duration) -> Error {
    let text = format!("no answer within {deadline:?}");
    if read {
        unreachable(text, None)
    } else {
        Error::OutcomeUnknown { text, cause: None }
    }
}

fn was_not_sent(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<NotSent>() {
            return true;
        }
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>()
            && error.is_connect()
        {
            return true;
        }
        // These come before the first byte is sent, whatever the service is made of.
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && matches!(
                error.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
            )
        {
            return true;
        }
        next = error.source();
    }
    false
}

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.health()).finish()
    }
}

/// Makes any service one of ours.
pub(crate) fn service<S, B>(inner: S) -> Service
where
    S: tower::Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    BoxCloneSyncService::new(
        inner
            .map_response(|response: Response<B>| response.map(boxed))
            .map_err(Into::into),
    )
}
