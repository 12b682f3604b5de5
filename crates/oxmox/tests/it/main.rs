//! The binary as a process, as people and clusters run it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail the test; clippy exempts only the test functions themselves"
)]

mod chart;
mod command_line;
mod doctor;
mod harness;
mod machines;
mod operator;
mod up;
