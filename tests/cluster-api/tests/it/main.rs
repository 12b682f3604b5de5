//! The Cluster API provider under the real Cluster API.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as the tests do")]

mod capmox;
mod changes;
mod classes;
mod clusterctl;
mod documents;
mod life;
mod trouble;
