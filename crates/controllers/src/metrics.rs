//! What the controllers count.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Counters of the controllers; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    looks: Family<Look, Counter>,
    engine: Engine,
}

/// The engine that is at work just now: each time this process leads, it begins with a new one.
#[derive(Clone, Debug, Default)]
struct Engine(Arc<Mutex<Option<fleet::Metrics>>>);

impl Collector for Engine {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(metrics) => metrics.encode(encoder),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Look {
    kind: String,
    result: &'static str,
}

impl Metrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "oxmox_reconciles",
            "Objects looked at, by kind and result",
            metrics.looks.clone(),
        );
        registry.register_collector(Box::new(metrics.engine.clone()));
        metrics
    }

    /// Reads this engine from now on.
    pub(crate) fn follow(&self, fleet: &fleet::Fleet) {
        let mut current = self.engine.0.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(fleet.metrics());
    }

    pub(crate) fn looked(&self, kind: &str, succeeded: bool) {
        let result = if succeeded { "success" } else { "error" };
        self.looks
            .get_or_create(&Look {
                kind: kind.to_owned(),
                result,
            })
            .inc();
    }
}
