//! A plain HTTPS client for one API server: no retries, no typed objects, nothing hidden.
//!
//! The suites compare what servers say, so they must see it unprocessed.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::pki::Identity;

/// A request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Certificates or keys cannot be used.
    #[error("cannot use the credentials")]
    Credentials(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request is not one HTTP can carry.
    #[error("cannot form the request")]
    Request(#[from] http::Error),
    /// Nobody answered.
    #[error("no answer from the server")]
    Connection(#[from] legacy::Error),
    /// The answer broke off.
    #[error("the answer broke off")]
    Body(#[from] hyper::Error),
}

/// What a client shows to prove who it is.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Nothing.
    Anonymous,
    /// A client certificate.
    Certificate(Identity),
    /// A bearer token.
    Token(String),
}

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    base: String,
    ca: String,
    token: Option<String>,
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: http::HeaderMap,
    /// The body, unparsed.
    pub body: Bytes,
}

impl Client {
    /// A client of the server at `base` (`https://…`), trusting the authority `ca`.
    pub fn new(base: &str, ca: &str, credentials: &Credentials) -> Result<Self, Error> {
        let wrong = |error| Error::Credentials(Box::new(error));
        let mut roots = rustls::RootCertStore::empty();
        for cert in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            roots
                .add(cert.map_err(|error| Error::Credentials(Box::new(error)))?)
                .map_err(|error| Error::Credentials(Box::new(error)))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Credentials(Box::new(error)))?
            .with_root_certificates(roots);
        let mut token = None;
        let config = match credentials {
            Credentials::Certificate(identity) => {
                let certs = CertificateDer::pem_slice_iter(identity.cert.as_bytes())
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(wrong)?;
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(wrong)?;
                builder
                    .with_client_auth_cert(certs, key)
                    .map_err(|error| Error::Credentials(Box::new(error)))?
            }
            Credentials::Token(bearer) => {
                token = Some(bearer.clone());
                builder.with_no_client_auth()
            }
            Credentials::Anonymous => builder.with_no_client_auth(),
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // Otherwise a small request may wait forty milliseconds for the answer to the one before.
        tcp.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .enable_all_versions()
            .wrap_connector(tcp);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        // kube-apiserver closes the connection behind each answer to somebody it does not know, against floods; a request
        // that is sent in that moment is lost, and waited for in vain. So only those who are known keep their connection.
        if !matches!(credentials, Credentials::Certificate(_)) {
            builder.pool_max_idle_per_host(0);
        }
        let inner = builder.build(connector);
        Ok(Self {
            base: base.trim_end_matches('/').into(),
            ca: ca.into(),
            token,
            inner,
        })
    }

    /// A client of the same server for somebody else.
    pub fn with(&self, credentials: &Credentials) -> Result<Self, Error> {
        Self::new(&self.base, &self.ca, credentials)
    }

    /// The server's base URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The certificate of the authority that the client trusts.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// Sends a request and returns once the answer's head is there; for watches.
    pub async fn open(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<http::Response<Incoming>, Error> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        Ok(self.inner.request(request.body(Full::new(body))?).await?)
    }

    /// Sends a request and collects the answer.
    pub async fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, Error> {
        let response = self.open(method, path, headers, body).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }
}
