//! Reconcilers: API objects become intents for the engine, and the engine's facts become status.
//!
//! A controller here decides nothing about Proxmox VE. It reads an object and what the object refers to,
//! translates that into one intent ([`fleet`]), stores the record it is given before it calls again, and
//! writes down what it was told: status, conditions, events. No worker waits for a task; the engine names
//! the owners concerned when something has moved, and those objects are looked at again.
//!
//! [`run`] is the one entry. It takes a `kube::Client` (of a real cluster, or of the embedded API server
//! in the same process) and a [`Connector`] that makes Proxmox VE clients (over HTTPS, or of a simulator
//! in the same process), and runs until it is told to stop. Dropping its future stops everything at
//! once, which is how the tests crash it between any two calls.

mod capi;
mod clock;
mod conditions;
mod connect;
mod context;
mod cron;
mod events;
mod hub;
mod kinds;
mod known;
mod lease;
mod metrics;
mod pace;
mod readable;
mod removal;
mod run;
mod secrets;
mod status;
mod vm;
mod work;

pub use capi::GlobalCredentials;
pub use clock::Clock;
pub use connect::{ConnectError, Connection, Connector};
pub use lease::{Election, while_leading};
pub use metrics::Metrics;
pub use run::{Options, run};
pub use vm::provider::LOG_TARGET;
