//! What the controllers count.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Counters of the controllers; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    looks: Family<Look, Counter>,
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
        metrics
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
