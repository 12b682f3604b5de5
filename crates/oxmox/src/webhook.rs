//! The listener that an API server asks: for conversion between versions, and whether an object may be stored.
//!
//! Every replica listens, whoever leads. They share one certificate, kept in a Secret and looked after by [`keeper`]; `oxmox up`,
//! which is alone, makes its own while it runs.

pub(crate) mod certificates;
pub(crate) mod keeper;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::infrastructure::{CONVERT_PATH, admission};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use kube::core::DynamicObject;
use kube::core::admission::AdmissionReview;
use kube::core::conversion::ConversionReview;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::listener;
use certificates::Bundle;

/// The most that is converted at once. A list of a thousand machines comes in one question, and machines of eight kilobytes are
/// large. What is read and answered takes ten times that, of the 256 MiB that a pod of the chart has.
const MOST_TO_CONVERT: usize = 8 << 20;
/// The most that is judged at once: an object of three megabytes, which is all that an API server takes, as it was and as it will be.
const MOST_TO_VALIDATE: usize = 7 << 20;
/// How long a question is worked at, from its first byte on. No API server waits longer for an answer.
const LONGEST: Duration = Duration::from_secs(30);

/// A listening webhook; dropping it stops it.
pub(crate) struct Webhook {
    address: SocketAddr,
    certificate: Arc<Certificate>,
    _stop: DropGuard,
}

/// The certificate to serve with, which may change while it is being served with.
#[derive(Debug, Default)]
pub(crate) struct Certificate(RwLock<Option<Arc<CertifiedKey>>>);

impl Certificate {
    /// Serves with this one from now on.
    pub(crate) fn set(&self, bundle: &Bundle) -> Result<()> {
        let certified = bundle.certified(&rustls::crypto::ring::default_provider())?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
        Ok(())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Webhook {
    /// Listens on `address` (port 0 takes a free one). Nobody is answered before there is a certificate.
    pub(crate) async fn listen(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen for webhooks on {address}"))?;
        let address = listener.local_addr()?;
        let certificate = Arc::new(Certificate::default());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificate.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stop = CancellationToken::new();
        let tls = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(listener::serve(listener, Some(tls), routes(), stop.clone()));
        Ok(Self {
            address,
            certificate,
            _stop: stop.drop_guard(),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate it serves with.
    pub(crate) fn certificate(&self) -> Arc<Certificate> {
        self.certificate.clone()
    }
}

fn routes() -> Router {
    let convert = post(convert).layer(DefaultBodyLimit::max(MOST_TO_CONVERT));
    let validate = post(validate).layer(DefaultBodyLimit::max(MOST_TO_VALIDATE));
    Router::new()
        .route(CONVERT_PATH, convert)
        .route(admission::VALIDATE_PATH, validate)
        .layer(middleware::from_fn(in_time))
}

async fn in_time(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(LONGEST, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

async fn convert(Json(review): Json<ConversionReview>) -> Json<ConversionReview> {
    Json(api::infrastructure::review(review))
}

async fn validate(
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Json<AdmissionReview<DynamicObject>> {
    Json(admission::validate(review))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::http::header::CONTENT_TYPE;
    use futures::stream;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(path: &str, body: Body) -> StatusCode {
        let asked = Request::post(path).header(CONTENT_TYPE, "application/json");
        let answer = routes().oneshot(asked.body(body).unwrap()).await;
        answer.unwrap().status()
    }

    #[tokio::test]
    async fn no_more_is_read_than_there_is_room_for() {
        let paths = [
            (CONVERT_PATH, MOST_TO_CONVERT),
            (admission::VALIDATE_PATH, MOST_TO_VALIDATE),
        ];
        for (path, most) in paths {
            let of = |size: usize| ask(path, Body::from(vec![b' '; size]));
            assert_eq!(of(most + 1).await, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
            assert_eq!(of(most).await, StatusCode::BAD_REQUEST, "{path}: no JSON");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_does_not_end_is_not_waited_for() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let asked = ask(admission::VALIDATE_PATH, body);
        let status = tokio::time::timeout(Duration::from_hours(1), asked).await;
        assert_eq!(status.ok(), Some(StatusCode::REQUEST_TIMEOUT));
    }
}
