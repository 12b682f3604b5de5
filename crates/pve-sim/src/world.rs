//! All state of one simulated PVE cluster.
//!
//! Handlers and workers see it through a mutex, one at a time, and never wait while they hold it.
//! Maps are ordered and randomness comes from one seeded generator, so a run repeats exactly.

mod build;
pub(crate) mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use crate::access::Access;
use crate::access::ticket::Key;
use crate::backup::Jobs;
use crate::clock::Clock;
use crate::console::Consoles;
use crate::failure::Failure;
use crate::firewall::Firewall;
use crate::guest::Guests;
use crate::ha::Ha;
use crate::journal::Journal;
use crate::latency::{Latency, Step};
use crate::mapping::Mappings;
use crate::node::Node;
use crate::release::Release;
use crate::replication::Replication;
use crate::resources::Reports;
use crate::sdn::Sdn;
use crate::storage::Storages;
use crate::task::Tasks;

/// The state of one PVE cluster.
#[derive(Debug, Serialize, Deserialize)]
pub struct World {
    /// The simulated release.
    pub(crate) release: Release,
    /// The cluster's name.
    pub(crate) name: String,
    pub(crate) nodes: BTreeMap<String, Node>,
    /// `datacenter.cfg`.
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) access: Access,
    pub(crate) guests: Guests,
    pub(crate) storages: Storages,
    pub(crate) tasks: Tasks,
    pub(crate) journal: Journal,
    #[serde(default)]
    pub(crate) backups: Jobs,
    #[serde(default)]
    pub(crate) ha: Ha,
    #[serde(default)]
    pub(crate) firewall: Firewall,
    #[serde(default)]
    pub(crate) sdn: Sdn,
    #[serde(default)]
    pub(crate) mappings: Mappings,
    #[serde(default)]
    pub(crate) replication: Replication,
    /// Servers that are sent statistics, with their options.
    #[serde(default)]
    pub(crate) metrics: BTreeMap<String, BTreeMap<String, String>>,
    /// What the nodes last reported.
    #[serde(skip)]
    pub(crate) reports: Reports,
    /// Which part of the network a node is in, while it is split.
    #[serde(skip)]
    pub(crate) parts: BTreeMap<String, u32>,
    /// The nodes that do not know of the others.
    #[serde(skip)]
    pub(crate) blind: BTreeSet<String>,
    /// The consoles somebody is expected at.
    #[serde(skip)]
    pub(crate) consoles: Consoles,
    #[serde(skip, default = "default_clock")]
    pub(crate) clock: Clock,
    #[serde(skip, default = "default_rng")]
    pub(crate) rng: StdRng,
    #[serde(skip)]
    pub(crate) latency: Latency,
    /// Whether a refused login takes three seconds.
    #[serde(skip)]
    pub(crate) slow_refusals: bool,
}

fn default_clock() -> Clock {
    Clock::starting_at(crate::clock::DEFAULT_EPOCH)
}

fn default_rng() -> StdRng {
    StdRng::seed_from_u64(0)
}

impl World {
    /// An empty cluster: no nodes, only `root@pam`.
    pub(crate) fn new(name: &str, release: Release, seed: u64, clock: Clock) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let key = Key::new(rng.random());
        Self {
            release,
            name: name.to_owned(),
            nodes: BTreeMap::new(),
            options: BTreeMap::new(),
            access: Access::new(release, key),
            guests: Guests::default(),
            storages: Storages::default(),
            tasks: Tasks::default(),
            journal: Journal::default(),
            backups: Jobs::default(),
            ha: Ha::default(),
            firewall: Firewall::default(),
            sdn: Sdn::default(),
            mappings: Mappings::default(),
            replication: Replication::default(),
            metrics: BTreeMap::new(),
            reports: Reports::default(),
            parts: BTreeMap::new(),
            blind: BTreeSet::new(),
            consoles: Consoles::default(),
            clock,
            rng,
            latency: Latency::none(),
            slow_refusals: true,
        }
    }

    /// Goes on after the state was kept in a file: with another clock and other random numbers.
    pub(crate) fn resume(&mut self, seed: u64, clock: Clock) {
        self.clock = clock;
        // Not the numbers of the first run again, or new guests would get old addresses.
        self.rng = StdRng::seed_from_u64(seed ^ clock.now());
        self.access.release = self.release;
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// A random UUID.
    pub(crate) fn uuid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.rng.random())
            .into_uuid()
            .to_string()
    }

    /// The time a step takes this once.
    pub(crate) fn step_time(&mut self, step: Step) -> Duration {
        self.latency.step(step, &mut self.rng)
    }

    /// The node, if it is part of the cluster.
    pub(crate) fn node(&self, name: &str) -> Result<&Node, Failure> {
        self.nodes
            .get(name)
            .ok_or_else(|| Failure::die(format!("no such cluster node '{name}'")))
    }

    /// The nodes that `entry` knows to be in its cluster.
    pub(crate) fn members<'a>(
        &'a self,
        entry: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Node)> {
        let alone = self.blind.contains(entry);
        let nodes = self.nodes.iter();
        nodes.filter(move |(name, _)| !alone || *name == entry)
    }

    /// Whether `to` is up and not cut off from `from`.
    pub(crate) fn reaches(&self, from: &str, to: &str) -> bool {
        self.nodes.get(to).is_some_and(|node| node.up)
            && (from == to || self.part_of(from) == self.part_of(to))
    }

    fn part_of(&self, node: &str) -> u32 {
        self.parts.get(node).copied().unwrap_or_default()
    }

    /// Whether the part of the cluster that `node` is in has more than half of all votes.
    pub(crate) fn quorate(&self, node: &str) -> bool {
        let together = self
            .nodes
            .keys()
            .filter(|other| self.reaches(node, other))
            .count();
        together * 2 > self.nodes.len()
    }

    /// Fails unless the cluster's configuration can be written on `node`.
    pub(crate) fn need_quorum(&self, node: &str) -> Result<(), Failure> {
        if self.quorate(node) {
            Ok(())
        } else {
            Err(Failure::die("cluster not ready - no quorum?"))
        }
    }
}
