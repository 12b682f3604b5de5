//! Behaviour of the fleet against a simulated PVE in the same process, on a paused clock.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test; clippy exempts only the test functions themselves"
)]

mod actions;
mod addresses;
mod adopt;
mod beside;
mod boot_order;
mod budget;
mod by_hand;
mod change;
mod cloud_init;
mod crash;
mod create;
mod disks;
mod firewall;
mod first_boot;
mod harness;
mod images;
mod late;
mod left_node;
mod mounts;
mod notes;
mod paused;
mod remove;
mod restart;
mod restore;
mod sources;
mod tokens;
mod trouble;
mod upgrade;
