//! TCP and TLS in front of the service.

use std::{sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::service::ApiService;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests under way may take once the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts connections until stopped, each with what `tls` is then.
pub(super) async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    service: ApiService,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
                let task = connection(stream, acceptor, service.clone(), stop.clone());
                tasks.spawn(task);
            }
            Err(error) => {
                // Out of file descriptors, most likely: others must end before one can begin.
                tracing::warn!(%error, "cannot accept a connection");
                time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: ApiService,
    stop: CancellationToken,
) {
    // Small answers must not wait for more; an error here only costs latency.
    let _ = stream.set_nodelay(true);
    let stream = match time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|der| der.to_vec());
    let service = service.of_connection(certificate.as_deref());
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection =
        builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match time::timeout(DRAIN_TIMEOUT, connection).await {
                Ok(result) => result,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}
