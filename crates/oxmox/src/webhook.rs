//! The listener that an API server asks for conversion, with certificates of its own making.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::infrastructure::CONVERT_PATH;
use axum::routing::post;
use axum::{Json, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;
use kube::core::conversion::ConversionReview;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A listening webhook; dropping it stops it.
pub(crate) struct Webhook {
    address: SocketAddr,
    authority: String,
    _stop: DropGuard,
}

impl Webhook {
    /// Listens on `address` (port 0 takes a free one) with a certificate made for this run.
    pub(crate) async fn start(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen for conversion on {address}"))?;
        let address = listener.local_addr()?;
        let (authority, config) = certificate(address)?;
        let acceptor = TlsAcceptor::from(config);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let router = Router::new().route(CONVERT_PATH, post(convert));
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = stopped.cancelled() => return,
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
        });
        Ok(Self {
            address,
            authority,
            _stop: stop.drop_guard(),
        })
    }

    /// Where and how an API server reaches it.
    pub(crate) fn client_config(&self) -> WebhookClientConfig {
        WebhookClientConfig {
            url: Some(format!("https://{}{CONVERT_PATH}", self.address)),
            ca_bundle: Some(ByteString(self.authority.clone().into_bytes())),
            service: None,
        }
    }
}

async fn convert(Json(review): Json<ConversionReview>) -> Json<ConversionReview> {
    Json(api::infrastructure::review(review))
}

/// An authority for this run, as PEM, and a serving certificate it signed.
fn certificate(address: SocketAddr) -> Result<(String, Arc<ServerConfig>)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let serving_key = KeyPair::generate()?;
    let names = vec!["localhost".to_owned(), address.ip().to_string()];
    let serving = CertificateParams::new(names)?.signed_by(&serving_key, &issuer)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(serving_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![serving.der().clone()], private)?;
    Ok((authority, Arc::new(config)))
}
