//! TCP, and TLS where there is any, in front of what is served.
//!
//! Anybody may come. Whoever connects and then says nothing, or half of what is needed, is not waited for.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the headers of a request may take. Who speaks HTTP/2 is asked so often whether it is still there.
const HEADERS: Duration = Duration::from_secs(30);
/// How long requests under way may take once nothing is to be served any more.
const DRAIN: Duration = Duration::from_secs(5);
/// How long no connection is taken after one could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until stopped, then lets requests under way finish.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    let next = || accepted(|| listener.accept());
    while let Some(stream) = stop.run_until_cancelled(next()).await {
        // Small answers must not wait for more; an error here only costs latency.
        let _ = stream.set_nodelay(true);
        let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
        tasks.spawn(connection(stream, tls, router, stop));
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// The next connection.
async fn accepted<F, Fut>(mut accept: F) -> TcpStream
where
    F: FnMut() -> Fut,
    Fut: Future<Output = io::Result<(TcpStream, SocketAddr)>>,
{
    loop {
        match accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                // Out of file descriptors, most likely: others must end before one can begin.
                tracing::warn!(%error, "cannot accept a connection");
                time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection<S>(stream: S, tls: Option<TlsAcceptor>, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else {
        return speak(stream, false, router, stop).await;
    };
    match time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            speak(stream, http2, router, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("no TLS handshake came"),
    }
}

/// Answers on one connection. Which HTTP it is was agreed before: to tell by what comes would be to wait for that.
async fn speak<S>(stream: S, http2: bool, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (stream, service) = (TokioIo::new(stream), TowerToHyperService::new(router));
    if http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(HEADERS);
        let connection = builder.serve_connection(stream, service);
        drained(connection, http2::Connection::graceful_shutdown, stop).await;
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS);
        let connection = builder.serve_connection(stream, service).with_upgrades();
        let hang_up = http1::UpgradeableConnection::graceful_shutdown;
        drained(connection, hang_up, stop).await;
    }
}

/// Follows a connection to its end, which it is brought to once stopped.
async fn drained<C>(connection: C, hang_up: fn(Pin<&mut C>), stop: CancellationToken)
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            hang_up(connection.as_mut());
            match time::timeout(DRAIN, connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        // A caller that goes away in the middle has lost interest in the answer.
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::routing::get;
    use rustls::ServerConfig;
    use rustls::server::ResolvesServerCertUsingSni;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// What a visitor hears who says only this, and then waits for an hour.
    async fn hears(said: &str, tls: Option<TlsAcceptor>) -> Option<String> {
        let (mut visitor, ours) = tokio::io::duplex(1024);
        let router = Router::new().route("/", get(|| async { "ok" }));
        let visit = async {
            visitor.write_all(said.as_bytes()).await.unwrap();
            let mut heard = String::new();
            visitor.read_to_string(&mut heard).await.unwrap();
            heard
        };
        let served = Box::pin(connection(ours, tls, router, CancellationToken::new()));
        let both = async { tokio::join!(visit, served).0 };
        time::timeout(Duration::from_hours(1), both).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_or_half_a_request_is_not_waited_for() {
        for said in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: a\r\nAnd"] {
            let heard = hears(said, None).await;
            let heard = heard.unwrap_or_else(|| panic!("waited for after {said:?}"));
            assert!(!heard.contains("200"), "{heard}");
        }
        let whole = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        assert!(hears(whole, None).await.unwrap().ends_with("ok"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_makes_no_handshake_is_not_waited_for() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let tls = TlsAcceptor::from(Arc::new(config));
        assert_eq!(hears("", Some(tls)).await.as_deref(), Some(""));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_cannot_be_taken_are_not_asked_for_as_fast_as_that() {
        let asked = AtomicU32::new(0);
        let accept = || {
            let asked = asked.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                if asked > 1000 {
                    std::future::pending::<()>().await;
                }
                Err(io::Error::other("too many open files"))
            }
        };
        let second = time::timeout(Duration::from_secs(1), accepted(accept)).await;
        assert!(second.is_err());
        assert!(asked.load(Ordering::SeqCst) <= 11, "{asked:?}");
    }
}
