//! Serves an endpoint on a socket, with TLS as PVE does or without.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Endpoint, Lost, websocket};

/// Why a listener could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The certificate was refused by the TLS library.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The address could not be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A certificate made for the simulation, and its key.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    fingerprint: String,
    certificate: CertificateDer<'static>,
}

impl Tls {
    /// Makes a self-signed certificate for `names` (host names or addresses).
    pub fn self_signed(names: &[String]) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Simulated Proxmox VE");
        let certificate = params.self_signed(&key)?;
        let der = certificate.der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|text| rustls::Error::General(text.to_owned()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![der.clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let hash = Sha256::digest(&der);
        let fingerprint = hash
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect::<Vec<_>>();
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            fingerprint: fingerprint.join(":"),
            certificate: der,
        })
    }

    /// The SHA-256 fingerprint of the certificate, as PVE shows it.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The certificate in DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }
}

/// A listening server; dropping it stops listening and closes its connections.
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
}

impl Server {
    /// Serves `endpoint` on `address` (port 0 chooses one), with TLS if given.
    pub async fn start(
        endpoint: Endpoint,
        address: SocketAddr,
        tls: Option<Tls>,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let stop = CancellationToken::new();
        let tracker = endpoint.cluster().tracker().clone();
        let stopped = stop.clone();
        tracker.clone().spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = stopped.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                let Ok((stream, _)) = accepted else { continue };
                let endpoint = endpoint.clone();
                let tls = tls.clone();
                let stopped = stopped.clone();
                tracker.spawn(async move {
                    tokio::select! {
                        () = stopped.cancelled() => {}
                        () = connection(stream, endpoint, tls) => {}
                    }
                });
            }
        });
        Ok(Self {
            address: bound,
            stop,
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn connection(stream: TcpStream, endpoint: Endpoint, tls: Option<Tls>) {
    // A small answer must not wait for an acknowledgement of the one before.
    let _ = stream.set_nodelay(true);
    match tls {
        None => serve(stream, endpoint).await,
        Some(tls) => match tls.acceptor.accept(stream).await {
            Ok(stream) => serve(stream, endpoint).await,
            Err(error) => tracing::debug!(%error, "TLS handshake failed"),
        },
    }
}

async fn serve<S>(stream: S, endpoint: Endpoint)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request| {
        let endpoint = endpoint.clone();
        async move {
            let wish = websocket::wish(&mut request);
            let answer = endpoint.answer(request).await?;
            Ok::<_, Lost>(websocket::upgrade(
                answer,
                wish,
                endpoint.cluster().tracker(),
            ))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().title_case_headers(true);
    // A lost answer ends the connection with an error, which is what the fault wants.
    let _ = builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
}
