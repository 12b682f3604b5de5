//! How the simulated PVE behaves, seen through its API.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test"
)]

mod access;
mod appliances;
mod backup_jobs;
mod client;
mod datacenter;
mod faults;
mod guest_agent;
mod guest_backup;
mod guest_bulk;
mod guest_clone;
mod guest_config;
mod guest_create;
mod guest_disks;
mod guest_inside;
mod guest_lxc;
mod guest_migrate;
mod guest_power;
mod guest_rights;
mod guest_snapshot;
mod high_availability;
mod http;
mod networks;
mod nodes;
mod proxmoxer;
mod refusals;
mod replication;
mod resources;
mod second_factor;
mod sim_guests;
mod sockets;
mod state;
mod storage_files;
mod tasks;
