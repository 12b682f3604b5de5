//! A machine's screen, for whatever viewer of the remote framebuffer protocol (VNC) there is on this computer.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use axum::body::Bytes;
use clap::Args;
use futures::{SinkExt as _, StreamExt as _};
use secrecy::ExposeSecret as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use super::connect::{self, Socket};
use super::{There, address, aside, permit};
use crate::output;

/// Which screen, and where a viewer finds it.
#[derive(Args)]
pub(in crate::machines) struct Vnc {
    /// Its name.
    name: String,
    /// The port of this computer a viewer is to connect to; a free one is taken otherwise.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// PEM file of the authority that signed the console's certificate, if this computer does not know it.
    #[arg(long, value_name = "FILE")]
    ca: Option<std::path::PathBuf>,
}

/// Waits for one viewer and carries between it and the screen.
pub(in crate::machines) async fn show(there: &There, vnc: &Vnc) -> Result<()> {
    let name = &vnc.name;
    let url = address(there, name).await?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, vnc.port));
    let listener = TcpListener::bind(local)
        .await
        .with_context(|| format!("cannot listen on {local}; give another --port"))?;
    let local = listener.local_addr()?;
    let secret = permit(there, name).await?;
    let url = format!("{url}/screen");
    let aside = aside(&url, &there.server);
    let (mut socket, password) = connect::connect(&url, &secret, vnc.ca.as_deref(), aside).await?;
    output::say(format_args!(
        "{name}'s screen is at {local} for one viewer, such as `vncviewer {}::{}`; Ctrl-C leaves",
        local.ip(),
        local.port()
    ));
    if let Some(password) = password {
        output::say(format_args!(
            "its password, for this visit only: {}",
            password.expose_secret()
        ));
    }
    let carried = async {
        let (viewer, _) = listener.accept().await.context("no viewer can come")?;
        drop(listener);
        carry(&mut socket, viewer).await;
        anyhow::Ok(())
    };
    tokio::select! {
        carried = carried => carried?,
        () = crate::signals::interrupted() => {}
    }
    // Whoever has gone already needs no goodbye.
    let _ = socket.close(None).await;
    output::say("left the screen");
    Ok(())
}

/// Carries until one of the two goes.
async fn carry(socket: &mut Socket, mut viewer: TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            message = socket.next() => {
                let bytes = match message {
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Text(text))) => Bytes::from(text),
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                };
                if viewer.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            read = viewer.read(&mut buffer) => {
                let length = read.unwrap_or(0);
                let message = Message::Binary(Bytes::copy_from_slice(&buffer[..length]));
                if length == 0 || socket.send(message).await.is_err() {
                    return;
                }
            }
        }
    }
}
