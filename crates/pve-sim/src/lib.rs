//! A simulated Proxmox VE that speaks the real one's HTTP API.
//!
//! [`Simulator`] holds one or several PVE clusters. A [`Cluster`] has a [`World`] (all of its
//! state), and each of its nodes has an [`Endpoint`]: a `tower::Service` that a client can use
//! in process, or that [`Server`] puts on a socket with TLS.
//!
//! A request goes through one pipeline (`http`): decoding, authentication, routing, permission,
//! proxying, validation, handler. What an endpoint is gets declared once, in a `Route`; what a
//! handler may do is in `call`; what takes time becomes a `task`. Time is tokio's, randomness
//! comes from one seed, so that everything repeats on a paused clock.
//!
//! Where things are:
//!
//! | module | what |
//! |---|---|
//! | `http` | the pipeline, decoding, answers, the listener |
//! | `route`, `schema`, `permission`, `call` | how an endpoint is declared and handled |
//! | `access` | users, tokens, roles, rights, tickets |
//! | `task`, `lock`, `latency` | workers, locks, how long things take |
//! | `api` | endpoints of access, cluster and nodes |
//! | `guest`, `storage` | guests and storages with their endpoints |
//! | `control` | faults and counters: what tests do from outside |

#![expect(clippy::unnecessary_wraps, reason = "all handlers have one signature")]

mod access;
mod api;
mod backup;
mod call;
mod checksum;
mod clock;
mod cluster;
mod console;
mod control;
mod digest;
mod failure;
mod firewall;
mod guest;
mod ha;
mod http;
mod journal;
mod latency;
mod lock;
mod mapping;
mod node;
mod params;
mod permission;
mod pool;
mod release;
mod replication;
mod resources;
mod route;
mod schedule;
mod schema;
mod sdn;
mod service;
mod simulator;
mod storage;
mod task;
mod world;

pub use access::Caller;
pub use clock::Clock;
pub use cluster::Cluster;
pub use control::{Action, Control, Fault};
pub use failure::Failure;
pub use guest::control::NoGuest;
pub use guest::live::{Boot, Interface, Process, Quirks};
pub use guest::seed::Seed;
pub use http::{Endpoint, Lost, Server, Tls};
pub use latency::{Latency, Spread, Step, UnusableModel};
pub use release::{Release, UnknownRelease};
pub use simulator::{Builder, Error, Simulator};
pub use task::Upid;
pub use world::World;
pub use world::file::{FileError, WorldFile};
