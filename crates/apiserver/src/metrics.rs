//! What `/metrics` tells.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    group: String,
    resource: String,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stored {
    resource: String,
}

/// The server's counters, under the names kube-apiserver gives them.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    durations: Histogram,
    objects: Family<Stored, Gauge>,
    revision: Gauge<u64, AtomicU64>,
    watches: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let requests = Family::<Request, Counter>::default();
        registry.register(
            "apiserver_request",
            "Requests by verb, resource and status code",
            requests.clone(),
        );
        let durations = Histogram::new([
            0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
        ]);
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to answer, watches left out",
            durations.clone(),
        );
        let objects = Family::<Stored, Gauge>::default();
        registry.register(
            "apiserver_storage_objects",
            "Objects in the store by resource",
            objects.clone(),
        );
        let revision = Gauge::<u64, AtomicU64>::default();
        registry.register(
            "apiserver_storage_revision",
            "The newest revision of the store",
            revision.clone(),
        );
        let watches = Gauge::default();
        registry.register(
            "apiserver_longrunning_requests",
            "Watches that are open",
            watches.clone(),
        );
        Self {
            registry,
            requests,
            durations,
            objects,
            revision,
            watches,
        }
    }

    pub(crate) fn answered(
        &self,
        verb: &'static str,
        group: &str,
        resource: &str,
        code: u16,
        seconds: f64,
    ) {
        self.requests
            .get_or_create(&Request {
                verb,
                group: group.to_owned(),
                resource: resource.to_owned(),
                code,
            })
            .inc();
        if verb != "watch" {
            self.durations.observe(seconds);
        }
    }

    /// Counts a watch as open until the guard is dropped.
    pub(crate) fn watching(self: &Arc<Self>) -> Watching {
        self.watches.inc();
        Watching(Arc::clone(self))
    }

    /// The text of `/metrics`.
    pub(crate) fn render(&self, store: &Store) -> String {
        for (resource, count) in store.counts() {
            let resource = resource.trim_start_matches('/').to_owned();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.objects.get_or_create(&Stored { resource }).set(count);
        }
        self.revision
            .inner()
            .store(store.revision(), Ordering::Relaxed);
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut out, &self.registry);
        out
    }
}

pub(crate) struct Watching(Arc<Metrics>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watches.dec();
    }
}
