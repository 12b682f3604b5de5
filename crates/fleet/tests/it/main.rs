//! Behaviour of the fleet against a simulated PVE in the same process, on a paused clock.

mod actions;
mod budget;
mod change;
mod cloud_init;
mod crash;
mod create;
mod harness;
mod remove;
