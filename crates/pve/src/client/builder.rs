//! Describes a client.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};

use super::auth::Auth;
use super::credentials::Credentials;
use super::endpoint::{Endpoints, Service, service};
use super::{Body, BoxError, Client, Metrics, Shared};
use crate::error::{Error, Result};
use crate::tls::Trust;

/// How long the client waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// For a whole call, with all that is repeated. Nodes wait 30 seconds for one another, so this should be longer.
    pub call: Duration,
    /// For one attempt of a read that has another attempt left.
    pub read_attempt: Duration,
    /// How often a read is tried before it fails.
    pub read_attempts: u32,
    /// The pause before a read is tried again at an endpoint that just failed; grows with each attempt.
    pub pause: Duration,
    /// For the largest upload as a whole; a small one has the time of a call and that of its bytes.
    pub upload: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            call: Duration::from_secs(45),
            read_attempt: Duration::from_secs(15),
            read_attempts: 3,
            pause: Duration::from_millis(250),
            upload: Duration::from_hours(1),
        }
    }
}

/// Describes a [`Client`].
#[derive(Default)]
pub struct Builder {
    endpoints: Vec<(Uri, Option<Service>)>,
    credentials: Option<Credentials>,
    trust: Trust,
    timeouts: Timeouts,
    metrics: Option<Metrics>,
    wrong: Option<Error>,
}

impl Builder {
    /// Adds an endpoint: `pve1`, `pve1:8006` or `https://pve1.example.com:8006`.
    ///
    /// A bare host means port 8006; a URL without a port means the port of its scheme, as URLs do.
    #[must_use]
    pub fn endpoint(mut self, address: impl AsRef<str>) -> Self {
        match parse(address.as_ref()) {
            Ok(uri) => self.endpoints.push((uri, None)),
            Err(error) => self.wrong = self.wrong.or(Some(error)),
        }
        self
    }

    /// Sends what goes to the endpoint added last through this service instead of the network.
    ///
    /// Without any endpoint one is added. Any tower service will do, such as an axum router.
    #[must_use]
    pub fn service<S, B>(mut self, inner: S) -> Self
    where
        S: tower::Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if self.endpoints.is_empty() {
            self = self.endpoint("https://pve.invalid:8006");
        }
        if let Some((_, slot)) = self.endpoints.last_mut() {
            *slot = Some(service(inner));
        }
        self
    }

    /// Says who asks.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Says which certificates to believe; the system's roots unless told.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Changes how long to wait.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Counts the calls here.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Makes the client; nothing is sent yet.
    pub fn build(self) -> Result<Client> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        let refuse = |text: &str| {
            Err(Error::Request {
                text: text.to_owned(),
            })
        };
        if self.endpoints.is_empty() {
            return refuse("no endpoint is given");
        }
        let Some(credentials) = self.credentials else {
            return refuse("no credentials are given");
        };
        let network = if self.endpoints.iter().any(|(_, service)| service.is_none()) {
            Some(service(crate::tls::connect(
                &self.trust,
                self.timeouts.connect,
            )?))
        } else {
            None
        };
        let endpoints = self
            .endpoints
            .into_iter()
            .filter_map(|(uri, own)| {
                own.or_else(|| network.clone())
                    .map(|service| (uri, service))
            })
            .collect();
        Ok(Client {
            shared: std::sync::Arc::new(Shared {
                endpoints: Endpoints::new(endpoints),
                auth: Auth::new(credentials),
                timeouts: self.timeouts,
                metrics: self.metrics.unwrap_or_default(),
                release: crate::api::version::ReleaseCache::default(),
            }),
            deadline: None,
        })
    }
}

/// Completes an address to scheme, host and port.
fn parse(address: &str) -> Result<Uri> {
    if address.contains('@') {
        // Not repeated, since what stands before the '@' is a secret.
        return Err(Error::Request {
            text: "endpoint must not carry credentials".to_owned(),
        });
    }
    let refuse = |why: &str| Error::Request {
        text: format!("endpoint '{address}' {why}"),
    };
    let text = address.trim().trim_end_matches('/');
    let text = text.strip_suffix("/api2/json").unwrap_or(text);
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let uri: Uri = with_scheme
        .parse()
        .map_err(|_| refuse("is not an address"))?;
    let scheme = uri.scheme_str().unwrap_or("https");
    if !matches!(scheme, "https" | "http") {
        return Err(refuse("must begin with https:// or http://"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(refuse("must not have a path"));
    }
    let authority = uri.authority().ok_or_else(|| refuse("has no host"))?;
    let port = authority
        .port_u16()
        .unwrap_or(match (text.contains("://"), scheme) {
            (false, _) => 8006,
            (true, "http") => 80,
            (true, _) => 443,
        });
    format!("{scheme}://{}:{port}/", authority.host())
        .parse()
        .map_err(|_| refuse("is not an address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_completed() {
        for (given, full) in [
            ("pve1", "https://pve1:8006/"),
            ("pve1:443", "https://pve1:443/"),
            (
                "https://pve1.example.com:8006/",
                "https://pve1.example.com:8006/",
            ),
            ("https://10.0.0.1:8006/api2/json", "https://10.0.0.1:8006/"),
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000/"),
            ("https://pve.example.com", "https://pve.example.com:443/"),
            ("[::1]:8006", "https://[::1]:8006/"),
        ] {
            assert_eq!(parse(given).unwrap().to_string(), full);
        }
        for wrong in [
            "",
            "ftp://pve1",
            "https://root:x@pve1",
            "https://pve1/some/where",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
