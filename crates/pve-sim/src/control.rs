//! What tests do to a simulation from outside PVE's API: inject faults and read counters.

mod fault;
mod guest;
pub(crate) mod http;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

pub use fault::{Action, Fault};

/// Faults to come and requests that were.
#[derive(Debug)]
pub struct Control {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    faults: BTreeMap<u64, fault::Armed>,
    next: u64,
    counts: BTreeMap<String, u64>,
    hits: BTreeMap<&'static str, u64>,
    files: BTreeMap<String, Bytes>,
    rng: StdRng,
}

impl Control {
    pub(crate) fn new(seed: u64) -> Self {
        // A generator of its own: injecting a fault must not change what the world draws.
        let rng = StdRng::seed_from_u64(seed ^ 0x5eed_fa17);
        let state = State {
            faults: BTreeMap::new(),
            next: 1,
            counts: BTreeMap::new(),
            hits: BTreeMap::new(),
            files: BTreeMap::new(),
            rng,
        };
        Self {
            state: Mutex::new(state),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Injects a fault; the number removes it again.
    pub fn inject(&self, fault: Fault) -> u64 {
        self.with(|state| {
            let id = state.next;
            state.next += 1;
            state.faults.insert(id, fault::Armed::new(fault));
            id
        })
    }

    /// Removes a fault; says whether there was one.
    pub fn remove(&self, id: u64) -> bool {
        self.with(|state| state.faults.remove(&id).is_some())
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.with(|state| state.faults.clear());
    }

    /// All faults by number.
    pub fn faults(&self) -> BTreeMap<u64, Fault> {
        self.with(|state| {
            state
                .faults
                .iter()
                .map(|(id, armed)| (*id, armed.fault.clone()))
                .collect()
        })
    }

    /// Requests so far by route, such as `GET /nodes/{node}/status`.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.with(|state| state.counts.clone())
    }

    /// Requests so far in all.
    pub fn total(&self) -> u64 {
        self.with(|state| state.counts.values().sum())
    }

    /// Forgets all counts.
    pub fn reset_counts(&self) {
        self.with(|state| state.counts.clear());
    }

    /// Requests so far that faults have hit, by the name of what was done to them.
    pub fn hits(&self) -> BTreeMap<&'static str, u64> {
        self.with(|state| state.hits.clone())
    }

    /// Lets `download-url` find a file at this address, without any network.
    pub fn serve(&self, url: impl Into<String>, content: impl Into<Bytes>) {
        let (url, content) = (url.into(), content.into());
        self.with(|state| state.files.insert(url, content));
    }

    /// The file that is served at an address.
    pub(crate) fn served(&self, url: &str) -> Option<Bytes> {
        self.with(|state| state.files.get(url).cloned())
    }

    /// Counts a request and says which fault hits it.
    pub(crate) fn arrive(&self, route: &str, path: &str) -> Option<Action> {
        self.with(|state| {
            match state.counts.get_mut(route) {
                Some(count) => *count += 1,
                None => {
                    state.counts.insert(route.to_owned(), 1);
                }
            }
            if state.faults.is_empty() {
                return None;
            }
            let State {
                faults, rng, hits, ..
            } = state;
            let hit = faults.iter_mut().find_map(|(id, armed)| {
                armed
                    .hits(route, path, rng)
                    .map(|action| (*id, action, armed.is_spent()))
            });
            let (id, action, spent) = hit?;
            if spent {
                faults.remove(&id);
            }
            *hits.entry(action.name()).or_default() += 1;
            Some(action)
        })
    }
}
