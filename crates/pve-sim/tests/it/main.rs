//! How the simulated PVE behaves, seen through its API.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod access;
mod caller;
mod faults;
mod high_availability;
mod http;
mod networks;
mod proxmoxer;
mod resources;
mod sockets;
mod state;
mod tasks;
