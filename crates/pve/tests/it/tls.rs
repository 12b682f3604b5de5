//! Real TLS on loopback: who is believed and who is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use pve::tls::{Fingerprint, Trust, shown_certificate};
use pve::{Client, Error};
use rustls_pki_types::PrivateKeyDer;

use crate::fake::token;

struct Server {
    connections: Arc<AtomicUsize>,
    port: u16,
    pem: String,
    fingerprint: Fingerprint,
}

/// A server with a certificate of its own, for `localhost`.
async fn server() -> Server {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let der = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![der.clone()], key)
    .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(tcp).await else {
                    return;
                };
                let answer = |_: Request<hyper::body::Incoming>| async {
                    let body = r#"{"data":{"version":"9.2.11","release":"9.2","repoid":"x"}}"#;
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from_static(
                        body.as_bytes(),
                    ))))
                };
                let service = hyper::service::service_fn(answer);
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(tls), service)
                    .await;
            });
        }
    });
    Server {
        connections,
        port,
        pem: made.cert.pem(),
        fingerprint: Fingerprint::of(&der),
    }
}

fn client(server: &Server, trust: Trust) -> Client {
    Client::builder()
        .endpoint(format!("https://localhost:{}", server.port))
        .trust(trust)
        .credentials(token("one"))
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_pinned_certificate_is_believed_and_another_is_not() {
    let server = server().await;
    client(&server, Trust::Fingerprints(vec![server.fingerprint]))
        .version()
        .await
        .unwrap();
    let error = client(
        &server,
        Trust::Fingerprints(vec![Fingerprint::of(b"other")]),
    )
    .version()
    .await
    .unwrap_err();
    let Error::Unreachable {
        cause: Some(cause), ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert!(
        format!("{cause:?}").contains(&server.fingerprint.to_string()),
        "the error says what to pin: {cause:?}"
    );
}

#[tokio::test]
async fn an_authority_is_believed_only_for_what_it_signed() {
    let (ours, theirs) = (server().await, server().await);
    client(&ours, Trust::Authority(ours.pem.clone()))
        .version()
        .await
        .unwrap();
    assert!(
        client(&ours, Trust::Authority(theirs.pem.clone()))
            .version()
            .await
            .is_err()
    );
}

#[tokio::test]
async fn calls_share_a_connection() {
    let server = server().await;
    let client = client(&server, Trust::Fingerprints(vec![server.fingerprint]));
    for _ in 0..10 {
        client.version().await.unwrap();
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_port_nobody_listens_on_was_never_reached() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let good = server().await;
    let client = Client::builder()
        .endpoint(format!("https://localhost:{port}"))
        .endpoint(format!("https://localhost:{}", good.port))
        .trust(Trust::Fingerprints(vec![good.fingerprint]))
        .credentials(token("one"))
        .build()
        .unwrap();
    let task = "UPID:pve1:00000001:00000001:00000001:qmstart:100:a@pve:"
        .parse()
        .unwrap();
    // A change goes to the next endpoint, since it was certainly not sent; the answer there is of another form.
    let error = client.stop_task(&task).await.unwrap_err();
    assert!(matches!(error, Error::Decode { .. }), "{error:?}");
}

#[tokio::test]
async fn insecure_is_a_choice_by_name() {
    let server = server().await;
    client(&server, Trust::Insecure).version().await.unwrap();
}

#[tokio::test]
async fn the_fingerprint_to_pin_can_be_asked_for() {
    let server = server().await;
    let shown = shown_certificate("localhost", server.port, Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!(Fingerprint::of(&shown), server.fingerprint);
}
