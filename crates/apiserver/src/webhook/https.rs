//! The transport over sockets: TLS verified by the route's authority, connections kept for the next call.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use rustls::{
    CertificateError, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tower::BoxError;

use super::{Route, Transport};

/// The largest answer that is read.
const ANSWER_LIMIT: usize = 16 << 20;
/// So many webhooks keep their connections; beyond that all begin anew.
const CLIENTS: usize = 64;

type Https = Client<HttpsConnector<Dial>, Full<Bytes>>;
/// Connections may be shared by webhooks of the same authority behind the same address.
type Clients = Arc<Mutex<BTreeMap<(Option<Bytes>, Option<String>), Https>>>;

/// A transport over sockets.
pub fn https() -> Transport {
    let clients = Clients::default();
    Transport::new(tower::service_fn(move |mut request: Request<Bytes>| {
        let route = request
            .extensions_mut()
            .remove::<Route>()
            .unwrap_or_default();
        let clients = Arc::clone(&clients);
        async move {
            let address = route.address.transpose()?;
            let client = client(&clients, route.authority, address)?;
            let response = client.request(request.map(Full::new)).await;
            let response = response.map_err(|error| told(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_LIMIT).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        }
    }))
}

fn client(
    clients: &Clients,
    authority: Option<Bytes>,
    address: Option<String>,
) -> Result<Https, BoxError> {
    let key = (authority, address);
    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = clients.get(&key) {
        return Ok(client.clone());
    }
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls(key.0.as_deref())?)
        .https_only()
        .enable_all_versions()
        .wrap_connector(Dial {
            to: key.1.clone().map(Arc::from),
        });
    let client: Https = Client::builder(TokioExecutor::new()).build(connector);
    if clients.len() >= CLIENTS {
        clients.clear();
    }
    clients.insert(key, client.clone());
    Ok(client)
}

fn tls(authority: Option<&[u8]>) -> Result<ClientConfig, BoxError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let Some(pem) = authority else {
        return Ok(builder.with_native_roots()?.with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate =
            certificate.map_err(|e| format!("unable to load root certificates: {e}"))?;
        roots
            .add(certificate)
            .map_err(|e| format!("unable to load root certificates: {e}"))?;
    }
    if roots.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".into());
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Connects to a fixed address, or to the one that the URI names.
#[derive(Clone)]
struct Dial {
    to: Option<Arc<str>>,
}

impl tower::Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let address = if let Some(address) = &self.to {
            address.to_string()
        } else {
            let host = uri.host().unwrap_or_default();
            format!("{host}:{}", uri.port_u16().unwrap_or(443))
        };
        Box::pin(async move {
            let stream = TcpStream::connect(&address).await.map_err(|error| {
                let why = match error.kind() {
                    io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                    io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
                    _ => error.to_string(),
                };
                io::Error::new(error.kind(), format!("dial tcp {address}: {why}"))
            })?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// The innermost reason of a failed call, certificates in Go's words.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut at = error;
    loop {
        if let Some(rustls::Error::InvalidCertificate(why)) = at.downcast_ref() {
            return format!(
                "tls: failed to verify certificate: x509: {}",
                certificate(why)
            );
        }
        // An I/O error that wraps another shows it but does not name it as its source.
        let inner = at
            .downcast_ref::<io::Error>()
            .and_then(|error| error.get_ref())
            .map(|inner| inner as &(dyn std::error::Error + 'static));
        match inner.or_else(|| at.source()) {
            Some(source) => at = source,
            None => return at.to_string(),
        }
    }
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "certificate is valid for {}, not {}",
            presented.join(", "),
            expected.to_str()
        ),
        other => other.to_string(),
    }
}
