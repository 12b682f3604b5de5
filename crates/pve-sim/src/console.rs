//! What is at the other end of a console: a guest's serial line or screen, until the guest or the visitor goes.
//!
//! PVE starts a proxy process that listens on a port of the node for ten seconds and hands out a ticket for it. A WebSocket to that port
//! brings the bytes. [`Consoles`] knows the proxies that wait; whoever comes with the ticket gets one end of a pipe, the worker the
//! other. [`serial`] and [`screen`] are what a visitor finds there: both are plain state machines from bytes to bytes.

mod screen;
mod serial;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::oneshot;

use self::screen::Screen;
use self::serial::Serial;
use crate::failure::Failure;
use crate::task::Worker;

/// How long a proxy waits for its visitor.
const CLIENT_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked whether the guest still runs.
const LOOK: Duration = Duration::from_millis(500);
/// The bytes a pipe holds.
const PIPE: usize = 64 << 10;

/// What a console shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// A serial line, through PVE's terminal proxy.
    Serial,
    /// A screen.
    Screen,
}

/// The proxies that wait for a visitor, by node and port.
#[derive(Debug, Default)]
pub(crate) struct Consoles {
    waiting: BTreeMap<(String, u16), Waiting>,
}

#[derive(Debug)]
struct Waiting {
    vmid: u32,
    user: String,
    ticket: String,
    visitor: oneshot::Sender<DuplexStream>,
}

/// A proxy that was started.
pub(crate) struct Proxy {
    pub(crate) vmid: u32,
    pub(crate) user: String,
    pub(crate) ticket: String,
    pub(crate) show: Show,
    visitor: oneshot::Receiver<DuplexStream>,
}

impl Consoles {
    /// Lets a proxy wait on a port.
    pub(crate) fn wait(
        &mut self,
        at: (String, u16),
        vmid: u32,
        user: &str,
        ticket: &str,
        show: Show,
    ) -> Proxy {
        self.waiting
            .retain(|_, waiting| !waiting.visitor.is_closed());
        let (sender, visitor) = oneshot::channel();
        let waiting = Waiting {
            vmid,
            user: user.to_owned(),
            ticket: ticket.to_owned(),
            visitor: sender,
        };
        self.waiting.insert(at, waiting);
        Proxy {
            vmid,
            user: user.to_owned(),
            ticket: ticket.to_owned(),
            show,
            visitor,
        }
    }

    /// Brings a visitor to the proxy on a port. Each proxy has one.
    pub(crate) fn visit(
        &mut self,
        at: &(String, u16),
        vmid: u32,
        user: &str,
        ticket: &str,
    ) -> Result<DuplexStream, Failure> {
        let fits = |waiting: &Waiting| {
            waiting.ticket == ticket && waiting.user == user && waiting.vmid == vmid
        };
        if let Some(waiting) = self.waiting.get(at)
            && !fits(waiting)
        {
            return Err(Failure::die("permission denied - invalid PVEVNC ticket").with_status(401));
        }
        let refused = || Failure::proxy(595, "Connection refused");
        let waiting = self.waiting.remove(at).ok_or_else(refused)?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        waiting.visitor.send(theirs).map_err(|_| refused())?;
        Ok(ours)
    }
}

impl Proxy {
    /// Waits for the visitor and shows the console.
    pub(crate) async fn serve(self, worker: Worker) -> Result<(), Failure> {
        let mut pipe = tokio::select! {
            waited = worker.sleep(CLIENT_WAIT) => {
                waited?;
                return Err(Failure::die("connection timed out"));
            }
            visitor = self.visitor => visitor.map_err(|_| Failure::die("connection timed out"))?,
        };
        let vmid = self.vmid;
        let name = || {
            let running = |world: &mut crate::world::World| {
                let guest = world.guests.get(vmid).filter(|guest| guest.is_running());
                guest.map(crate::guest::Guest::name)
            };
            worker.world(running)
        };
        let mut console = match (self.show, name()) {
            (Show::Screen, Some(name)) => Console::Screen(Screen::new(name)),
            (Show::Serial, name) => {
                let mut serial = Serial::new(name, vmid, &self.user, &self.ticket);
                // In 8 the terminal proxy has `/access/ticket` check its visitor, which knows users and no tokens.
                if self.user.contains('!') && !worker.world(|world| world.release.is_9()) {
                    serial.admit_nobody();
                }
                Console::Serial(serial)
            }
            (Show::Screen, None) => return Err(Failure::die(format!("VM {vmid} not running"))),
        };
        let mut buffer = [0; 4096];
        let mut out = console.greeting();
        loop {
            if pipe.write_all(&out).await.is_err() || console.is_over() {
                return Ok(());
            }
            out = tokio::select! {
                read = pipe.read(&mut buffer) => match read {
                    Ok(length) if length > 0 => console.input(&buffer[..length]),
                    _ => return Ok(()),
                },
                waited = worker.sleep(LOOK) => {
                    waited?;
                    // The line is cut with the guest's power.
                    if name().is_none() {
                        return Ok(());
                    }
                    Vec::new()
                }
            };
        }
    }
}

enum Console {
    Serial(Serial),
    Screen(Screen),
}

impl Console {
    fn greeting(&self) -> Vec<u8> {
        match self {
            Self::Serial(_) => Vec::new(),
            Self::Screen(_) => screen::VERSION.to_vec(),
        }
    }

    fn input(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Serial(serial) => serial.input(bytes),
            Self::Screen(screen) => screen.input(bytes),
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Serial(serial) => serial.is_over(),
            Self::Screen(screen) => screen.is_over(),
        }
    }
}
