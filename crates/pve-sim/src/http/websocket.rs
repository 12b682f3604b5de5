//! WebSockets: the one kind of answer that is not over when it is given.
//!
//! A handler that leads to a console answers with a pipe. On a socket, a client that wished for an upgrade is given one: its frames become the
//! pipe's bytes and the other way round, as PVE's proxy does between a browser and a port of the node. Whoever did not wish for one
//! hears the port, and the pipe is closed.

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::task::TaskTracker;

/// What RFC 6455 appends to a client's key.
const SALT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The pipe of an answer, to be taken once.
#[derive(Clone)]
pub(super) struct Tunnel(Arc<Mutex<Option<DuplexStream>>>);

impl Tunnel {
    pub(super) fn new(pipe: DuplexStream) -> Self {
        Self(Arc::new(Mutex::new(Some(pipe))))
    }

    fn take(&self) -> Option<DuplexStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A client's wish to go on as a WebSocket.
pub(super) struct Wish {
    accept: String,
    binary: bool,
    connection: OnUpgrade,
}

/// Takes the wish out of a request.
pub(super) fn wish<B>(request: &mut Request<B>) -> Option<Wish> {
    let text = |name: HeaderName| {
        let value = request.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let key = text(SEC_WEBSOCKET_KEY)?;
    if !text(UPGRADE)?.eq_ignore_ascii_case("websocket") || text(SEC_WEBSOCKET_VERSION)? != "13" {
        return None;
    }
    let accept = STANDARD.encode(Sha1::digest(format!("{key}{SALT}")));
    let binary = text(SEC_WEBSOCKET_PROTOCOL)
        .is_some_and(|list| list.split(',').any(|one| one.trim() == "binary"));
    Some(Wish {
        accept,
        binary,
        connection: hyper::upgrade::on(request),
    })
}

/// Grants the wish, if the answer leads anywhere.
pub(super) fn upgrade(
    mut answer: Response<Full<Bytes>>,
    wish: Option<Wish>,
    tracker: &TaskTracker,
) -> Response<Full<Bytes>> {
    let pipe = answer.extensions_mut().remove::<Tunnel>();
    let (Some(pipe), Some(wish)) = (pipe.and_then(|tunnel| tunnel.take()), wish) else {
        return answer;
    };
    let connection = wish.connection;
    tracker.spawn(async move {
        if let Ok(upgraded) = connection.await {
            pump(upgraded, pipe).await;
        }
    });
    let mut granted = Response::new(Full::new(Bytes::new()));
    *granted.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = granted.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&wish.accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if wish.binary {
        let binary = HeaderValue::from_static("binary");
        headers.insert(SEC_WEBSOCKET_PROTOCOL, binary);
    }
    granted
}

/// Carries bytes until either end is closed.
async fn pump(upgraded: Upgraded, mut pipe: DuplexStream) {
    let mut socket =
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let mut buffer = vec![0; 16 << 10];
    loop {
        tokio::select! {
            read = pipe.read(&mut buffer) => {
                let Ok(length) = read else { break };
                if length == 0 {
                    break;
                }
                let bytes = Bytes::copy_from_slice(&buffer[..length]);
                if socket.send(Message::Binary(bytes)).await.is_err() {
                    return;
                }
            }
            message = socket.next() => {
                let bytes = match message {
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Text(text))) => Bytes::from(text),
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                };
                if pipe.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        }
    }
    let _ = socket.close(None).await;
}
