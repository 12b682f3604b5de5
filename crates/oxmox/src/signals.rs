//! Being asked to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves on Ctrl-C or SIGTERM.
pub(crate) async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}
