//! The client: one Proxmox VE cluster, reached over one or several of its nodes.
//!
//! A [`Client`] is cheap to clone and safe to share. It is built on [`tower::Service`]s, one per endpoint, so that in
//! production it speaks TLS through hyper and in a test it calls a simulator in the same process, with no socket.
//!
//! One call goes through these steps:
//!
//! 1. **Authorisation** ([`Credentials`]). A token is a header. A ticket is fetched once, renewed when half of its
//!    life is over, and fetched again (once) after a 401. While credentials are refused the client answers by itself
//!    for a while: each 401 costs the server three seconds.
//! 2. **An endpoint.** The one that worked last, while it works. What was certainly not sent goes to the next one,
//!    reads also when the answer was lost. A lost answer to anything else is [`Error::OutcomeUnknown`].
//! 3. **The answer**, classified ([`Error`]) and decoded.
//!
//! All of it happens within the deadline of the call, in a span, and is counted ([`Metrics`]).

mod auth;
mod builder;
mod call;
mod credentials;
mod endpoint;
mod metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use serde::de::DeserializeOwned;
use tracing::Instrument;

pub use self::builder::{Builder, Timeouts};
pub(crate) use self::call::{Answer, Call, Payload};
pub use self::credentials::Credentials;
pub use self::endpoint::{EndpointHealth, NotSent};
pub use self::metrics::Metrics;
use crate::error::{Error, Result};

/// The bytes a second that an upload is given time for.
const SLOWEST_UPLOAD: u64 = 256 << 10;

/// An error of a service or a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of requests and answers.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A connection to one Proxmox VE cluster.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    deadline: Option<Duration>,
}

struct Shared {
    endpoints: endpoint::Endpoints,
    auth: auth::Auth,
    timeouts: Timeouts,
    metrics: Metrics,
    release: crate::api::version::ReleaseCache,
}

impl Client {
    /// Begins to describe a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same client with another deadline for each of its calls.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self {
            shared: self.shared.clone(),
            deadline: Some(deadline),
        }
    }

    /// Replaces the credentials for all clones of this client.
    ///
    /// Requests under way end with the credentials they began with; should those be refused meanwhile, the request is
    /// repeated with the new ones.
    pub fn set_credentials(&self, credentials: Credentials) {
        self.shared.auth.replace(credentials);
    }

    /// How the endpoints do, in the order they were given.
    pub fn endpoints(&self) -> Vec<EndpointHealth> {
        self.shared.endpoints.health()
    }

    /// How long an upload of so many bytes may take.
    pub(crate) fn upload_deadline(&self, length: u64) -> Duration {
        let timeouts = &self.shared.timeouts;
        let bytes = Duration::from_secs(length / SLOWEST_UPLOAD);
        let usual = || (timeouts.call + bytes).min(timeouts.upload);
        self.deadline.unwrap_or_else(usual)
    }

    pub(crate) fn release_cache(&self) -> &crate::api::version::ReleaseCache {
        &self.shared.release
    }

    /// Does a call and decodes the `data` of its answer.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let name = call.name;
        let answer = self.answer(call).await?;
        answer.decode(name)
    }

    /// Does a call and keeps the answer undecoded; what the server's release lacks is refused by name.
    pub(crate) async fn answer(&self, call: Call) -> Result<Answer> {
        if let Some((what, needs, since)) = crate::api::since::needed(&call) {
            self.require(what, needs, move |release| release >= since)
                .await?;
        }
        self.answer_of_any(call).await
    }

    /// Does a call that every release has.
    pub(crate) async fn answer_of_any(&self, call: Call) -> Result<Answer> {
        let span = tracing::debug_span!(
            "pve",
            call = call.name,
            method = %call.method,
            path = %call.path,
            outcome = tracing::field::Empty,
        );
        let started = tokio::time::Instant::now();
        let name = call.name;
        let deadline = call
            .deadline
            .or(self.deadline)
            .unwrap_or(self.shared.timeouts.call);
        let read = call.is_read();
        let sent = AtomicBool::new(false);
        let result =
            tokio::time::timeout(deadline, self.authorised(call, &sent, started + deadline))
                .instrument(span.clone())
                .await
                .unwrap_or_else(|_| {
                    // What waited for a login to the end has changed nothing.
                    let harmless = read || !sent.load(Ordering::Acquire);
                    Err(endpoint::late(harmless, deadline))
                });
        let outcome = metrics::Outcome::of(result.as_ref().err());
        span.record("outcome", tracing::field::debug(&outcome));
        if let Err(error) = &result {
            span.in_scope(|| tracing::debug!(%error, "call failed"));
        }
        self.shared
            .metrics
            .observe(name, outcome, started.elapsed());
        result
    }

    /// Signs and sends the call; after a 401 signs it anew, once.
    async fn authorised(
        &self,
        mut call: Call,
        sent: &AtomicBool,
        until: tokio::time::Instant,
    ) -> Result<Answer> {
        let shared = &*self.shared;
        let mut second = false;
        loop {
            let session = shared.auth.session();
            sent.store(false, Ordering::Release);
            let grant = session.grant(shared).await?;
            sent.store(true, Ordering::Release);
            let answer = shared
                .endpoints
                .send(&mut call, Some(&grant), &shared.timeouts, until)
                .await?;
            if answer.status != 401 {
                session.accepted();
                return answer.checked();
            }
            let refused = session.refused(&grant, &answer.reason(), second);
            // A streamed body is spent; whoever has the source must send it again.
            if second || !refused || !call.is_repeatable() {
                return answer.checked();
            }
            second = true;
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.endpoints())
            .finish_non_exhaustive()
    }
}

/// Makes any body ours.
pub(crate) fn boxed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    use http_body_util::BodyExt;
    body.map_err(Into::into).boxed_unsync()
}

pub(crate) fn unreachable(text: impl Into<String>, cause: Option<crate::error::Cause>) -> Error {
    Error::Unreachable {
        text: text.into(),
        cause,
    }
}
