//! The client over scripted servers and over the simulator, in process and on a paused clock.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of test functions fail the test that uses them"
)]

mod auth;
mod calls;
mod console;
mod endpoints;
mod fake;
mod lab;
mod simulator;
mod simulator_guests;
mod simulator_services;
mod tasks;
mod tls;
mod upload;
