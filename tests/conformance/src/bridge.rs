//! Our server behind a TLS listener.

use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testbed::http::{Client, Credentials};
use testbed::pki::Authority;

/// Starts our server and returns the administrator's client.
pub(crate) async fn start() -> Client {
    let authority = Authority::new().expect("an authority can be made");
    let identity = authority
        .server(&["127.0.0.1"])
        .expect("a certificate can be made");
    let certs = CertificateDer::pem_slice_iter(identity.cert.as_bytes());
    let certs = certs
        .collect::<Result<Vec<_>, _>>()
        .expect("the certificate is PEM");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("the key is PEM");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows the default versions")
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .expect("the key fits the certificate");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let address = listener.local_addr().expect("a listener has an address");
    tokio::spawn(async move {
        let server = apiserver::InMemory::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            let service = hyper_util::service::TowerToHyperService::new(server.service());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Client::new(
        &format!("https://{address}"),
        authority.cert(),
        &Credentials::Anonymous,
    )
    .expect("the client can be made")
}
