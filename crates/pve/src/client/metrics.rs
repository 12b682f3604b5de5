//! Counts calls.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::error::Error;

/// Counters and latencies per kind of call.
///
/// Cloning shares the numbers; register one set and hand clones of it to several clients.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<Labels, Counter>,
    seconds: Family<CallLabel, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    call: &'static str,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabel {
    call: &'static str,
}

/// How a call ended, in as few words as a graph needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    Ok,
    Refused,
    Denied,
    NotFound,
    Busy,
    Unreachable,
    Unknown,
    Failed,
}

impl Outcome {
    pub(crate) fn of(error: Option<&Error>) -> Self {
        match error {
            None => Self::Ok,
            Some(Error::Parameters { .. }) => Self::Refused,
            Some(Error::Unauthenticated { .. } | Error::Denied { .. } | Error::RootOnly { .. }) => {
                Self::Denied
            }
            Some(Error::NotFound { .. } | Error::StorageMissing { .. }) => Self::NotFound,
            Some(
                Error::Locked { .. } | Error::LockTimeout { .. } | Error::DigestMismatch { .. },
            ) => Self::Busy,
            Some(Error::Unreachable { .. }) => Self::Unreachable,
            Some(Error::OutcomeUnknown { .. }) => Self::Unknown,
            Some(_) => Self::Failed,
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(histogram),
        }
    }
}

impl Metrics {
    /// Makes the metrics visible as `pve_calls_total` and `pve_call_seconds`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "pve_calls",
            "Calls to Proxmox VE by kind and outcome",
            metrics.calls.clone(),
        );
        registry.register(
            "pve_call_seconds",
            "Duration of calls to Proxmox VE",
            metrics.seconds.clone(),
        );
        metrics
    }

    /// How many calls of a kind have ended, whatever their outcome.
    pub fn count(&self, call: &'static str) -> u64 {
        use Outcome::{Busy, Denied, Failed, NotFound, Ok, Refused, Unknown, Unreachable};
        [
            Ok,
            Refused,
            Denied,
            NotFound,
            Busy,
            Unreachable,
            Unknown,
            Failed,
        ]
        .into_iter()
        .filter_map(|outcome| {
            self.calls
                .get(&Labels { call, outcome })
                .map(|counter| counter.get())
        })
        .sum()
    }

    pub(crate) fn observe(&self, call: &'static str, outcome: Outcome, took: Duration) {
        self.calls.get_or_create(&Labels { call, outcome }).inc();
        self.seconds
            .get_or_create(&CallLabel { call })
            .observe(took.as_secs_f64());
    }
}

fn histogram() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ])
}
