//! The Kubernetes types Oxmox serves, one module per API group.
//!
//! A type here is three things at once: what a person writes in YAML, the schema the API server checks
//! it against, and what a controller reads. So the rules live with the types: the schema carries the
//! defaults, the limits and the CEL rules (each with a message that names the way out), and the few
//! checks a schema cannot express are plain functions beside the type.
//!
//! This crate knows neither Proxmox VE's client nor a Kubernetes client. [`installed_crds`] is everything an API
//! server has to be told.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub mod cluster_api;
pub mod infrastructure;
pub mod vm;

mod schema;

/// The custom resource definitions that stand alone, ordered by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vm::crds();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// Every custom resource definition as it is installed from a file, ordered by name: those that are converted are so by the
/// operator behind the Service `oxmox` in the namespace `oxmox-system`, until the operator says where it really is.
pub fn installed_crds() -> Vec<CustomResourceDefinition> {
    let mut all = crds();
    all.extend(infrastructure::crds(&infrastructure::through_service(
        "oxmox-system",
        "oxmox",
    )));
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}
