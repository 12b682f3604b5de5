//! A small client over the simulator in the same process, for all tests.
//!
//! Three ways to call: `get`, `put`, `data`, `ok` and so on for what must go well, `refused` for what must
//! not, and `try_…` for whatever the answer is.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use pve_sim::{Cluster, Endpoint, Lost, Release, Simulator};
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

/// How a task ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: String,
    pub(crate) log: Vec<String>,
}

/// A caller of one node's API.
#[derive(Clone)]
pub(crate) struct Client {
    endpoint: Endpoint,
    headers: Vec<(String, String)>,
}

/// A fresh simulation of a release and its administrator.
pub(crate) async fn fresh(release: Release) -> (Cluster, Client) {
    let simulator = Simulator::builder()
        .release(release)
        .root_password("secret")
        .seed(7)
        .build();
    let cluster = simulator.clusters().next().unwrap().clone();
    let client = Client::login(cluster.endpoint("pve1"), "root@pam", "secret").await;
    (cluster, client)
}

/// The administrator of a fresh PVE 9.
pub(crate) async fn pve9() -> (Cluster, Client) {
    fresh(Release::V9_2).await
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn form(params: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = params
        .iter()
        .map(|(k, v)| format!("{}={}", encode(k), encode(v)))
        .collect();
    pairs.join("&")
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
        let client = Self::stranger(endpoint);
        let params = [("username", user), ("password", password)];
        let data = client.try_post("/access/ticket", &params).await.data();
        let text = |name: &str| data[name].as_str().expect("a login has it").to_owned();
        let cookie = format!("PVEAuthCookie={}", encode(&text("ticket")));
        client
            .with("Cookie", &cookie)
            .with("CSRFPreventionToken", &text("CSRFPreventionToken"))
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

    /// The same simulation with an API token.
    pub(crate) fn with_token(&self, id: &str, secret: &str) -> Client {
        Self::token(self.endpoint.clone(), &format!("{id}={secret}"))
    }

    /// Sends one request as it is.
    pub(crate) async fn send(
        &self,
        method: Method,
        uri: &str,
        content_type: Option<&str>,
        body: impl Into<Bytes>,
    ) -> Result<Answer, Lost> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(kind) = content_type {
            request = request.header("Content-Type", kind);
        }
        let request = request
            .body(Full::new(body.into()))
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

    pub(crate) async fn try_get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &[]).await
    }

    pub(crate) async fn try_query(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        self.call(Method::GET, path, params).await
    }

    pub(crate) async fn try_post(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        self.call(Method::POST, path, params).await
    }

    pub(crate) async fn try_put(&self, path: &str, params: &[(&str, &str)]) -> Answer {
        self.call(Method::PUT, path, params).await
    }

    pub(crate) async fn try_delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, &[]).await
    }

    /// Waits for the task of an answer; returns its exit text.
    pub(crate) async fn exit_of(&self, answer: &Answer) -> String {
        let upid = answer.data();
        self.ended(upid.as_str().expect("the call started a task"))
            .await
            .exit
    }

    /// Makes a call that has an answer.
    pub(crate) async fn call(&self, method: Method, path: &str, params: &[(&str, &str)]) -> Answer {
        let answer = self.try_call(method, path, params).await;
        answer.expect("the answer is not lost")
    }

    /// Uses the control surface beside PVE's API.
    pub(crate) async fn control(&self, method: Method, path: &str, body: &Value) -> Answer {
        let answer = self.send(method, path, None, body.to_string()).await;
        answer.expect("the answer is not lost")
    }

    /// Uploads a file.
    pub(crate) async fn upload(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        file: &str,
        content: &[u8],
    ) -> Answer {
        let mut body = Vec::new();
        for (name, value) in fields {
            body.extend(
                format!(
                    "--b0\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
                )
                .into_bytes(),
            );
        }
        body.extend(
            format!(
                "--b0\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"{file}\"\r\nContent-Type: application/octet-stream\r\n\r\n"
            )
            .into_bytes(),
        );
        body.extend(content);
        body.extend(b"\r\n--b0--\r\n");
        let uri = format!("/api2/json{path}");
        let kind = "multipart/form-data; boundary=b0";
        let answer = self.send(Method::POST, &uri, Some(kind), body).await;
        answer.expect("the answer is not lost")
    }

    /// Makes a call that succeeds; returns its data.
    pub(crate) async fn data(&self, method: Method, path: &str, params: &[(&str, &str)]) -> Value {
        let answer = self.call(method.clone(), path, params).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.body);
        answer.body["data"].clone()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.data(Method::GET, path, &[]).await
    }

    pub(crate) async fn put(&self, path: &str, params: &[(&str, &str)]) {
        self.data(Method::PUT, path, params).await;
    }

    /// Makes a call that fails; returns status and message.
    pub(crate) async fn refused(
        &self,
        method: Method,
        path: &str,
        params: &[(&str, &str)],
    ) -> (u16, String) {
        let answer = self.call(method.clone(), path, params).await;
        assert_ne!(answer.status, 200, "{method} {path} was accepted");
        (
            answer.status,
            answer.body["message"]
                .as_str()
                .unwrap_or_default()
                .trim_end()
                .to_owned(),
        )
    }

    /// Makes a call that starts a task, and waits for its end.
    pub(crate) async fn run(&self, method: Method, path: &str, params: &[(&str, &str)]) -> Ended {
        let upid = self.data(method, path, params).await;
        self.ended(upid.as_str().expect("a task was started")).await
    }

    /// Waits for a task.
    pub(crate) async fn ended(&self, upid: &str) -> Ended {
        let node = upid.split(':').nth(1).unwrap();
        // A disk that changes hands has an arrow in its task.
        let path = format!("/nodes/{node}/tasks/{}", upid.replace('>', "%3E"));
        for _ in 0..100_000 {
            let status = self.get(&format!("{path}/status")).await;
            if status["status"] == "stopped" {
                let log = self
                    .data(Method::GET, &format!("{path}/log"), &[("limit", "0")])
                    .await;
                let lines = log.as_array().unwrap().iter();
                return Ended {
                    exit: status["exitstatus"].as_str().unwrap_or_default().to_owned(),
                    log: lines
                        .map(|line| line["t"].as_str().unwrap().to_owned())
                        .collect(),
                };
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("task {upid} does not end");
    }

    /// Runs a task that must end well.
    pub(crate) async fn ok(&self, method: Method, path: &str, params: &[(&str, &str)]) -> Ended {
        let ended = self.run(method.clone(), path, params).await;
        assert_eq!(ended.exit, "OK", "{method} {path}: {:?}", ended.log);
        ended
    }

    /// Creates a VM on `pve1`.
    pub(crate) async fn create(&self, vmid: u32, options: &[(&str, &str)]) {
        let id = vmid.to_string();
        let mut params = vec![("vmid", id.as_str())];
        params.extend(options);
        self.ok(Method::POST, "/nodes/pve1/qemu", &params).await;
    }

    /// The configuration of a VM on `pve1`, pending values merged.
    pub(crate) async fn config(&self, vmid: u32) -> Value {
        self.get(&format!("/nodes/pve1/qemu/{vmid}/config")).await
    }

    /// Starts a VM on `pve1` and waits until its agent answers.
    pub(crate) async fn boot(&self, vmid: u32) {
        self.ok(
            Method::POST,
            &format!("/nodes/pve1/qemu/{vmid}/status/start"),
            &[],
        )
        .await;
        for _ in 0..1000 {
            let path = format!("/nodes/pve1/qemu/{vmid}/agent/ping");
            if self.call(Method::POST, &path, &[]).await.status == 200 {
                return;
            }
        }
        panic!("VM {vmid} does not come up");
    }
}

/// A VM with an Ubuntu disk, as a full copy of the default template.
pub(crate) async fn ubuntu(client: &Client, vmid: u32, more: &[(&str, &str)]) {
    let mut options = std::collections::BTreeMap::from([
        ("scsi0", "ceph:0,import-from=ceph:base-9000-disk-0"),
        ("agent", "1"),
        ("memory", "1024"),
        ("net0", "virtio,bridge=vmbr0"),
    ]);
    options.extend(more.iter().copied());
    let options: Vec<(&str, &str)> = options.into_iter().collect();
    client.create(vmid, &options).await;
}
