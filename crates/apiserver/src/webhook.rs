//! Calling webhooks: somebody else's HTTPS server is asked before an object is written or shown.
//!
//! A webhook is named by a `clientConfig`: a URL, or a `Service` of the cluster, and perhaps the
//! authority its certificate must come from. The server turns that into one [`Request`](http::Request)
//! with a [`Route`] beside it and hands both to a [`Transport`]. The transport that `oxmox up` uses is
//! [`https`], over sockets. Tests hand in another, so that webhooks are answered in process and on a
//! paused clock:
//!
//! ```no_run
//! # async fn example() {
//! use apiserver::{Clock, InMemory, webhook};
//!
//! let answer = tower::service_fn(|request: http::Request<bytes::Bytes>| async move {
//!     // ... read the review in the body, make the answer ...
//!     Ok::<_, tower::BoxError>(http::Response::new(request.into_body()))
//! });
//! let server = InMemory::with_webhooks(Clock::system(), 0, webhook::Transport::new(answer));
//! # }
//! ```
//!
//! What goes wrong is told in kube-apiserver's words, which people search for.

mod https;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use serde_json::Value;
use tower::{Service as _, ServiceExt as _};

pub use self::https::https;
use crate::{golang, registry::text};

/// Carries requests to webhooks.
pub type Transport =
    tower::util::BoxCloneSyncService<Request<Bytes>, Response<Bytes>, tower::BoxError>;

/// How a request gets to its webhook; an extension of the request.
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// The authorities to trust, PEM; the machine's own when absent.
    pub authority: Option<Bytes>,
    /// For a webhook behind a `Service`, the `host:port` that serves it, or why there is none.
    pub address: Option<Result<String, String>>,
}

/// Why a webhook gave no usable answer, in kube-apiserver's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(pub(crate) String);

/// Where a webhook is, read from its `clientConfig`.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    url: String,
    authority: Option<Bytes>,
    /// Namespace, name and port of the service.
    pub(crate) service: Option<(String, String, u16)>,
}

impl Place {
    /// Reads a `clientConfig`.
    pub(crate) fn read(config: &Value) -> Result<Self, Error> {
        let authority = match text(config, "caBundle") {
            "" => None,
            bundle => {
                let pem = STANDARD
                    .decode(bundle)
                    .map_err(|e| Error(format!("unable to load root certificates: {e}")))?;
                Some(Bytes::from(pem))
            }
        };
        let service = &config["service"];
        if service.is_object() {
            let (namespace, name) = (text(service, "namespace"), text(service, "name"));
            let port = service["port"]
                .as_u64()
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(443);
            let path = text(service, "path").trim_start_matches('/');
            return Ok(Self {
                url: format!("https://{name}.{namespace}.svc:{port}/{path}"),
                authority,
                service: Some((namespace.to_owned(), name.to_owned(), port)),
            });
        }
        Ok(Self {
            url: text(config, "url").to_owned(),
            authority,
            service: None,
        })
    }
}

/// Sends a review and returns the answer's JSON; `address` is where the place's service is served.
pub(crate) async fn post(
    transport: &Transport,
    place: &Place,
    address: Option<Result<String, String>>,
    review: &Value,
    timeout: Duration,
) -> Result<Value, Error> {
    let separator = if place.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}timeout={}s", place.url, timeout.as_secs());
    let failed =
        |why: &dyn std::fmt::Display| Error(format!("Post {}: {why}", golang::quote(&url)));
    let route = Route {
        authority: place.authority.clone(),
        address,
    };
    let request = Request::builder()
        .method(Method::POST)
        .uri(&url)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .extension(route)
        .body(Bytes::from(review.to_string()))
        .map_err(|e| failed(&e))?;
    let mut transport = transport.clone();
    let sent = async {
        let ready = transport.ready().await?;
        ready.call(request).await
    };
    let response = match tokio::time::timeout(timeout, sent).await {
        Ok(sent) => sent.map_err(|e| failed(&e))?,
        Err(_) => return Err(failed(&"context deadline exceeded")),
    };
    let status = response.status();
    let body = response.into_body();
    if !status.is_success() {
        return Err(Error(refusal(status, &body)));
    }
    let answer: Value = serde_json::from_slice(&body)
        .map_err(|e| Error(format!("couldn't get version/kind; json parse error: {e}")))?;
    if text(&answer, "kind").is_empty() {
        return Err(Error("Object 'Kind' is missing in the answer".to_owned()));
    }
    Ok(answer)
}

/// What Kubernetes' clients say of an answer that is no success.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    if let Ok(told) = serde_json::from_slice::<Value>(body)
        && told["kind"] == "Status"
        && !text(&told, "message").is_empty()
    {
        return text(&told, "message").to_owned();
    }
    let said = String::from_utf8_lossy(body);
    let said = said.trim();
    match status.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => said.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        415 => "the server was unable to respond with a content type that the client supports"
            .to_owned(),
        429 => "the server has received too many requests and has asked us to try again later"
            .to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the request".to_owned(),
        code if code >= 500 => format!(
            "an error on the server ({}) has prevented the request from succeeding",
            golang::quote(if said.is_empty() { "unknown" } else { said })
        ),
        _ => "the server responded with the status code but did not return more information"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answering(
        answer: impl Fn(Request<Bytes>) -> Result<Response<Bytes>, tower::BoxError>
        + Clone
        + Send
        + Sync
        + 'static,
    ) -> Transport {
        Transport::new(tower::service_fn(move |request| {
            let answer = answer(request);
            async move { answer }
        }))
    }

    fn place() -> Place {
        Place::read(&json!({"url": "https://hook.test/x"})).unwrap()
    }

    async fn ask(transport: &Transport) -> Result<Value, Error> {
        let review = json!({});
        post(transport, &place(), None, &review, Duration::from_secs(3)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_that_says_nothing_is_given_up_after_its_timeout() {
        let silent = Transport::new(tower::service_fn(|_: Request<Bytes>| {
            std::future::pending::<Result<Response<Bytes>, tower::BoxError>>()
        }));
        assert_eq!(
            ask(&silent).await.unwrap_err().0,
            "Post \"https://hook.test/x?timeout=3s\": context deadline exceeded"
        );
    }

    #[tokio::test]
    async fn a_refusal_is_worded_as_kubernetes_clients_word_it() {
        let broken = answering(|_| {
            let mut response = Response::new(Bytes::from_static(b"oops\n"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            Ok(response)
        });
        assert_eq!(
            ask(&broken).await.unwrap_err().0,
            "an error on the server (\"oops\") has prevented the request from succeeding"
        );
    }

    #[test]
    fn a_service_has_a_name_in_the_cluster() {
        let config =
            json!({"service": {"namespace": "n", "name": "s", "path": "/p"}, "caBundle": ""});
        let place = Place::read(&config).unwrap();
        assert_eq!(place.url, "https://s.n.svc:443/p");
        assert_eq!(place.service, Some(("n".into(), "s".into(), 443)));
    }
}
