//! Consoles over TLS on loopback: the simulator's node at the other end.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use pve::api::guest::console::{Tunnel, resized, typed};
use pve::tls::Trust;
use pve::{Client, Credentials, NodeName, Qemu};
use pve_sim::{Release, Server, Tls};
use secrecy::ExposeSecret as _;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::lab::{Lab, lab, vmid};

/// A running machine with a serial line, over a socket with TLS.
async fn machine(lab: &Lab) -> (Server, Qemu) {
    machine_seen_by(lab, Credentials::password("root@pam", "geheim").unwrap()).await
}

/// The same, as somebody sees it.
async fn machine_seen_by(lab: &Lab, credentials: Credentials) -> (Server, Qemu) {
    let made = lab.machine(700).await;
    let serial = pve::GuestConfig::new().with("serial0", "socket");
    made.configure(&pve::ConfigChange::set(serial))
        .await
        .unwrap();
    let started = made.start().await.unwrap();
    lab.client.wait(&started).await.unwrap();
    let tls = Tls::self_signed(&["127.0.0.1".to_owned()]).unwrap();
    let pin = tls.fingerprint().parse().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(lab.cluster.endpoint("pve1"), address, Some(tls))
        .await
        .unwrap();
    let client = Client::builder()
        .endpoint(format!("https://{}", server.address()))
        .trust(Trust::Fingerprints(vec![pin]))
        .credentials(credentials)
        .build()
        .unwrap();
    let qemu = client.node(&NodeName::new("pve1").unwrap()).qemu(vmid(700));
    (server, qemu)
}

struct Visitor(WebSocketStream<Tunnel>);

impl Visitor {
    async fn new(tunnel: Tunnel) -> Self {
        Self(WebSocketStream::from_raw_socket(tunnel, Role::Client, None).await)
    }

    async fn say(&mut self, bytes: &[u8]) {
        let message = Message::Binary(bytes.to_vec().into());
        self.0.send(message).await.unwrap();
    }

    /// Listens until `mark` was said, or the line is cut.
    async fn hear(&mut self, mark: &[u8]) -> Vec<u8> {
        let mut heard = Vec::new();
        let listen = async {
            while !heard.windows(mark.len().max(1)).any(|part| part == mark) {
                match self.0.next().await {
                    Some(Ok(Message::Binary(bytes))) => heard.extend_from_slice(&bytes),
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                    Some(Ok(_)) => {}
                }
            }
        };
        tokio::time::timeout(Duration::from_mins(1), listen)
            .await
            .unwrap();
        heard
    }
}

#[tokio::test]
async fn a_visitor_with_the_ticket_talks_to_the_serial_line_until_the_guest_is_off() {
    let lab = lab(Release::V9_2);
    let (_server, qemu) = machine(&lab).await;
    let console = qemu.terminal().await.unwrap();
    assert!(
        !format!("{console:?}").contains("PVEVNC"),
        "a ticket is a secret"
    );
    let mut visitor = Visitor::new(qemu.visit(&console).await.unwrap()).await;
    visitor
        .say(console.introduction().expose_secret().as_bytes())
        .await;
    assert!(visitor.hear(b"login: ").await.starts_with(b"OK"));
    visitor.say(&resized(80, 24)).await;
    visitor.say(&typed(b"joe\r")).await;
    visitor.hear(b"Password: ").await;
    visitor.say(&typed(b"x\r")).await;
    visitor.hear(b"$ ").await;
    visitor.say(&typed(b"hostname\r")).await;
    let heard = visitor.hear(b"vm700\r\n").await;
    assert!(heard.ends_with(b"$ ") || heard.windows(7).any(|part| part == b"vm700\r\n"));

    let again = qemu.visit(&console).await;
    assert!(again.is_err(), "a proxy has one visitor");
    qemu.stop(pve::api::guest::power::Stop::default())
        .await
        .unwrap();
    let rest = visitor.hear(b"never said").await;
    assert!(!rest.windows(10).any(|part| part == b"never said"));
}

#[tokio::test]
async fn a_viewer_gets_the_screen_and_a_wrong_ticket_gets_nothing() {
    let lab = lab(Release::V9_2);
    let (_server, qemu) = machine(&lab).await;
    let screen = qemu.screen().await.unwrap();
    let password = screen.password().expose_secret();
    assert_eq!(password.len(), 8, "RFB's challenge takes no more");
    let mut viewer = Visitor::new(qemu.visit(&screen).await.unwrap()).await;
    assert_eq!(viewer.hear(b"\n").await, b"RFB 003.008\n");

    let other = qemu.terminal().await.unwrap();
    let mut visitor = Visitor::new(qemu.visit(&other).await.unwrap()).await;
    visitor.say(b"root@pam:PVEVNC:wrong\n").await;
    assert_eq!(visitor.hear(b"OK").await, b"");
}

#[tokio::test]
async fn a_token_opens_a_serial_line_on_9_and_only_the_screen_on_8() {
    for (release, welcome) in [(Release::V8_4, &b""[..]), (Release::V9_2, b"OK")] {
        let lab = lab(release);
        let access = lab.client.access();
        let id = "root@pam!line";
        let token = access.create_token(&id.parse().unwrap(), false, None).await;
        let secret = token.unwrap().value.expose_secret().to_owned();
        let token = Credentials::token(id, secret).unwrap();
        let (_server, qemu) = machine_seen_by(&lab, token).await;
        let console = qemu.terminal().await.unwrap();
        assert!(console.is_for_token());
        let mut visitor = Visitor::new(qemu.visit(&console).await.unwrap()).await;
        let introduction = console.introduction();
        visitor.say(introduction.expose_secret().as_bytes()).await;
        let heard = visitor.hear(b"OK").await;
        assert_eq!(heard.get(..2).unwrap_or_default(), welcome, "{release}");

        let screen = qemu.screen().await.unwrap();
        let mut viewer = Visitor::new(qemu.visit(&screen).await.unwrap()).await;
        assert_eq!(viewer.hear(b"\n").await, b"RFB 003.008\n");
    }
}
