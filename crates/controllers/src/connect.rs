//! How a Proxmox VE cluster is reached: handed in, so that tests reach a simulator in the same process.

use std::{fmt, sync::Arc};

use pve::{Client, Credentials, tls::Trust};

/// Everything needed to reach one Proxmox VE cluster.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Addresses of its nodes, the preferred one first.
    pub endpoints: Vec<String>,
    /// Which certificates to believe.
    pub trust: Trust,
    /// Who we are there.
    pub credentials: Credentials,
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to Proxmox VE: {0}")]
pub struct ConnectError(pub String);

/// Makes clients of Proxmox VE clusters.
#[derive(Clone)]
pub struct Connector(Arc<Connect>);

type Connect = dyn Fn(&Connection) -> Result<Client, ConnectError> + Send + Sync;

impl Connector {
    /// A connector that does what `connect` does.
    pub fn new(
        connect: impl Fn(&Connection) -> Result<Client, ConnectError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(connect))
    }

    /// Connects over HTTPS; the calls of all clients are counted together in `metrics`.
    pub fn https(metrics: pve::Metrics) -> Self {
        Self::new(move |to| {
            let mut builder = Client::builder().metrics(metrics.clone());
            for endpoint in &to.endpoints {
                builder = builder.endpoint(endpoint);
            }
            builder
                .trust(to.trust.clone())
                .credentials(to.credentials.clone())
                .build()
                .map_err(|error| ConnectError(error.to_string()))
        })
    }

    pub(crate) fn connect(&self, to: &Connection) -> Result<Client, ConnectError> {
        (self.0)(to)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}
