//! A small Kubernetes API server, embedded: durable, generic and schema-driven.
