//! A TLS listener on loopback, for servers that live inside of a test.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testbed::pki::Authority;

/// Serves `service` on a free port under an authority of its own, until the runtime ends.
///
/// Returns the address and the authority's certificate.
pub(crate) async fn serve<S, B>(service: S) -> (SocketAddr, String)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
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
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, service) = (acceptor.clone(), service.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                // A client that goes away is its own affair.
                let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    (address, authority.cert().to_owned())
}
