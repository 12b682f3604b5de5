//! The simulator on real sockets.

use pve_sim::{Action, Fault, Server, Simulator, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn raw(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_status_line_carries_the_message_and_the_headers_are_pves() {
    let simulator = Simulator::builder().build();
    let cluster = simulator.clusters().next().unwrap();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(cluster.endpoint("pve1"), loopback, None)
        .await
        .unwrap();
    let request = "GET /api2/json/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = raw(server.address(), request).await;
    assert!(answer.starts_with("HTTP/1.1 401 No ticket\r\n"), "{answer}");
    assert!(
        answer.contains("Server: pve-api-daemon/3.0\r\n"),
        "{answer}"
    );
    assert!(answer.contains("Pragma: no-cache\r\n"), "{answer}");
}

#[tokio::test]
async fn a_lost_answer_closes_the_connection() {
    let simulator = Simulator::builder().build();
    let cluster = simulator.clusters().next().unwrap();
    cluster
        .control()
        .inject(Fault::once("GET /access/domains", Action::DropAnswer));
    let loopback = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(cluster.endpoint("pve1"), loopback, None)
        .await
        .unwrap();
    let request = "GET /api2/json/access/domains HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(raw(server.address(), request).await, "");
    assert!(
        raw(server.address(), request)
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[test]
fn a_certificate_has_a_fingerprint_as_pve_shows_it() {
    let tls = Tls::self_signed(&["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    assert_eq!(tls.fingerprint().split(':').count(), 32);
    let other = Tls::self_signed(&["localhost".to_owned()]).unwrap();
    assert_ne!(tls.fingerprint(), other.fingerprint());
}
