//! A small client for tests: one caller, JSON in and out, in process.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use pve_sim::{Endpoint, Lost, Simulator};
use serde_json::Value;
use tower::Service as _;

/// An answer as a test wants to see it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    /// The data of an answer that must have gone well.
    #[track_caller]
    pub(crate) fn data(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.body["data"].clone()
    }

    /// The message of a failure, without its newline.
    pub(crate) fn message(&self) -> String {
        self.body["message"]
            .as_str()
            .unwrap_or(&self.reason)
            .trim_end()
            .to_owned()
    }

    /// The text about one parameter.
    pub(crate) fn error(&self, name: &str) -> String {
        self.body["errors"][name]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

/// A caller of one node's API.
#[derive(Clone)]
pub(crate) struct Client {
    endpoint: Endpoint,
    headers: Vec<(String, String)>,
}

impl Client {
    /// Nobody.
    pub(crate) fn stranger(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            headers: Vec::new(),
        }
    }

    /// `root@pam` with a ticket, on the first node of the first cluster.
    pub(crate) async fn root(simulator: &Simulator) -> Self {
        let cluster = simulator
            .clusters()
            .next()
            .expect("a simulation has a cluster");
        Self::login(cluster.endpoint("pve1"), "root@pam", "oxmox").await
    }

    /// A user with a ticket.
    pub(crate) async fn login(endpoint: Endpoint, user: &str, password: &str) -> Self {
        let mut client = Self::stranger(endpoint);
        let data = client
            .post(
                "/access/ticket",
                &[("username", user), ("password", password)],
            )
            .await
            .data();
        let text = |name: &str| data[name].as_str().expect("a login has it").to_owned();
        client
            .headers
            .push(("Cookie".into(), format!("PVEAuthCookie={}", text("ticket"))));
        client
            .headers
            .push(("CSRFPreventionToken".into(), text("CSRFPreventionToken")));
        client
    }

    /// An API token, `user@realm!name=secret`.
    pub(crate) fn token(endpoint: Endpoint, token: &str) -> Self {
        Self::stranger(endpoint).with("Authorization", &format!("PVEAPIToken={token}"))
    }

    /// The same caller with one header more.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same caller without a header.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    /// The same caller at another node.
    pub(crate) fn at(mut self, node: &str) -> Self {
        self.endpoint = self.endpoint.cluster().endpoint(node);
        self
    }

    /// Sends one request as it is.
    pub(crate) async fn send(
        &self,
        method: Method,
        uri: &str,
        content_type: Option<&str>,
        body: String,
    ) -> Result<Answer, Lost> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(kind) = content_type {
            request = request.header("Content-Type", kind);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .expect("a request of a test");
        let response = self.endpoint.clone().call(request).await?;
        let status = response.status().as_u16();
        let reason = response
            .extensions()
            .get::<hyper::ext::ReasonPhrase>()
            .map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned())
            .unwrap_or_default();
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("bodies are whole")
            .to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer {
            status,
            reason,
            body,
            text,
        })
    }

    /// A call that may lose its answer.
    pub(crate) async fn try_call(
        &self,
        method: Method,
        path: &str,
        params: &[(&str, &str)],
    ) -> Result<Answer, Lost> {
        let form = form(params);
        let in_query = method == Method::GET || method == Method::DELETE;
        let (uri, body) = if in_query && !form.is_empty() {
            (format!("/api2/json{path}?{form}"), String::new())
        } else if in_query {
            (format!("/api2/json{path}"), String::new())
        } else {
            (format!("/api2/json{path}"), form)
        };
        self.send(method, &uri, None, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.try_call(Method::GET, path, &[])
            .await
            .expect("there is an answer")
    }

    pub(crate) async fn query(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        self.try_call(Method::GET, path, params)
            .await
            .expect("there is an answer")
    }

    pub(crate) async fn post(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        self.try_call(Method::POST, path, params)
            .await
            .expect("there is an answer")
    }

    pub(crate) async fn put(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        self.try_call(Method::PUT, path, params)
            .await
            .expect("there is an answer")
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.try_call(Method::DELETE, path, &[])
            .await
            .expect("there is an answer")
    }

    /// Waits for the task of an answer; returns its exit text.
    pub(crate) async fn exit_of(&self, answer: &Answer) -> String {
        let upid = answer
            .data()
            .as_str()
            .expect("the call started a task")
            .to_owned();
        let node = upid
            .split(':')
            .nth(1)
            .expect("a UPID names its node")
            .to_owned();
        loop {
            let status = self
                .get(&format!("/nodes/{node}/tasks/{upid}/status"))
                .await
                .data();
            if status["status"] == "stopped" {
                return status["exitstatus"].as_str().unwrap_or_default().to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }
}

fn form(params: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        text.bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                    char::from(byte).to_string()
                }
                other => format!("%{other:02X}"),
            })
            .collect()
    };
    let pairs: Vec<_> = params
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect();
    pairs.join("&")
}
