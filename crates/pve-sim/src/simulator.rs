//! A simulation: one or several PVE clusters sharing a seed and a clock.

use std::collections::BTreeMap;

use crate::clock::{Clock, DEFAULT_EPOCH, HOST_UPTIME};
use crate::cluster::Cluster;
use crate::latency::Latency;
use crate::node::Node;
use crate::release::Release;
use crate::world::World;

/// One or several simulated PVE clusters; clones are the same simulation.
#[derive(Clone)]
pub struct Simulator {
    clusters: BTreeMap<String, Cluster>,
}

/// How to build a [`Simulator`].
#[derive(Clone, Debug)]
pub struct Builder {
    release: Release,
    seed: u64,
    root_password: String,
    latency: Latency,
    slow_refusals: bool,
    clock: Option<Clock>,
}

impl Simulator {
    /// Starts with the default world, no latency, and refusals that take no time.
    pub fn builder() -> Builder {
        Builder {
            release: Release::default(),
            seed: 0,
            root_password: "oxmox".to_owned(),
            latency: Latency::none(),
            slow_refusals: false,
            clock: None,
        }
    }

    /// The cluster of this name.
    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.get(name)
    }

    /// All clusters in the order of their names.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }
}

impl Builder {
    /// Which PVE to be.
    #[must_use]
    pub fn release(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// Where all randomness comes from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The password of `root@pam`.
    #[must_use]
    pub fn root_password(mut self, password: impl Into<String>) -> Self {
        self.root_password = password.into();
        self
    }

    /// How long things take.
    #[must_use]
    pub fn latency(mut self, latency: Latency) -> Self {
        self.latency = latency;
        self
    }

    /// Whether a refused authentication takes three seconds, as in PVE.
    #[must_use]
    pub fn slow_refusals(mut self, slow: bool) -> Self {
        self.slow_refusals = slow;
        self
    }

    /// The calendar time to show; by default a fixed one, so that runs repeat.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Builds the simulation.
    pub fn build(self) -> Simulator {
        let clock = self
            .clock
            .unwrap_or_else(|| Clock::starting_at(DEFAULT_EPOCH));
        let mut world = World::new("pve", self.release, self.seed, clock);
        for id in 1..=3 {
            world
                .nodes
                .insert(format!("pve{id}"), Node::new(id, clock.now() - HOST_UPTIME));
        }
        world.latency = self.latency;
        world.slow_refusals = self.slow_refusals;
        world.access.set_password("root@pam", &self.root_password);
        crate::guest::defaults::populate(&mut world)
            .expect("the default world fits its own storages");
        let cluster = Cluster::new(world, self.seed);
        Simulator {
            clusters: BTreeMap::from([("pve".to_owned(), cluster)]),
        }
    }
}
