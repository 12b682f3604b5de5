//! A small Kubernetes API server, embedded: durable, generic and schema-driven.
//!
//! It is for one machine and for tests: kubectl, Helm and kube-rs meet the API they know, backed by one
//! file or by memory. The parts, from the inside out:
//!
//! - [`store`]: the ordered history of all objects, durable, with compaction;
//! - [`registry`]: which kinds exist, built in or defined by CRDs;
//! - [`api`]: the handlers, one set for all kinds;
//! - [`admission`] and [`webhook`]: whom else is asked before an object is written or shown;
//! - [`auth`]: who asks and what they may do;
//! - [`housekeeping`]: what a cluster does by itself, such as garbage collection;
//! - [`service`]: all of that as a `tower::Service`, for kube-rs in process or behind a listener;
//! - [`server`]: a data directory and a TLS listener around it, which `oxmox up` starts.
//!
//! ```no_run
//! # async fn example() {
//! let server = apiserver::InMemory::new();
//! let client = server.service(); // goes into `kube::Client::new(client, "default")`
//! # }
//! ```

mod admission;
mod api;
pub mod apply;
mod auth;
mod bootstrap;
mod clock;
mod golang;
mod housekeeping;
pub mod kinds;
mod memory;
pub mod meta;
mod metrics;
pub mod names;
mod object;
pub mod openapi;
pub mod patch;
mod registry;
mod request;
pub mod schema;
mod selector;
mod server;
mod service;
pub mod shape;
mod status;
mod store;
pub mod table;
pub mod webhook;
mod yaml;

pub use auth::User;
pub use clock::Clock;
pub use memory::InMemory;
pub use server::{Config, Error, Server};
pub use service::ApiService;
pub use status::{Cause, Status};
