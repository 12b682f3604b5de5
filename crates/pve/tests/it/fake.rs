//! A scripted server: sees requests, gives replies.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use pve::{Body, BoxError, Client, Credentials, NotSent};
use serde_json::{Value, json};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) enum Reply {
    Data(Value),
    Failure(u16, String),
    NotSent,
    Lost,
    Hang,
    Late(Duration, Box<Reply>),
}

type Script = dyn Fn(&Seen, usize) -> Reply + Send + Sync;

/// The server. The script gets each request with the count of those before it.
#[derive(Clone)]
pub(crate) struct Fake {
    seen: Arc<Mutex<Vec<Seen>>>,
    script: Arc<Script>,
}

impl Fake {
    pub(crate) fn new(script: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            seen: Arc::default(),
            script: Arc::new(script),
        }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, path: &str) -> usize {
        self.seen().iter().filter(|seen| seen.path == path).count()
    }

    /// A client of this server alone, with a token.
    pub(crate) fn client(&self) -> Client {
        Client::builder()
            .service(self.clone())
            .credentials(token("one"))
            .build()
            .unwrap()
    }
}

pub(crate) fn token(secret: &str) -> Credentials {
    Credentials::token("oxmox@pve!test", secret).unwrap()
}

pub(crate) fn version(release: &str) -> Reply {
    let short: String = release.split('.').take(2).collect::<Vec<_>>().join(".");
    Reply::Data(json!({ "version": release, "release": short, "repoid": "abc" }))
}

impl tower::Service<Request<Body>> for Fake {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let fake = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let seen = Seen {
                method: head.method,
                path: head.uri.path().trim_start_matches("/api2/json").to_owned(),
                query: head.uri.query().unwrap_or_default().to_owned(),
                headers: head.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            };
            let before = {
                let mut all = fake.seen.lock().unwrap();
                all.push(seen.clone());
                all.len() - 1
            };
            play((fake.script)(&seen, before)).await
        })
    }
}

async fn play(mut reply: Reply) -> Result<Response<Full<Bytes>>, BoxError> {
    while let Reply::Late(delay, next) = reply {
        tokio::time::sleep(delay).await;
        reply = *next;
    }
    let (status, body) = match reply {
        Reply::Data(data) => (200, json!({ "data": data })),
        Reply::Failure(status, text) => (
            status,
            json!({ "data": null, "message": format!("{text}\n") }),
        ),
        Reply::NotSent => return Err(Box::new(NotSent("no route".to_owned()))),
        Reply::Lost => return Err("connection closed before message completed".into()),
        Reply::Hang | Reply::Late(..) => std::future::pending().await,
    };
    Ok(Response::builder()
        .status(status)
        .body(Full::from(body.to_string()))
        .unwrap())
}
