//! Our server, as `oxmox up` runs it: durable, over TLS, with its own authority.

use std::path::PathBuf;

use apiserver::{Config, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tempfile::TempDir;
use testbed::http::{Client, Credentials};
use testbed::pki::Identity;

/// Our server, running.
pub(crate) struct Ours {
    pub(crate) client: Client,
    server: Server,
    _dir: TempDir,
}

impl Ours {
    /// Where its kubeconfig lies.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.server.kubeconfig_path().to_path_buf()
    }

    /// Starts it, and makes the administrator's client from the kubeconfig that it wrote.
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let server = Server::start(Config::new(dir.path()))
            .await
            .expect("our server starts");
        let text = std::fs::read(server.kubeconfig_path()).expect("the kubeconfig is there");
        let config: Value = serde_json::from_slice(&text).expect("the kubeconfig is JSON");
        let pem = |value: &Value| {
            let text = STANDARD.decode(value.as_str().unwrap_or_default());
            String::from_utf8(text.expect("the kubeconfig holds base64")).expect("PEM is text")
        };
        let user = &config["users"][0]["user"];
        let identity = Identity {
            cert: pem(&user["client-certificate-data"]),
            key: pem(&user["client-key-data"]),
        };
        let credentials = Credentials::Certificate(identity);
        let client = Client::new(&server.url(), server.ca_pem(), &credentials)
            .expect("the kubeconfig's credentials are well formed");
        Self {
            client,
            server,
            _dir: dir,
        }
    }
}
