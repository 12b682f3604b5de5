//! The embedded API server as kube-rs meets it, in process and on a paused clock.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod client;
mod crash;
mod crd;
mod garbage;
mod health;
mod lists;
mod server;
mod watch;
mod webhooks;
