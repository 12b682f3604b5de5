//! What the server shows and hands out that runs out after a year: its certificate, and the administrator's in the kubeconfig.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{sync::watch, time};
use tokio_util::sync::CancellationToken;

use super::{Error, kubeconfig, pki};

/// How often they are made anew: there are many attempts in a year.
const RENEWAL: Duration = Duration::from_hours(24 * 30);

/// What it takes to make them.
pub(super) struct Papers {
    pub(super) pki: pki::Pki,
    pub(super) address: SocketAddr,
    pub(super) names: Vec<String>,
    pub(super) kubeconfig: PathBuf,
}

impl Papers {
    /// What connections are taken with.
    pub(super) fn tls(&self) -> Result<Arc<ServerConfig>, Error> {
        self.pki.server_config(self.address, &self.names)
    }

    /// Writes the administrator's kubeconfig.
    pub(super) fn write_kubeconfig(&self) -> Result<(), Error> {
        let admin = self.pki.client("kubernetes-admin", &["system:masters"])?;
        let text = kubeconfig::render(self.address, &self.pki.ca_pem, &admin);
        pki::write_private(&self.kubeconfig, text.as_bytes())
    }

    /// Makes both anew by and by, until stopped. What was handed out before stays good for its time.
    pub(super) async fn keep(self, tls: watch::Sender<Arc<ServerConfig>>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = time::sleep(RENEWAL) => {}
            }
            let renewed = self.tls().map(|config| drop(tls.send(config)));
            if let Err(error) = renewed.and_then(|()| self.write_kubeconfig()) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the server's certificate or the kubeconfig was not renewed; trying again"
                );
            }
        }
    }
}
