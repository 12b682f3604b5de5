//! A simulation: one or several PVE clusters sharing a seed and a clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::clock::{Clock, DEFAULT_EPOCH};
use crate::cluster::Cluster;
use crate::latency::Latency;
use crate::release::Release;
use crate::world::World;
use crate::world::file::{FileError, WorldFile};

/// One or several simulated PVE clusters; clones are the same simulation.
#[derive(Clone)]
pub struct Simulator {
    clusters: BTreeMap<String, Cluster>,
}

/// Why a simulation could not be built or saved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The world file describes something that cannot be.
    #[error(transparent)]
    World(#[from] FileError),
    /// The state file could not be read or written.
    #[error("cannot use the state file {path}")]
    State {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The state file is not one of this simulator.
    #[error("the state file {path} cannot be understood")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
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
    world: WorldFile,
    state: Option<PathBuf>,
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
            world: WorldFile::default(),
            state: None,
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

    /// Writes the state of all clusters to a file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::State {
            path: path.to_owned(),
            source,
        };
        let wrong = |source| Error::Format {
            path: path.to_owned(),
            source,
        };
        let mut worlds = BTreeMap::new();
        for (name, cluster) in &self.clusters {
            let world = cluster.world(|world| serde_json::to_value(world));
            worlds.insert(name, world.map_err(wrong)?);
        }
        let text = serde_json::to_vec(&worlds).map_err(wrong)?;
        let beside = path.with_extension("new");
        fs::write(&beside, text).map_err(failed)?;
        fs::rename(&beside, path).map_err(failed)
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

    /// The world to simulate instead of the default one.
    #[must_use]
    pub fn world(mut self, world: WorldFile) -> Self {
        self.world = world;
        self
    }

    /// Goes on from this file, if it exists. Workers that ran when it was written are dead.
    #[must_use]
    pub fn state(mut self, path: impl Into<PathBuf>) -> Self {
        self.state = Some(path.into());
        self
    }

    /// Builds the simulation of a world that is known to be sound, such as the default one.
    ///
    /// # Panics
    ///
    /// If the world file or the state file cannot be used; see [`Builder::try_build`].
    #[must_use]
    pub fn build(self) -> Simulator {
        self.try_build().expect("the world can be built")
    }

    /// Builds the simulation.
    pub fn try_build(self) -> Result<Simulator, Error> {
        let clock = self
            .clock
            .unwrap_or_else(|| Clock::starting_at(DEFAULT_EPOCH));
        let mut saved = match &self.state {
            Some(path) => load(path)?,
            None => BTreeMap::new(),
        };
        let mut clusters = BTreeMap::new();
        for (number, spec) in (0..).zip(&self.world.clusters) {
            let seed = self.seed.wrapping_add(number);
            let mut world = match saved.remove(&spec.name) {
                Some(mut world) => {
                    world.resume(seed, clock);
                    world
                }
                None => spec.build(self.release, seed, clock)?,
            };
            world.latency = self.latency.clone();
            world.slow_refusals = self.slow_refusals;
            world.access.set_password("root@pam", &self.root_password);
            clusters.insert(spec.name.clone(), Cluster::new(world, seed));
        }
        Ok(Simulator { clusters })
    }
}

fn load(path: &Path) -> Result<BTreeMap<String, World>, Error> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| Error::Format {
            path: path.to_owned(),
            source,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(source) => Err(Error::State {
            path: path.to_owned(),
            source,
        }),
    }
}
