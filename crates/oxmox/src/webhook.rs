//! The listener that an API server asks: for conversion between versions, and whether an object may be stored.
//!
//! Every replica listens, whoever leads. They share one certificate, kept in a Secret and looked after by [`keeper`]; `oxmox up`,
//! which is alone, makes its own while it runs.

pub(crate) mod certificates;
pub(crate) mod keeper;

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context as _, Result};
use api::infrastructure::{CONVERT_PATH, admission};
use axum::routing::post;
use axum::{Json, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use kube::core::DynamicObject;
use kube::core::admission::AdmissionReview;
use kube::core::conversion::ConversionReview;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use certificates::Bundle;

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
        tokio::spawn(serve(
            listener,
            TlsAcceptor::from(Arc::new(config)),
            stop.clone(),
        ));
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

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, stop: CancellationToken) {
    let router = routes();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = TowerToHyperService::new(router);
            // A caller that goes away in the middle has lost interest in the answer.
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn routes() -> Router {
    Router::new()
        .route(CONVERT_PATH, post(convert))
        .route(admission::VALIDATE_PATH, post(validate))
        // A list of a thousand machines is converted in one request.
        .layer(axum::extract::DefaultBodyLimit::max(256 << 20))
}

async fn convert(Json(review): Json<ConversionReview>) -> Json<ConversionReview> {
    Json(api::infrastructure::review(review))
}

async fn validate(
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Json<AdmissionReview<DynamicObject>> {
    Json(admission::validate(review))
}
