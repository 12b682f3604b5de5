//! The whole system in one process: API server, controllers, simulated Proxmox VE, on a clock that jumps.
//!
//! A [`Bed`] is what scenarios lie on. Everything in it is real except Proxmox VE: objects go through the API
//! server's validation, the controllers watch it as they would a real one, and the engine speaks Proxmox VE's
//! API to the simulator. There is no socket and no sleep, so an hour of retries takes milliseconds, and the
//! same scenario takes the same course every time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "everything here serves tests, where failing is saying what is wrong"
)]

mod bed;
mod cluster_api;
mod crash;
mod dice;
mod gate;
mod invariants;
mod life;
mod lives;
mod objects;
mod panics;
mod pve_side;
mod simulate;
mod tally;
mod weather;

pub use bed::{Bed, Builder};
pub use cluster_api::{Player, Wish, simulate_clusters};
pub use crash::{Crashes, Flow};
pub use dice::Dice;
pub use gate::{CrashPoint, Line};
pub use life::Story;
pub use lives::{Lives, lives};
pub use objects::{Document, documents};
pub use pve_side::Guest;
pub use simulate::{MUST_HAPPEN, simulate};
pub use tally::Tally;
pub use weather::Weather;
