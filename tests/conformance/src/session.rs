//! A conversation with one server, written down.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use testbed::http::{Answer, Client, Credentials};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::mask;
use crate::watch::Watch;

/// How long an effect that a server brings about later may take.
const PATIENCE: Duration = Duration::from_mins(6);

/// Who we say we are; servers name the manager of fields after it.
const USER_AGENT: &str = "conformance/1.0";

/// One thing a server said.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What was asked, in the case's words.
    pub label: String,
    /// What was said, masked.
    pub said: Value,
}

/// One answer, unmasked, for a case to go on with.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body, null when it is not JSON.
    pub body: Value,
}

impl Reply {
    /// The object's resource version.
    pub fn version(&self) -> &str {
        self.body["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
    }

    /// The object's uid.
    pub fn uid(&self) -> &str {
        self.body["metadata"]["uid"].as_str().unwrap_or_default()
    }
}

/// A conversation with one server.
#[derive(Debug)]
pub struct Session {
    client: Client,
    namespace: String,
    steps: Mutex<Vec<Step>>,
}

impl Session {
    pub(crate) fn new(client: Client, namespace: String) -> Self {
        Self {
            client,
            namespace,
            steps: Mutex::default(),
        }
    }

    pub(crate) fn into_steps(self) -> Vec<Step> {
        self.steps.into_inner()
    }

    pub(crate) async fn create_namespace(&self) {
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        self.post("create the namespace", "/api/v1/namespaces", &body)
            .await;
        // What controllers put into a namespace is there before the case begins, or it would be told
        // in any order.
        for path in [self.core("serviceaccounts/default"), self.cm(mask::ROOT_CA)] {
            let start = Instant::now();
            while self.raw(Method::GET, &path, &[], "").await.status != 200
                && start.elapsed() < PATIENCE
            {
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Lets the namespace go; nobody waits for it.
    pub(crate) async fn delete_namespace(&self) {
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        self.raw(Method::DELETE, &path, &[], "").await;
    }

    /// The namespace that belongs to this case alone, also a fit name for its cluster-wide objects.
    pub fn ns(&self) -> &str {
        &self.namespace
    }

    /// The path of a namespaced collection of the core group in the case's namespace.
    pub fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.namespace)
    }

    /// The path of a namespaced collection of `group` (`apps/v1`) in the case's namespace.
    pub fn group(&self, group: &str, plural: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{plural}", self.namespace)
    }

    /// The path of the config maps.
    pub fn cms(&self) -> String {
        self.core("configmaps")
    }

    /// The path of one config map, perhaps with a query.
    pub fn cm(&self, name: &str) -> String {
        self.core(&format!("configmaps/{name}"))
    }

    /// The underlying client, for cases that need another.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A session of somebody else with the same server; [`Session::join`] adds what it heard.
    #[must_use]
    pub fn with(&self, credentials: &Credentials) -> Self {
        let client = self
            .client
            .with(credentials)
            .expect("the credentials are well formed");
        Self::new(client, self.namespace.clone())
    }

    /// Takes over what another session heard.
    pub async fn join(&self, other: Self) {
        self.steps.lock().await.extend(other.into_steps());
    }

    /// Writes down a fact that the case found out by itself.
    pub async fn note(&self, label: &str, mut said: Value) {
        mask::value(&mut said);
        self.steps.lock().await.push(Step {
            label: label.into(),
            said,
        });
    }

    /// Sends any request and writes down the answer.
    pub async fn send(
        &self,
        label: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let answer = self.raw(method, path, headers, body).await;
        let (reply, said) = read(&answer);
        self.note(label, said).await;
        reply
    }

    /// Sends any request and writes nothing down.
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut all = vec![("user-agent", USER_AGENT)];
        if !headers.iter().any(|(name, _)| *name == "accept") {
            all.push(("accept", "application/json"));
        }
        all.extend_from_slice(headers);
        let sent = self
            .client
            .send(&method, path, &all, Bytes::copy_from_slice(body.as_bytes()));
        match tokio::time::timeout(PATIENCE, sent).await {
            Ok(answer) => answer.expect("the server answers"),
            Err(_) => Answer {
                status: http::StatusCode::REQUEST_TIMEOUT,
                headers: http::HeaderMap::new(),
                body: Bytes::from_static(b"no answer"),
            },
        }
    }

    /// Gets an object or a collection.
    pub async fn get(&self, label: &str, path: &str) -> Reply {
        self.send(label, Method::GET, path, &[], "").await
    }

    /// Gets it as the table that kubectl prints.
    pub async fn table(&self, label: &str, path: &str) -> Reply {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        self.send(label, Method::GET, path, &[("accept", accept)], "")
            .await
    }

    /// Creates an object.
    pub async fn post(&self, label: &str, path: &str, body: &Value) -> Reply {
        let json = ("content-type", "application/json");
        self.send(label, Method::POST, path, &[json], &body.to_string())
            .await
    }

    /// Replaces an object.
    pub async fn put(&self, label: &str, path: &str, body: &Value) -> Reply {
        let json = ("content-type", "application/json");
        self.send(label, Method::PUT, path, &[json], &body.to_string())
            .await
    }

    /// Deletes an object or a collection.
    pub async fn delete(&self, label: &str, path: &str) -> Reply {
        self.send(label, Method::DELETE, path, &[], "").await
    }

    /// Deletes with options.
    pub async fn delete_with(&self, label: &str, path: &str, options: &Value) -> Reply {
        let json = ("content-type", "application/json");
        self.send(label, Method::DELETE, path, &[json], &options.to_string())
            .await
    }

    /// Sends a patch of the given type (`merge`, `json`, `strategic-merge`, `apply`).
    pub async fn patch(&self, label: &str, kind: &str, path: &str, body: &Value) -> Reply {
        let content = match kind {
            "apply" => "application/apply-patch+yaml".to_owned(),
            kind => format!("application/{kind}-patch+json"),
        };
        let headers = [("content-type", content.as_str())];
        self.send(label, Method::PATCH, path, &headers, &body.to_string())
            .await
    }

    /// Sends a merge patch.
    pub async fn merge(&self, label: &str, path: &str, body: &Value) -> Reply {
        self.patch(label, "merge", path, body).await
    }

    /// Applies server-side as `manager`; `path` may carry a query already.
    pub async fn apply(&self, label: &str, path: &str, manager: &str, body: &Value) -> Reply {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}fieldManager={manager}");
        self.patch(label, "apply", &path, body).await
    }

    /// Asks again and again until `met`, and writes down the last answer.
    pub async fn eventually(&self, label: &str, path: &str, met: impl Fn(&Reply) -> bool) -> Reply {
        let start = Instant::now();
        loop {
            let answer = self.raw(Method::GET, path, &[], "").await;
            let (reply, said) = read(&answer);
            let met = met(&reply);
            if met || start.elapsed() > PATIENCE {
                self.note(label, said).await;
                self.note(&format!("{label}: in time"), json!(met)).await;
                return reply;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Opens a watch; `path` carries the query, `watch=1` included.
    pub async fn watch(&self, path: &str) -> Watch<'_> {
        let headers = [("user-agent", USER_AGENT), ("accept", "application/json")];
        let response = self
            .client
            .open(&Method::GET, path, &headers, Bytes::new())
            .await;
        Watch::new(self, response.expect("the server answers"))
    }
}

/// What is compared of an answer: status, content type, warnings, body.
pub(crate) fn read(answer: &Answer) -> (Reply, Value) {
    let header = |name: &str| {
        answer
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    let status = answer.status.as_u16();
    let mut said = json!({
        "status": status,
        "type": header("content-type"),
        "body": if body.is_null() {
            Value::from(String::from_utf8_lossy(&answer.body).into_owned())
        } else {
            body.clone()
        },
    });
    let warnings: Vec<_> = answer
        .headers
        .get_all("warning")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    if !warnings.is_empty() {
        said["warnings"] = json!(warnings);
    }
    (Reply { status, body }, said)
}
