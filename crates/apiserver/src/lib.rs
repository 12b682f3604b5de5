//! A small Kubernetes API server, embedded: durable, generic and schema-driven.

mod golang;
pub mod meta;
pub mod names;
pub mod schema;
