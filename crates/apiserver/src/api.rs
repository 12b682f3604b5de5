//! The handlers: one set for all kinds.
//!
//! [`Api`] is the server without transport: a request in, an answer out. A request is authenticated and
//! authorised by the time it gets here. Reading goes straight to the store; every write takes the
//! same road: decode, prune and default, admission, validation, field ownership, commit with a
//! precondition.

mod addresses;
mod admission;
pub(crate) mod context;
mod convert;
mod crds;
mod create;
mod decode;
mod delete;
mod discovery;
mod dispatch;
mod effects;
mod escalation;
mod eviction;
mod list;
mod meta;
mod patch;
pub(crate) mod plugins;
pub(crate) mod render;
mod reviews;
mod strategy;
mod subresource;
mod table;
mod typed;
mod update;
mod watch;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

pub(crate) use self::{
    crds::{CLEANUP, CRDS},
    delete::{Options as DeleteOptions, Policy},
    dispatch::failure,
    update::{Address, By},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use tokio_util::sync::CancellationToken;

use crate::{
    admission as admission_hooks,
    auth::{
        rbac,
        tokens::{Signer, StaticTokens},
    },
    clock::Clock,
    metrics::Metrics,
    registry::{Kinds, Registry},
    store::Store,
    webhook,
};

/// The server's parts, shared by all requests.
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    random: Mutex<StdRng>,
    pub(crate) signer: Signer,
    pub(crate) tokens: StaticTokens,
    pub(crate) policies: rbac::Cache,
    hooks: admission_hooks::Cache,
    /// Carries reviews to webhooks.
    webhooks: webhook::Transport,
    /// The certificate authority that clients in the cluster shall trust.
    pub(crate) root_ca: Option<String>,
    /// Where clients find the server, if it listens.
    address: Option<SocketAddr>,
    pub(crate) metrics: Arc<Metrics>,
    openapi: discovery::openapi::Cache,
    /// The addresses and ports that services have.
    services: addresses::Taken,
    /// Ends watches and background work.
    pub(crate) stop: CancellationToken,
}

/// What a server is made of.
pub(crate) struct Parts {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    pub(crate) signer: Signer,
    pub(crate) tokens: StaticTokens,
    pub(crate) root_ca: Option<String>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) webhooks: webhook::Transport,
}

impl Api {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let api = Arc::new(Self {
            store: parts.store,
            registry: Registry::new(),
            clock: parts.clock,
            random: Mutex::new(StdRng::seed_from_u64(parts.seed)),
            signer: parts.signer,
            tokens: parts.tokens,
            policies: rbac::Cache::default(),
            hooks: admission_hooks::Cache::default(),
            webhooks: parts.webhooks,
            root_ca: parts.root_ca,
            address: parts.address,
            metrics: Arc::new(Metrics::new()),
            openapi: discovery::openapi::Cache::default(),
            services: addresses::Taken::default(),
            stop: CancellationToken::new(),
        });
        api.load_crds();
        api
    }

    pub(crate) fn kinds(&self) -> Arc<Kinds> {
        self.registry.kinds()
    }

    /// A new object's uid.
    pub(crate) fn new_uid(&self) -> String {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        uuid::Builder::from_random_bytes(random.random())
            .into_uuid()
            .to_string()
    }

    pub(crate) fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.random()
    }

    /// The five letters `generateName` appends; the alphabet avoids vowels and look-alikes.
    pub(crate) fn name_suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        (0..5)
            .map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())]))
            .collect()
    }
}
