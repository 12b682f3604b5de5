//! A server without file or network, for tests and simulations.

use std::sync::Arc;

use futures::FutureExt as _;

use crate::{
    api::{Api, Parts},
    auth::{
        User,
        tokens::{Signer, StaticTokens},
    },
    bootstrap,
    clock::Clock,
    housekeeping::Housekeeper,
    service::ApiService,
    store::{Keep, Store},
    webhook,
};

/// An API server that lives in memory and repeats itself exactly for the same seed and requests.
///
/// Must be made inside a tokio runtime; its background work ends when it is dropped.
pub struct InMemory {
    api: Arc<Api>,
}

impl Default for InMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl InMemory {
    /// A server that starts at the machine's time, with seed zero.
    pub fn new() -> Self {
        Self::with(Clock::at(Clock::system().now()), 0)
    }

    /// A server with a given clock, and a seed for uids and generated names.
    pub fn with(clock: Clock, seed: u64) -> Self {
        Self::with_webhooks(clock, seed, webhook::https())
    }

    /// The same, with webhooks reached through `transport` instead of over sockets.
    pub fn with_webhooks(clock: Clock, seed: u64, transport: webhook::Transport) -> Self {
        let key = Signer::generate().expect("the system gives random numbers");
        let api = Api::new(Parts {
            store: Store::in_memory(Keep::default()),
            clock,
            seed,
            signer: Signer::new(&key).expect("the key was just made"),
            tokens: StaticTokens::new(),
            root_ca: None,
            address: None,
            webhooks: transport,
        });
        // A store in memory never waits, so neither does this.
        bootstrap::run(&api)
            .now_or_never()
            .expect("writing to memory does not wait")
            .expect("the first objects are valid");
        tokio::spawn(Housekeeper::run(Arc::clone(&api)));
        Self { api }
    }

    /// The API as the administrator sees it.
    pub fn service(&self) -> ApiService {
        self.service_as(User::admin())
    }

    /// The API as a given user sees it.
    pub fn service_as(&self, user: User) -> ApiService {
        ApiService::new(Arc::clone(&self.api), user)
    }

    /// Forgets all history up to now, so that watches of older revisions are refused.
    pub fn compact(&self) {
        self.api.store.compact_to(self.api.store.revision());
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.api.stop.cancel();
    }
}
