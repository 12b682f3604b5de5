//! Proxmox VE's HTTP API: client, typed parameters and answers, errors, tasks.
//!
//! A [`Client`] stands for one Proxmox VE cluster. Handles lead from it to its parts, and calls are methods of the
//! handles; a call that starts a task returns its [`Upid`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use pve::{Client, Credentials, GuestConfig, NodeName, Vmid};
//!
//! let client = Client::builder()
//!     .endpoint("https://pve1.example.com:8006")
//!     .credentials(Credentials::token_line("oxmox@pve!main=12345678-…")?)
//!     .build()?;
//! let node = client.node(&NodeName::new("pve1")?);
//! let config = GuestConfig::new().with("name", "web").with("memory", 2048).with("scsi0", "local-lvm:8");
//! let task = node.create_qemu(&pve::CreateQemu::new(Vmid::new(100)?, config)).await?;
//! client.wait(&task).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Three habits of Proxmox VE shape this crate. It reports every failure as a text, so texts are read in one place
//! ([`Error`]). It starts workers and returns, so a call that returned has only begun ([`task`]). And it lets a
//! request end without an answer, so "don't know" is a case of its own ([`Error::OutcomeUnknown`]).

pub mod api;
mod client;
pub mod config;
mod error;
pub mod id;
pub mod params;
pub mod privilege;
pub mod prop;
pub mod scalar;
pub mod task;
pub mod tls;
mod upid;

pub use self::api::guest::Guest;
pub use self::api::lxc::{CreateLxc, Lxc};
pub use self::api::node::Node;
pub use self::api::qemu::{CloneGuest, CreateQemu, Qemu};
pub use self::api::storage::Storage;
pub use self::api::version::{Release, Version};
pub use self::client::{
    Body, BoxError, Builder, Client, Credentials, EndpointHealth, Metrics, NotSent, Timeouts,
};
pub use self::config::{ConfigChange, GuestConfig};
pub use self::error::{Cause, Error, Object, Result, Retry};
pub use self::id::{
    GuestKind, HaSid, InvalidId, MacAddress, NodeName, PoolId, SnapshotName, StorageId, TokenId,
    UserId, Vmid, VolumeId,
};
pub use self::upid::Upid;
