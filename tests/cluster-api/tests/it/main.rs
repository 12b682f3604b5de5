//! The Cluster API provider under the real Cluster API.

mod changes;
mod classes;
mod life;
mod trouble;
