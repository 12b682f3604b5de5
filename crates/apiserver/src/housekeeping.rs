//! What a cluster does by itself: garbage collection, emptying namespaces and definitions that go away.
//!
//! One task follows the store's history and does everything here, through the same handlers that clients
//! use. It keeps only what it needs to find work quickly: who depends on whom. Everything else is
//! read when the work is done, so a restart or a lost race costs nothing but another look.

mod definitions;
mod events;
mod garbage;
mod namespaces;
mod protection;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time;

use self::garbage::Graph;
use crate::{
    api::{Api, CRDS, context::Context},
    store::Entry,
};

/// Work that failed is tried again after this long.
const RETRY: Duration = Duration::from_secs(5);
/// How often old events are looked for.
const EVENT_SWEEP: Duration = Duration::from_mins(10);

pub(crate) struct Housekeeper {
    api: Arc<Api>,
    context: Context,
    graph: Graph,
    /// Claims and volumes that are deleted and may be in use: storage and key.
    leaving: BTreeSet<(String, String)>,
    /// The keys of definitions that are deleted and may have objects left. Definitions are large: reading all of them
    /// after every change would cost more than the change.
    departing: BTreeSet<String>,
    /// The revision up to which the history is known.
    seen: u64,
}

impl Housekeeper {
    /// Follows the history until the server stops.
    pub(crate) async fn run(api: Arc<Api>) {
        let stop = api.stop.clone();
        let mut changes = api.store.changes();
        let mut keeper = Self {
            context: Context::internal("system:kube-controller-manager", "kube-controller-manager"),
            graph: Graph::default(),
            leaving: BTreeSet::new(),
            departing: BTreeSet::new(),
            seen: 0,
            api,
        };
        keeper.rescan();
        let mut sweep = time::Instant::now() + EVENT_SWEEP;
        loop {
            changes.borrow_and_update();
            keeper.catch_up();
            let busy = keeper.work().await;
            let wake = if busy {
                time::Instant::now() + RETRY
            } else {
                sweep
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = time::sleep_until(wake.min(sweep)) => {}
            }
            if time::Instant::now() >= sweep {
                sweep = time::Instant::now() + EVENT_SWEEP;
                keeper.expire_events().await;
            }
        }
    }

    /// Reads everything there is.
    fn rescan(&mut self) {
        self.graph = Graph::default();
        self.seen = self.api.store.revision();
        for (storage, _) in self.api.store.counts() {
            if let Ok(snapshot) = self.api.store.list(&storage, "", None) {
                for entry in &snapshot.entries {
                    self.graph.put(&storage, entry);
                    self.note_leaving(&storage, entry);
                }
            }
        }
        self.graph.doubt_all();
    }

    /// Takes in what happened since the last look.
    fn catch_up(&mut self) {
        match self.api.store.all_events(self.seen) {
            Ok((events, revision)) => {
                for event in events {
                    if event.deleted {
                        self.graph.gone(&event);
                    } else {
                        self.graph.put(&event.resource, &event.entry);
                        self.note_leaving(&event.resource, &event.entry);
                    }
                }
                self.seen = revision;
            }
            Err(_) => self.rescan(),
        }
    }

    fn note_leaving(&mut self, storage: &str, entry: &Entry) {
        if matches!(storage, protection::CLAIMS | protection::VOLUMES)
            && crate::object::is_deleting(&entry.value())
        {
            self.leaving
                .insert((storage.to_owned(), entry.key.to_string()));
        }
        if storage == CRDS && crate::object::is_deleting(&entry.value()) {
            self.departing.insert(entry.key.to_string());
        }
    }

    /// Does what can be done now; true when something must be tried again later.
    async fn work(&mut self) -> bool {
        let volumes = self.release_volumes().await;
        let garbage = self.collect_garbage().await;
        let namespaces = self.empty_namespaces().await;
        let definitions = self.empty_definitions().await;
        volumes || garbage || namespaces || definitions
    }
}
