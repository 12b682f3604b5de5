//! A guest's console: its serial line or its screen, as a stream.
//!
//! PVE starts a proxy for one visitor, hands out a ticket for it and waits ten seconds. [`Guest::visit`] brings the visitor there: what comes
//! back is the connection itself, over which WebSocket frames go from then on ([`Tunnel`]). Whoever stands between two WebSockets passes
//! the bytes on as they are.
//!
//! On a serial line the first message is [`Console::introduction`]; PVE answers `OK`. What is typed is then packed ([`typed`]), and so is
//! the size of the window ([`resized`]); what is heard is the line itself.

use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Guest, GuestKind};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::scalar;
use crate::upid::Upid;

/// Says that the visitor is still there; to be sent every half a minute.
pub const PING: &[u8] = b"2";

/// A proxy that waits for its visitor.
#[derive(Debug, Clone, Deserialize)]
pub struct Console {
    /// Who may come.
    user: String,
    /// The ticket to come with.
    #[serde(deserialize_with = "secret")]
    ticket: SecretString,
    /// What a viewer of the screen is asked for, where PVE made one up.
    #[serde(default, deserialize_with = "maybe_secret")]
    password: Option<SecretString>,
    /// The port on the node.
    #[serde(deserialize_with = "scalar::required")]
    port: u16,
    /// The proxy's task.
    pub upid: Upid,
}

impl Console {
    /// What a visitor of a serial line says first.
    pub fn introduction(&self) -> SecretString {
        format!("{}:{}\n", self.user, self.ticket.expose_secret()).into()
    }

    /// Whether an API token is to come. Its ticket for a serial line is taken from Proxmox VE 9.1 on: terminal proxies before that know no
    /// tokens, and hang up at the introduction. A screen is shown by all.
    pub fn is_for_token(&self) -> bool {
        self.user.contains('!')
    }

    /// The password that a viewer of the screen answers the challenge with. Good for this one visit, and for nothing else.
    pub fn password(&self) -> &SecretString {
        self.password.as_ref().unwrap_or(&self.ticket)
    }
}

fn secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(Into::into)
}

fn maybe_secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(Into::into))
}

/// Typed bytes, as PVE's terminal proxy wants them.
pub fn typed(bytes: &[u8]) -> Vec<u8> {
    let mut message = format!("0:{}:", bytes.len()).into_bytes();
    message.extend_from_slice(bytes);
    message
}

/// The size of the window, as PVE's terminal proxy wants it.
pub fn resized(columns: u16, rows: u16) -> Vec<u8> {
    format!("1:{columns}:{rows}:").into_bytes()
}

/// A connection over which WebSocket frames go.
pub struct Tunnel(TokioIo<Upgraded>);

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tunnel")
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl Guest {
    /// Starts a proxy to its first serial line (of a container: to its console).
    pub async fn terminal(&self) -> Result<Console> {
        let name = self.named("qemu.termproxy", "lxc.termproxy");
        self.client
            .call(Call::post(name, self.path("/termproxy")))
            .await
    }

    /// Starts a proxy to its screen. For a virtual machine PVE makes up a password, so that its ticket need not be handed on.
    pub async fn screen(&self) -> Result<Console> {
        let name = self.named("qemu.vncproxy", "lxc.vncproxy");
        let mut params = Params::new().flag("websocket", true);
        if self.kind == GuestKind::Qemu {
            params = params.flag("generate-password", true);
        }
        self.client
            .call(Call::post(name, self.path("/vncproxy")).params(params))
            .await
    }

    /// Goes to a proxy that was started a moment ago. It has one visitor and one visit.
    pub async fn visit(&self, console: &Console) -> Result<Tunnel> {
        let name = self.named("qemu.vncwebsocket", "lxc.vncwebsocket");
        let params = Params::new()
            .with("port", console.port)
            .with("vncticket", console.ticket.expose_secret());
        let key = STANDARD.encode(uuid::Uuid::new_v4().as_bytes());
        let call = Call::get(name, self.path("/vncwebsocket"))
            .params(params)
            .upgrade(key);
        let answer = self.client.answer(call).await?;
        let refused = |text: String| Error::Unreachable { text, cause: None };
        let Some(connection) = answer.upgrade else {
            return Err(refused("Proxmox VE did not open a WebSocket".to_owned()));
        };
        match connection.await {
            Ok(upgraded) => Ok(Tunnel(TokioIo::new(upgraded))),
            Err(error) => Err(refused(format!("the console's connection broke: {error}"))),
        }
    }
}
