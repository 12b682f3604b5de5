//! What the types promise: the documented manifests read, and the definitions in the chart are these.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests may fail the test; clippy exempts only the test functions themselves"
)]

mod definitions;
mod manifests;
mod templates;
