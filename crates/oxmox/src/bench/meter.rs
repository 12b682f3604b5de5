//! How long Proxmox VE itself was busy for us.
//!
//! The meter stands before each node. It notes when a changing call is answered and follows every task that was started until
//! the simulator says that it has ended, to the microsecond and without a request. What an operation takes beyond the
//! time in which any of these was under way is our overhead: looking, waiting to notice, deciding.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use pve_sim::{Cluster, Endpoint, Upid};
use tokio::time::Instant;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// When something began, and when it ended.
type Span = (Instant, Option<Instant>);

/// What the meters of a cluster's nodes write to.
#[derive(Clone, Default)]
pub(super) struct Meter {
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Meter {
    /// A node behind this meter.
    pub(super) fn before(&self, cluster: &Cluster, endpoint: Endpoint) -> Metered {
        Metered {
            meter: self.clone(),
            cluster: cluster.clone(),
            endpoint,
        }
    }

    /// The time since `from` in which Proxmox VE was doing something for us.
    pub(super) fn busy_since(&self, from: Instant) -> Duration {
        let now = Instant::now();
        let mut spans: Vec<(Instant, Instant)> = self
            .lock()
            .iter()
            .map(|(start, end)| (*start, end.unwrap_or(now)))
            .filter(|(_, end)| *end > from)
            .collect();
        spans.sort();
        let (mut busy, mut reached) = (Duration::ZERO, from);
        for (start, end) in spans {
            busy += end.saturating_duration_since(start.max(reached));
            reached = reached.max(end);
        }
        busy
    }

    /// Forgets what was.
    pub(super) fn reset(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn began(&self) -> usize {
        let mut spans = self.lock();
        spans.push((Instant::now(), None));
        spans.len() - 1
    }

    fn ended(&self, number: usize) {
        if let Some(span) = self.lock().get_mut(number) {
            span.1 = Some(Instant::now());
        }
    }
}

/// A node behind a meter.
#[derive(Clone)]
pub(super) struct Metered {
    meter: Meter,
    cluster: Cluster,
    endpoint: Endpoint,
}

impl<B> tower::Service<Request<B>> for Metered
where
    Endpoint: tower::Service<Request<B>, Response = Response<Full<Bytes>>>,
    <Endpoint as tower::Service<Request<B>>>::Error: Into<BoxError>,
    <Endpoint as tower::Service<Request<B>>>::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let changes = request.method() != Method::GET && !request.uri().path().contains("/access/");
        let (meter, cluster) = (self.meter.clone(), self.cluster.clone());
        let span = changes.then(|| meter.began());
        let answer = tower::Service::call(&mut self.endpoint, request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into);
            let Some(span) = span else { return answer };
            meter.ended(span);
            let (head, body) = answer?.into_parts();
            let body = body.collect().await?.to_bytes();
            if let Some(upid) = started(&body) {
                let task = meter.began();
                tokio::spawn(async move {
                    cluster.wait_task(&upid).await;
                    meter.ended(task);
                });
            }
            Ok(Response::from_parts(head, Full::new(body)))
        })
    }
}

/// The task that an answer names.
fn started(body: &[u8]) -> Option<Upid> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    answer.get("data")?.as_str()?.parse().ok()
}
