//! This terminal as the other end of a serial line.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::body::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use pve::api::guest::console::{PING, resized, typed};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use super::connect::Socket;

/// Ctrl-].
const LEAVE: u8 = 0x1d;
/// PVE hangs up on who is silent for long.
const ALIVE: Duration = Duration::from_secs(30);
/// After the end of input that was no keyboard, the line may still say something.
const LINGER: Duration = Duration::from_secs(2);

/// A terminal that passes every key on, for as long as this lives.
struct Raw;

impl Raw {
    fn on() -> Result<Self> {
        crossterm::terminal::enable_raw_mode().context("the terminal cannot pass keys on")?;
        Ok(Self)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // There is no better terminal to say so on.
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

/// Attaches until one of both ends goes.
pub(super) async fn attach(mut socket: Socket) -> Result<()> {
    let keyboard = std::io::stdin().is_terminal();
    let raw = keyboard.then(Raw::on).transpose()?;
    let mut window = signal(SignalKind::window_change()).context("cannot listen for signals")?;
    send_size(&mut socket).await;
    let mut input = keys();
    let mut open = true;
    let mut alive = tokio::time::interval(ALIVE);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            message = socket.next() => {
                let bytes = match message {
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Text(text))) => Bytes::from(text),
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                };
                heard = Instant::now();
                if show(&bytes).is_err() {
                    break;
                }
            }
            pressed = input.recv(), if open => {
                open = pressed.is_some();
                let keys = pressed.unwrap_or_default();
                let leave = keyboard.then(|| keys.iter().position(|key| *key == LEAVE)).flatten();
                let keys = &keys[..leave.unwrap_or(keys.len())];
                let sent = keys.is_empty() || send(&mut socket, &typed(keys)).await;
                if !sent || leave.is_some() {
                    break;
                }
            }
            _ = window.recv() => send_size(&mut socket).await,
            _ = alive.tick() => {
                if !send(&mut socket, PING).await {
                    break;
                }
            }
            () = tokio::time::sleep_until(heard + LINGER), if !open => break,
        }
    }
    let _ = socket.close(None).await;
    drop(raw);
    crate::output::say("\nleft the console");
    Ok(())
}

/// What is typed, read by a thread of its own: nothing can call a blocked reader back, and the process need not wait for it.
fn keys() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok(length) = std::io::stdin().read(&mut buffer) {
            if length == 0 || sender.blocking_send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn send(socket: &mut Socket, message: &[u8]) -> bool {
    let message = Message::Binary(Bytes::copy_from_slice(message));
    socket.send(message).await.is_ok()
}

async fn send_size(socket: &mut Socket) {
    if let Ok((columns, rows)) = crossterm::terminal::size() {
        send(socket, &resized(columns, rows)).await;
    }
}

/// Shows bytes as they are.
fn show(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
