//! Consoles of machines, through this process: `/console/NAMESPACE/NAME`, and `/console/NAMESPACE/NAME/screen`.
//!
//! Nobody is handed a ticket of Proxmox VE. Whoever wants to see a machine's serial line or screen makes up a secret and writes its digest into a
//! `VMConsole`; then it comes here with the secret. It is good for one visit, begun within a minute by the API server's own clock. The right to see consoles is thus
//! the right to create that object, granted and audited by Kubernetes apart from the right to change machines. No Kubernetes credential leaves its owner's hands, every way of
//! logging in to Kubernetes works, and what is stored tells nobody anything.
//!
//! The visitor speaks a WebSocket whose messages are those of PVE's terminal proxy, without its introduction: `0:LENGTH:bytes` is typed,
//! `1:COLUMNS:ROWS:` is the window, `2` says that one is still there; what comes back is the line itself. `oxmox vm console` is such a
//! visitor. The introduction, with PVE's ticket, is made here.
//!
//! Over the screen's WebSocket goes the remote framebuffer protocol as it is. QEMU asks its viewer for a password, which PVE makes up for this
//! one visit and the answer to the visitor names ([`PASSWORD`]); `oxmox vm vnc` shows it to whoever sits before the viewer.

mod carry;
mod permit;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use api::vm::VirtualMachine;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{AUTHORIZATION, HeaderMap};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use controllers::Clock;
use fleet::{ClusterName, Fleet, NodeName, Vmid};
use kube::Client;
use pve::{GuestConfig, api::guest::ConfigView, prop::Smbios};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::listener;
pub(crate) use permit::{digest, token};

/// The header with the password a viewer of the screen is asked for.
pub(crate) const PASSWORD: HeaderName = HeaderName::from_static("oxmox-vnc-password");

/// A server of consoles; dropping it stops it.
pub(crate) struct Consoles {
    address: SocketAddr,
    engine: Engine,
    _stop: DropGuard,
}

/// The engine whose connections are used: that of whoever acts now.
#[derive(Clone, Default)]
pub(crate) struct Engine(Arc<Mutex<Option<Fleet>>>);

impl Engine {
    /// Uses this engine from now on, or none.
    pub(crate) fn set(&self, fleet: Option<Fleet>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fleet;
    }

    fn get(&self) -> Option<Fleet> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[derive(Clone)]
struct Server {
    client: Client,
    clock: Clock,
    engine: Engine,
}

impl Consoles {
    /// Listens on `address` (port 0 takes a free one), for machines of one namespace or all.
    pub(crate) async fn listen(
        address: SocketAddr,
        client: Client,
        namespace: Option<String>,
        clock: Clock,
    ) -> Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen for consoles on {address}"))?;
        let address = listener.local_addr()?;
        let engine = Engine::default();
        let sweep = permit::sweep(client.clone(), namespace, clock);
        let server = Server {
            client,
            clock,
            engine: engine.clone(),
        };
        let router = Router::new()
            .route(
                "/console/{namespace}/{name}",
                get(console).layer(Extension(Show::Serial)),
            )
            .route(
                "/console/{namespace}/{name}/screen",
                get(console).layer(Extension(Show::Screen)),
            )
            .with_state(server);
        let stop = CancellationToken::new();
        tokio::spawn(listener::serve(listener, None, router, stop.clone()));
        tokio::spawn(stop.clone().run_until_cancelled_owned(sweep));
        Ok(Self {
            address,
            engine,
            _stop: stop.drop_guard(),
        })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whose connections it uses.
    pub(crate) fn engine(&self) -> Engine {
        self.engine.clone()
    }
}

/// Why a visitor is not let in: a status, and words for a person.
struct Refusal(StatusCode, String);

impl Refusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self(status, text.into())
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
}

/// What of a machine is shown.
#[derive(Clone, Copy)]
enum Show {
    Serial,
    Screen,
}

async fn console(
    State(server): State<Server>,
    Path((namespace, name)): Path<(String, String)>,
    Query(query): Query<Token>,
    Extension(show): Extension<Show>,
    request: Request,
) -> Response {
    match admit(&server, &namespace, &name, query.token, request, show).await {
        Ok(response) => response,
        Err(Refusal(status, text)) => (status, text + "\n").into_response(),
    }
}

async fn admit(
    server: &Server,
    namespace: &str,
    name: &str,
    token: Option<String>,
    mut request: Request,
    show: Show,
) -> Result<Response, Refusal> {
    let token = bearer(request.headers()).or(token).ok_or_else(|| {
        let text =
            format!("come with a token: `oxmox vm console -n {namespace} {name} --url` makes one");
        Refusal::new(StatusCode::UNAUTHORIZED, text)
    })?;
    let key = websocket_key(request.headers()).ok_or_else(|| {
        let text = "this address speaks WebSocket; `oxmox vm console` understands it";
        Refusal::new(StatusCode::UPGRADE_REQUIRED, text)
    })?;
    let fleet = server.engine.get().ok_or_else(|| {
        let text = "this replica does not act now; try again to reach the one that does";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let (client, clock) = (&server.client, &server.clock);
    let machine = permit::redeem(client, namespace, name, &token, clock).await?;
    permit::check_provider(client, namespace, &machine).await?;
    let (line, password) = open(&fleet, &machine, show).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(visitor) = upgrade.await {
            carry::carry(visitor, line).await;
        }
    });
    let accept = tungstenite_accept(&key);
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    let mut response = (StatusCode::SWITCHING_PROTOCOLS, headers).into_response();
    if offers_binary(request.headers()) {
        let binary = HeaderValue::from_static("binary");
        response
            .headers_mut()
            .insert(header::SEC_WEBSOCKET_PROTOCOL, binary);
    }
    if let Some(password) = password {
        response.headers_mut().insert(PASSWORD, password);
    }
    Ok(response)
}

/// Opens the machine's serial line, or its screen with the password a viewer is asked for.
async fn open(
    fleet: &Fleet,
    machine: &VirtualMachine,
    show: Show,
) -> Result<(carry::Line, Option<HeaderValue>), Refusal> {
    let nowhere = || {
        let text = "the machine does not exist on Proxmox VE yet; `oxmox vm describe` says why";
        Refusal::new(StatusCode::CONFLICT, text)
    };
    let status = machine.status.as_ref().ok_or_else(nowhere)?;
    let (Some(cluster), Some(node), Some(vmid)) = (&status.cluster, &status.node, status.vmid)
    else {
        return Err(nowhere());
    };
    let cluster = ClusterName::new(cluster.as_str()).map_err(|_| nowhere())?;
    let node = NodeName::new(node.as_str()).map_err(|_| nowhere())?;
    let vmid = Vmid::new(vmid).map_err(|_| nowhere())?;
    let pve = fleet.client(&cluster).ok_or_else(|| {
        let text =
            format!("Provider {cluster} is not connected; `kubectl describe provider` says why");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let failed = |error: pve::Error| {
        let mut text = format!("Proxmox VE does not open the console: {error}");
        if error.to_string().contains("serial interface") {
            text += "; give the machine a serial line (`spec.hardware.serialPorts: [socket]`) and restart it";
        }
        Refusal::new(StatusCode::BAD_GATEWAY, text)
    };
    let guest = pve.node(&node).qemu(vmid);
    let config = guest.config(ConfigView::Current).await.map_err(failed)?;
    if !is_marked_by(&config, machine) && !is_of(&config, status.uuid.as_deref()) {
        let text = format!("guest {vmid} is another one than this machine's, which is gone");
        return Err(Refusal::new(StatusCode::CONFLICT, text));
    }
    let hung_up = || {
        let text = "Proxmox VE hung up before the console was open: does the machine run?";
        Refusal::new(StatusCode::BAD_GATEWAY, text)
    };
    match show {
        Show::Serial => {
            let console = guest.terminal().await.map_err(failed)?;
            let tunnel = guest.visit(&console).await.map_err(failed)?;
            let line = carry::Line::greet(tunnel, &console).await;
            let refused = || {
                // A guest that is off is told of after the greeting: who hangs up at it knows no tokens.
                if console.is_for_token() {
                    let text = "this Proxmox VE lets no API token open a serial line, as all before 9.1: `oxmox vm vnc` shows the screen, \
                                and with `username` and `password` in the Provider's Secret serial lines open, too";
                    Refusal::new(StatusCode::BAD_GATEWAY, text)
                } else {
                    hung_up()
                }
            };
            Ok((line.ok_or_else(refused)?, None))
        }
        Show::Screen => {
            let console = guest.screen().await.map_err(failed)?;
            let tunnel = guest.visit(&console).await.map_err(failed)?;
            let line = carry::Line::plain(tunnel).await.ok_or_else(hung_up)?;
            let mut password =
                HeaderValue::from_str(console.password().expose_secret()).map_err(|_| hung_up())?;
            password.set_sensitive(true);
            Ok((line, Some(password)))
        }
    }
}

/// Whether a guest carries the machine's mark, whose last part is its UID.
fn is_marked_by(config: &GuestConfig, machine: &VirtualMachine) -> bool {
    let owner = config.description().and_then(fleet::mark::owner_of);
    let uid = machine.metadata.uid.as_deref();
    owner.is_some_and(|owner| owner.as_str().rsplit('/').next() == uid)
}

/// Whether a guest is the machine's, and not only of the same number. One that was taken over may have no UUID to tell it by.
fn is_of(config: &GuestConfig, uuid: Option<&str>) -> bool {
    let known: Option<Uuid> = uuid.and_then(|text| text.parse().ok());
    let Some(known) = known.filter(|uuid| !uuid.is_nil()) else {
        return true;
    };
    let smbios = config.get("smbios1").and_then(|text| text.parse().ok());
    smbios.and_then(|smbios: Smbios| smbios.uuid) == Some(known)
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::to_owned)
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn websocket_key(headers: &HeaderMap) -> Option<String> {
    let upgrade = text(headers, header::UPGRADE)?;
    let fits = upgrade.eq_ignore_ascii_case("websocket")
        && text(headers, header::SEC_WEBSOCKET_VERSION)? == "13";
    let key = text(headers, header::SEC_WEBSOCKET_KEY)?;
    fits.then(|| key.to_owned())
}

fn offers_binary(headers: &HeaderMap) -> bool {
    let offered = text(headers, header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
    offered.split(',').any(|one| one.trim() == "binary")
}

/// The answer to a WebSocket's key, as RFC 6455 computes it.
fn tungstenite_accept(key: &str) -> HeaderValue {
    let accept = carry::accept(key);
    HeaderValue::from_str(&accept).unwrap_or_else(|_| HeaderValue::from_static(""))
}
