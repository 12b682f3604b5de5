//! The way to the server of consoles.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use axum::body::Bytes;
use axum::http::{Request, StatusCode, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::upgrade::Upgraded;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use pve::tls::Trust;
use secrecy::{ExposeSecret as _, SecretString};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::console::PASSWORD;

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// How often a replica is asked that does not act: the next one may.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(300);

/// Goes there with the secret. Comes back with the connection, and the password a screen's viewer is asked for. Who cannot get there
/// hears `aside`.
pub(super) async fn connect(
    url: &str,
    secret: &SecretString,
    ca: Option<&Path>,
    aside: Option<&str>,
) -> Result<(Socket, Option<SecretString>)> {
    let uri: Uri = url
        .parse()
        .context("the machine's console has no usable address")?;
    let trust = match ca {
        None => Trust::System,
        Some(file) => {
            let pem = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            Trust::Authority(pem)
        }
    };
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(pve::tls::client_config(&trust)?)
        .https_or_http()
        .enable_http1()
        .build();
    // What balances connections brings only a new one to another replica.
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .build(connector);
    for attempt in 1.. {
        let key = STANDARD.encode(uuid::Uuid::new_v4().as_bytes());
        let request = Request::get(uri.clone())
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", secret.expose_secret()),
            )
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_PROTOCOL, "binary")
            .header(header::SEC_WEBSOCKET_KEY, key)
            .body(Full::new(Bytes::new()))
            .context("the machine's console has no usable address")?;
        let mut response = client.request(request).await.with_context(|| {
            let place = uri.authority().map_or(url, |a| a.as_str());
            match aside {
                Some(aside) => format!("cannot reach {place}: {aside}"),
                None => format!("cannot reach {place}"),
            }
        })?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                let password = response.headers().get(PASSWORD);
                let password = password
                    .and_then(|password| password.to_str().ok())
                    .map(SecretString::from);
                let upgraded = hyper::upgrade::on(&mut response)
                    .await
                    .context("the console's connection broke")?;
                let io = TokioIo::new(upgraded);
                let socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
                return Ok((socket, password));
            }
            StatusCode::SERVICE_UNAVAILABLE if attempt < ATTEMPTS => {
                tokio::time::sleep(PAUSE).await;
            }
            status => {
                let body = response.into_body().collect().await?.to_bytes();
                let text = String::from_utf8_lossy(&body);
                bail!("the console is not opened ({status}): {}", text.trim());
            }
        }
    }
    bail!("no replica that acts was reached")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Answers every request on a connection alike.
    async fn replica(mut connection: TcpStream, answer: &str) {
        let mut said = Vec::new();
        let mut part = [0; 1024];
        while let Ok(length @ 1..) = connection.read(&mut part).await {
            said.extend_from_slice(&part[..length]);
            if said.ends_with(b"\r\n\r\n") {
                said.clear();
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn who_reached_a_replica_that_does_not_act_comes_with_another_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/console/a/b", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let idle = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 5\r\n\r\nidle\n";
            let (first, _) = listener.accept().await.unwrap();
            tokio::spawn(replica(first, idle));
            let (second, _) = listener.accept().await.unwrap();
            let acts = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
            replica(second, acts).await;
        });
        let secret = "secret".into();
        connect(&url, &secret, None, None).await.unwrap();
    }
}
