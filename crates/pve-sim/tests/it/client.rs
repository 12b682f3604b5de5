//! A small client over the simulator in the same process.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use pve_sim::{Cluster, Endpoint, Release, Simulator};
use serde_json::Value;
use tower::ServiceExt as _;

/// The answer to a call.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// How a task ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) exit: String,
    pub(crate) log: Vec<String>,
}

/// Somebody who has logged in.
#[derive(Clone)]
pub(crate) struct Client {
    endpoint: Endpoint,
    headers: Vec<(&'static str, String)>,
}

/// A fresh simulation of a release and its administrator.
pub(crate) async fn fresh(release: Release) -> (Cluster, Client) {
    let simulator = Simulator::builder()
        .release(release)
        .root_password("secret")
        .seed(7)
        .build();
    let cluster = simulator.clusters().next().unwrap().clone();
    let client = Client::login(&cluster, "root@pam", "secret").await;
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
    pub(crate) async fn login(cluster: &Cluster, user: &str, password: &str) -> Client {
        let mut client = Client {
            endpoint: cluster.endpoint("pve1"),
            headers: Vec::new(),
        };
        let params = [("username", user), ("password", password)];
        let data = client.data(Method::POST, "/access/ticket", &params).await;
        let ticket = data["ticket"].as_str().unwrap();
        client.headers = vec![
            ("cookie", format!("PVEAuthCookie={}", encode(ticket))),
            (
                "csrfpreventiontoken",
                data["CSRFPreventionToken"].as_str().unwrap().to_owned(),
            ),
        ];
        client
    }

    /// The same simulation with an API token.
    pub(crate) fn with_token(&self, id: &str, secret: &str) -> Client {
        Client {
            endpoint: self.endpoint.clone(),
            headers: vec![("authorization", format!("PVEAPIToken={id}={secret}"))],
        }
    }

    async fn send(&self, request: http::request::Builder, body: Bytes) -> Answer {
        let mut request = request;
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body)).unwrap();
        let response = self
            .endpoint
            .clone()
            .oneshot(request)
            .await
            .expect("the answer is not lost");
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        }
    }

    /// Makes a call.
    pub(crate) async fn call(&self, method: Method, path: &str, params: &[(&str, &str)]) -> Answer {
        let query = method == Method::GET || method == Method::DELETE;
        let mut uri = format!("https://pve1:8006/api2/json{path}");
        let mut body = String::new();
        if query && !params.is_empty() {
            uri = format!("{uri}?{}", form(params));
        } else if !query {
            body = form(params);
        }
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", "application/x-www-form-urlencoded");
        self.send(request, Bytes::from(body)).await
    }

    /// Uses the control surface beside PVE's API.
    pub(crate) async fn control(&self, method: Method, path: &str, body: &Value) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://pve1:8006{path}"));
        self.send(request, Bytes::from(body.to_string())).await
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
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("https://pve1:8006/api2/json{path}"))
            .header("content-type", "multipart/form-data; boundary=b0");
        self.send(request, Bytes::from(body)).await
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
        let path = format!("/nodes/{node}/tasks/{upid}");
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
