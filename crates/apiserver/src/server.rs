//! The server with a file and a port: what `oxmox up` starts.
//!
//! Everything it needs is in one directory: the store, the certificate authority, the key for service account
//! tokens, and a kubeconfig for the administrator. It listens on loopback unless told otherwise.

mod kubeconfig;
mod listener;
mod papers;
mod pki;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_util::task::TaskTracker;

use crate::{
    api::{Api, Parts},
    auth::{User, tokens::Signer},
    bootstrap,
    clock::Clock,
    housekeeping::Housekeeper,
    service::ApiService,
    store::{self, Keep, Store},
    webhook,
};

/// Where a server keeps its data and where it listens.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory of the store, certificates and kubeconfig; created when missing.
    pub data_dir: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Further names and addresses the serving certificate is good for.
    pub names: Vec<String>,
    /// Bearer tokens and the users they stand for.
    pub tokens: Vec<(secrecy::SecretString, User)>,
}

impl Config {
    /// A server on loopback at a free port.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            names: Vec::new(),
            tokens: Vec::new(),
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the data directory cannot be read or written.
    #[error("cannot use {path}")]
    File {
        /// The file.
        path: String,
        /// What failed.
        #[source]
        source: std::io::Error,
    },
    /// The store cannot be opened.
    #[error("cannot open the store: {0}")]
    Store(String),
    /// A key or certificate cannot be made or used.
    #[error("cannot set up certificates: {0}")]
    Certificates(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What failed.
        #[source]
        source: std::io::Error,
    },
    /// The first objects cannot be written.
    #[error("cannot write the first objects: {0}")]
    Bootstrap(String),
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        let mut text = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            text = format!("{text}: {source}");
        }
        Self::Store(text)
    }
}

/// A running API server with a durable store.
pub struct Server {
    api: Arc<Api>,
    address: SocketAddr,
    kubeconfig: PathBuf,
    ca: String,
    tasks: TaskTracker,
    listener: JoinHandle<()>,
}

impl Server {
    /// Opens the store, prepares certificates and starts serving.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let directory = &config.data_dir;
        pki::create_private_dir(directory)?;
        let clock = Clock::system();
        let pki = pki::Pki::load_or_create(directory, &clock)?;
        let store = Store::open(&directory.join("store.redb"), Keep::default())?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(|source| Error::Listen {
                address: config.listen,
                source,
            })?;
        let address = listener.local_addr().map_err(|source| Error::Listen {
            address: config.listen,
            source,
        })?;
        let signer = Signer::new(&pki.token_key).map_err(|e| Error::Certificates(e.to_string()))?;
        let tokens = config
            .tokens
            .iter()
            .map(|(token, user)| {
                (
                    secrecy::ExposeSecret::expose_secret(token).to_owned(),
                    user.clone(),
                )
            })
            .collect();
        let api = Api::new(Parts {
            store,
            clock,
            seed: rand::random(),
            signer,
            tokens,
            root_ca: Some(pki.ca_pem.clone()),
            address: Some(address),
            webhooks: webhook::https(),
        });
        bootstrap::run(&api)
            .await
            .map_err(|status| Error::Bootstrap(status.message))?;

        let kubeconfig = directory.join("kubeconfig");
        let ca = pki.ca_pem.clone();
        let papers = papers::Papers {
            pki,
            address,
            names: config.names,
            kubeconfig: kubeconfig.clone(),
        };
        let (renewed, tls) = watch::channel(papers.tls()?);
        papers.write_kubeconfig()?;

        let tasks = TaskTracker::new();
        tasks.spawn(papers.keep(renewed, api.stop.clone()));
        tasks.spawn(Housekeeper::run(Arc::clone(&api)));
        let service = ApiService::network(Arc::clone(&api));
        let listener = tasks.spawn(listener::serve(
            listener,
            tls,
            service,
            api.stop.clone(),
            tasks.clone(),
        ));
        Ok(Self {
            api,
            address,
            kubeconfig,
            ca,
            tasks,
            listener,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL clients use.
    pub fn url(&self) -> String {
        kubeconfig::url(self.address)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// The certificate authority, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// The API as the administrator sees it, in process.
    pub fn service(&self) -> ApiService {
        self.service_as(User::admin())
    }

    /// The API as a given user sees it, in process.
    pub fn service_as(&self, user: User) -> ApiService {
        ApiService::new(Arc::clone(&self.api), user)
    }

    /// Ends watches, finishes requests under way, and closes the store.
    pub async fn shutdown(self) {
        self.api.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.api.store.close().await;
        drop(self.listener);
    }
}
