//! How long things take.
//!
//! Requests and steps of tasks have a typical time and a slow one (about one in twenty is slower);
//! each occurrence draws between them from the world's random numbers, so a run repeats exactly.
//! The built-in model (`real`) has times as measured on a small quiet PVE host; `none` makes
//! everything immediate, which leaves only delays that are behaviour (timeouts, refused logins).

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

/// A step of a task whose time the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Allocating one new disk.
    Allocate,
    /// Writing a new guest's configuration.
    Create,
    /// Making one linked clone.
    CloneLinked,
    /// The fixed part of a full clone.
    CloneFull,
    /// Copying one GiB of data.
    CopyGib,
    /// Starting a guest.
    Start,
    /// Killing a guest.
    Stop,
    /// Pausing a guest.
    Suspend,
    /// Continuing a guest.
    Resume,
    /// Resetting a guest.
    Reset,
    /// Growing a disk.
    Resize,
    /// Taking a snapshot.
    Snapshot,
    /// Going back to a snapshot.
    Rollback,
    /// Removing a snapshot.
    DeleteSnapshot,
    /// Destroying a guest and its disks.
    Destroy,
    /// Turning a guest into a template.
    Template,
    /// Removing one volume.
    FreeVolume,
    /// Changing a configuration in the background.
    Configure,
    /// The fixed part of a migration.
    Migrate,
    /// Moving one GiB of memory to another node.
    MigrateGib,
    /// From the start of a guest until its operating system is up.
    Boot,
    /// A guest that shuts itself down.
    Shutdown,
    /// What a worker does once it sees that a guest has shut itself down.
    CleanUp,
    /// Storing an uploaded or downloaded file.
    StoreFile,
    /// Backing up or restoring one GiB.
    BackupGib,
    /// Reloading the network of a node.
    ReloadNetwork,
    /// A worker that only has to look and report.
    Nothing,
}

/// A typical and a slow time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of all take less.
    pub median_ms: f64,
    /// One in twenty takes longer.
    pub p95_ms: f64,
}

impl Spread {
    const fn of(median_ms: f64, p95_ms: f64) -> Self {
        Self { median_ms, p95_ms }
    }

    fn draw(self, rng: &mut StdRng) -> Duration {
        let span = self.p95_ms - self.median_ms;
        if span <= 0.0 {
            return Duration::from_secs_f64(self.median_ms.max(0.0) / 1000.0);
        }
        let place: f64 = rng.random();
        // Linear around the median, with a tail beyond the 95th percentile.
        let ms = if place < 0.5 {
            self.median_ms - span.min(self.median_ms * 0.4) * (0.5 - place)
        } else {
            self.median_ms + span * (place - 0.5) / 0.45
        };
        Duration::from_secs_f64(ms.max(0.0) / 1000.0)
    }
}

/// A latency model that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the latency model cannot be read: {0}")]
pub struct UnusableModel(String);

/// The latency model of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// By route: `GET /nodes/{node}/status`.
    #[serde(default)]
    pub requests: BTreeMap<String, Spread>,
    /// For reading calls that are not listed.
    #[serde(default)]
    pub reads: Option<Spread>,
    /// For changing calls that are not listed.
    #[serde(default)]
    pub changes: Option<Spread>,
    /// By step.
    #[serde(default)]
    pub steps: BTreeMap<Step, Spread>,
}

const REQUESTS: &[(&str, Spread)] = &[
    ("GET /version", Spread::of(1.2, 2.0)),
    ("GET /nodes", Spread::of(1.9, 2.1)),
    ("GET /nodes/{node}/status", Spread::of(1.6, 2.0)),
    ("GET /cluster/resources", Spread::of(2.1, 2.9)),
    ("GET /cluster/status", Spread::of(11.0, 16.0)),
    ("GET /cluster/tasks", Spread::of(2.0, 4.3)),
    ("GET /nodes/{node}/qemu", Spread::of(16.0, 27.0)),
    (
        "GET /nodes/{node}/qemu/{vmid}/status/current",
        Spread::of(15.0, 21.0),
    ),
    (
        "GET /nodes/{node}/qemu/{vmid}/snapshot",
        Spread::of(12.0, 14.5),
    ),
    (
        "GET /nodes/{node}/tasks/{upid}/status",
        Spread::of(12.0, 16.5),
    ),
    ("GET /nodes/{node}/tasks/{upid}/log", Spread::of(11.0, 15.0)),
    ("GET /nodes/{node}/tasks", Spread::of(10.0, 13.0)),
    ("GET /nodes/{node}/storage", Spread::of(40.0, 63.0)),
    (
        "GET /nodes/{node}/storage/{storage}/status",
        Spread::of(35.0, 58.0),
    ),
    (
        "GET /nodes/{node}/storage/{storage}/content",
        Spread::of(150.0, 300.0),
    ),
    ("GET /nodes/{node}/network", Spread::of(25.0, 30.0)),
    ("POST /access/ticket", Spread::of(93.0, 126.0)),
    (
        "PUT /nodes/{node}/qemu/{vmid}/config",
        Spread::of(23.0, 40.0),
    ),
];

const STEPS: &[(Step, Spread)] = &[
    (Step::Allocate, Spread::of(60.0, 110.0)),
    (Step::Create, Spread::of(90.0, 130.0)),
    (Step::CloneLinked, Spread::of(180.0, 240.0)),
    (Step::CloneFull, Spread::of(350.0, 440.0)),
    (Step::CopyGib, Spread::of(800.0, 1000.0)),
    (Step::Start, Spread::of(300.0, 400.0)),
    (Step::Stop, Spread::of(1100.0, 1130.0)),
    (Step::Suspend, Spread::of(50.0, 65.0)),
    (Step::Resume, Spread::of(40.0, 65.0)),
    (Step::Reset, Spread::of(55.0, 75.0)),
    (Step::Resize, Spread::of(165.0, 200.0)),
    (Step::Snapshot, Spread::of(115.0, 150.0)),
    (Step::Rollback, Spread::of(115.0, 150.0)),
    (Step::DeleteSnapshot, Spread::of(110.0, 170.0)),
    (Step::Destroy, Spread::of(55.0, 85.0)),
    (Step::Template, Spread::of(150.0, 160.0)),
    (Step::FreeVolume, Spread::of(20.0, 40.0)),
    (Step::Configure, Spread::of(60.0, 110.0)),
    (Step::Migrate, Spread::of(1500.0, 2500.0)),
    (Step::MigrateGib, Spread::of(1000.0, 1500.0)),
    (Step::Boot, Spread::of(15_000.0, 30_000.0)),
    (Step::Shutdown, Spread::of(4000.0, 9000.0)),
    (Step::CleanUp, Spread::of(110.0, 110.0)),
    (Step::StoreFile, Spread::of(60.0, 120.0)),
    (Step::BackupGib, Spread::of(2500.0, 4000.0)),
    (Step::ReloadNetwork, Spread::of(900.0, 1500.0)),
    (Step::Nothing, Spread::of(20.0, 40.0)),
];

impl Latency {
    /// Nothing takes time.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads a model from YAML: `requests`, `reads`, `changes` and `steps`, each with `median_ms`
    /// and `p95_ms`. What is left out takes no time.
    pub fn parse(yaml: &str) -> Result<Self, UnusableModel> {
        serde_saphyr::from_str(yaml).map_err(|error| UnusableModel(error.to_string()))
    }

    /// Times as on a small real host.
    pub fn real() -> Self {
        Self {
            requests: REQUESTS
                .iter()
                .map(|(name, time)| ((*name).to_owned(), *time))
                .collect(),
            reads: Some(Spread::of(1.8, 4.5)),
            changes: Some(Spread::of(32.0, 50.0)),
            steps: STEPS.iter().copied().collect(),
        }
    }

    /// Whether nothing takes time.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::none()
    }

    pub(crate) fn request(&self, route: &str, changes: bool, rng: &mut StdRng) -> Duration {
        let other = if changes { self.changes } else { self.reads };
        let spread = self.requests.get(route).copied().or(other);
        spread.map_or(Duration::ZERO, |spread| spread.draw(rng))
    }

    pub(crate) fn step(&self, step: Step, rng: &mut StdRng) -> Duration {
        self.steps
            .get(&step)
            .map_or(Duration::ZERO, |spread| spread.draw(rng))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn draws_repeat_by_seed_and_lie_around_the_median() {
        let draw = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            let model = Latency::real();
            (0..200)
                .map(|_| model.step(Step::Start, &mut rng))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut times = draw(3);
        times.sort();
        assert!(times[100] > Duration::from_millis(260) && times[100] < Duration::from_millis(340));
        assert!(times.iter().all(|time| *time < Duration::from_millis(500)));
    }

    #[test]
    fn without_latency_nothing_takes_time() {
        let mut rng = StdRng::seed_from_u64(1);
        assert_eq!(Latency::none().step(Step::Boot, &mut rng), Duration::ZERO);
        assert_eq!(
            Latency::none().request("GET /version", false, &mut rng),
            Duration::ZERO
        );
    }
}
