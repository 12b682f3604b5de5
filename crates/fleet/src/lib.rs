//! What is known and done across Proxmox VE clusters.
//!
//! A [`Fleet`] brings guests into being, keeps them as declared and takes them away, on any number
//! of PVE clusters. It knows neither Kubernetes nor who is asking: a VM API, Cluster API and an
//! autoscaler are front-ends that all come through the same door.
//!
//! # The door
//!
//! A caller describes one guest completely ([`GuestIntent`]), hands in what it was told to remember
//! ([`GuestRecord`]) and is told where the matter stands ([`GuestProgress`]):
//!
//! ```no_run
//! # async fn example(fleet: fleet::Fleet, intent: fleet::GuestIntent) {
//! # let mut record = fleet::GuestRecord::default();
//! # async fn store(_: &fleet::GuestRecord) {}
//! loop {
//!     let progress = fleet.guest(&intent, &record).await;
//!     if progress.record != record {
//!         store(&progress.record).await; // before the next call
//!         record = progress.record;
//!     }
//!     match progress.outcome {
//!         fleet::Outcome::Persist => continue,             // nothing was done yet: call again
//!         fleet::Outcome::Settled => break,                // as declared
//!         _ => { /* come back when `fleet.wakes()` names the owner */ }
//!     }
//! }
//! # }
//! ```
//!
//! A call never waits for a PVE task. It does the next steps and returns; the cluster's watcher sees
//! tasks end and states change, and names exactly the owners concerned on [`Fleet::wakes`]. A
//! caller that also comes back on its own now and then does no harm: asking again changes nothing
//! and, for a guest at rest, costs no request.
//!
//! # Why it is safe
//!
//! - **Identity before action.** VMID, UUID and hardware addresses are chosen and handed back to be
//!   stored ([`Outcome::Persist`]) before the first call that changes anything. The call that makes the
//!   guest carries its owner's mark ([`mark`]). After a crash at any point the next call finds its
//!   own work and goes on; it cannot make a second guest, because the VMID is the same.
//! - **The task's end is the truth.** What PVE lists is up to ten seconds old and confirms nothing.
//! - **Don't know never deletes.** Before anything is changed on a guest, its mark has been read from its
//!   configuration. That something is gone is believed only when PVE says the VMID is free.
//!
//! # Inside
//!
//! [`intent`] is what is wanted, [`record`] what must not be forgotten, [`facts`] what is known. `place` chooses
//! a node, `desired` renders PVE's keys, `diff` compares, `plan` lists the steps; all four are pure. `watcher` looks at
//! a cluster, `tasks` and `gate` count what is under way, and `guest` does the steps.

mod action;
pub mod cloudinit;
mod cluster;
mod desired;
mod diff;
pub mod facts;
mod fleet;
mod gate;
mod guest;
mod habit;
mod image;
pub mod intent;
pub mod iso;
pub mod mark;
mod metrics;
mod names;
mod place;
mod plan;
mod progress;
mod prop;
pub mod record;
mod size;
mod survey;
mod tasks;
mod trouble;
mod view;
mod wakes;
mod watcher;

pub use self::desired::Invalid;
pub use self::facts::{ClusterFacts, GuestFacts, PowerFact};
pub use self::fleet::{Fleet, Options};
pub use self::intent::GuestIntent;
pub use self::metrics::Metrics;
pub use self::names::{ClusterName, Error as NameError, Owner};
pub use self::progress::{
    ActionFacts, ActionProgress, Event, Failure, GuestProgress, ImageFacts, ImageProgress, Outcome,
    Progress, Waiting,
};
pub use self::record::{ActionRecord, GuestRecord, Identity, ImageRecord, Reverting, StepKind};
pub use self::size::Size;
pub use self::wakes::WakeStream;
pub use pve::{NodeName, StorageId, Upid, Vmid};
