//! Carrying messages between a visitor and a serial line.

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use pve::api::guest::console::{Console, Tunnel};
use secrecy::ExposeSecret as _;
use sha1::{Digest as _, Sha1};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

/// What RFC 6455 appends to a client's key.
const SALT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// What PVE says to a visitor it lets in.
const WELCOME: &[u8] = b"OK";

/// The answer to a WebSocket's key.
pub(super) fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::digest(format!("{key}{SALT}")))
}

/// An open serial line or screen.
pub(super) struct Line {
    socket: WebSocketStream<Tunnel>,
    /// What was said after the welcome, in the same breath.
    first: Bytes,
}

impl Line {
    /// Introduces itself; `None` if PVE does not let it in.
    pub(super) async fn greet(tunnel: Tunnel, console: &Console) -> Option<Self> {
        let mut socket = WebSocketStream::from_raw_socket(tunnel, Role::Client, None).await;
        let introduction = console.introduction();
        let words = Bytes::copy_from_slice(introduction.expose_secret().as_bytes());
        socket.send(Message::Binary(words)).await.ok()?;
        let mut heard = Vec::new();
        while heard.len() < WELCOME.len() {
            heard.extend_from_slice(&payload(socket.next().await?.ok()?)?);
        }
        let first = heard.strip_prefix(WELCOME)?;
        let first = Bytes::copy_from_slice(first);
        Some(Self { socket, first })
    }
}

impl Line {
    /// A line that begins to speak by itself, as a screen does; `None` if it does not.
    pub(super) async fn plain(tunnel: Tunnel) -> Option<Self> {
        let mut socket = WebSocketStream::from_raw_socket(tunnel, Role::Client, None).await;
        let mut first = Bytes::new();
        while first.is_empty() {
            first = payload(socket.next().await?.ok()?)?;
        }
        Some(Self { socket, first })
    }
}

/// The bytes of a message; `None` at the end.
fn payload(message: Message) -> Option<Bytes> {
    match message {
        Message::Binary(bytes) => Some(bytes),
        Message::Text(text) => Some(Bytes::from(text)),
        Message::Close(_) => None,
        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Some(Bytes::new()),
    }
}

/// Carries until one of the two hangs up, and then hangs up on the other.
pub(super) async fn carry(visitor: Upgraded, line: Line) {
    let io = TokioIo::new(visitor);
    let mut visitor = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    let mut line_socket = line.socket;
    if visitor.send(Message::Binary(line.first)).await.is_ok() {
        loop {
            let (message, to_visitor) = tokio::select! {
                message = line_socket.next() => (message, true),
                message = visitor.next() => (message, false),
            };
            let Some(bytes) = message.and_then(Result::ok).and_then(payload) else {
                break;
            };
            if bytes.is_empty() {
                continue;
            }
            let message = Message::Binary(bytes);
            let sent = if to_visitor {
                visitor.send(message).await
            } else {
                line_socket.send(message).await
            };
            if sent.is_err() {
                break;
            }
        }
    }
    // Whoever has gone already needs no goodbye.
    let _ = visitor.close(None).await;
    let _ = line_socket.close(None).await;
}
