//! A webhook that answers as a case wants and remembers what it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use serde_json::{Value, json};

/// A running webhook.
#[derive(Debug)]
pub struct Hook {
    address: std::net::SocketAddr,
    ca: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    /// Starts a webhook that turns each review into the `response` that `answer` makes of its request.
    pub async fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answer = Arc::new(answer);
        let log = Arc::clone(&asked);
        let service = service_fn(move |request: Request<Incoming>| {
            let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
            async move {
                let body = request
                    .into_body()
                    .collect()
                    .await
                    .map(http_body_util::Collected::to_bytes);
                let review: Value =
                    serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
                let mut response = answer(&review["request"]);
                response["uid"] = review["request"]["uid"].clone();
                log.lock()
                    .expect("nobody panics holding the log")
                    .push(review.clone());
                let said = json!({
                    "apiVersion": review["apiVersion"],
                    "kind": review["kind"],
                    "response": response,
                });
                let said = Full::new(Bytes::from(said.to_string()));
                let mut said = Response::new(said);
                let json = http::HeaderValue::from_static("application/json");
                said.headers_mut().insert(http::header::CONTENT_TYPE, json);
                Ok::<_, Infallible>(said)
            }
        });
        let (address, ca) = crate::tls::serve(service).await;
        Self { address, ca, asked }
    }

    /// The `clientConfig` that leads here.
    pub fn client_config(&self) -> Value {
        json!({"url": format!("https://{}/hook", self.address), "caBundle": STANDARD.encode(&self.ca)})
    }

    /// The reviews received so far that concern an object of this name.
    pub fn asked(&self, name: &str) -> Vec<Value> {
        let asked = self.asked.lock().expect("nobody panics holding the log");
        asked
            .iter()
            .filter(|review| review["request"]["name"] == name)
            .cloned()
            .collect()
    }

    /// Everything received so far.
    pub fn all(&self) -> Vec<Value> {
        self.asked
            .lock()
            .expect("nobody panics holding the log")
            .clone()
    }
}
