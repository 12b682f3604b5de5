//! `v1alpha3`: `v1alpha2` plus several Proxmox VE clusters under one Kubernetes cluster.

use crate::schema::{Schema, boolean, int32, list, object, string};

use super::v1alpha2::{self, secret_ref, template_selector};

/// `ProxmoxCluster.spec`.
pub(super) fn cluster_spec() -> Schema {
    v1alpha2::cluster_spec().field("settings", settings())
}

/// The spec of a cluster inside a template.
pub(super) fn cluster_template_spec() -> Schema {
    v1alpha2::cluster_template_spec().field("settings", settings())
}

/// `ProxmoxCluster.status`.
pub(super) fn cluster_status() -> Schema {
    v1alpha2::cluster_status().field("instances", instances_status())
}

/// `ProxmoxMachine.spec`.
pub(super) fn machine_spec() -> Schema {
    v1alpha2::machine_spec().field("instance", instance_name())
}

/// The spec of a machine inside a template.
pub(super) fn machine_template_spec() -> Schema {
    v1alpha2::machine_template_spec().field("instance", instance_name())
}

/// Name of the instance a machine runs on.
pub(super) fn instance_name() -> Schema {
    string().length(1, 63).says(
        "Instance of the ProxmoxCluster's settings.instances to run on; chosen by the controller when unset.",
    )
}

/// `spec.settings`: which Proxmox VE clusters the machines are spread over.
pub(super) fn settings() -> Schema {
    let template = object([
        ("sourceNode", string().non_empty()),
        ("templateID", int32()),
        ("templateSelector", template_selector()),
    ])
    .rule(
        "has(self.templateSelector) || (has(self.templateID) && has(self.sourceNode))",
        "template needs templateSelector, or sourceNode together with templateID",
    );
    let instance = object([
        ("name", string().length(1, 63)),
        (
            "nodes",
            list(string())
                .set()
                .says("Nodes of this instance that may be used; all when empty."),
        ),
        ("template", template),
        ("credentialsRef", secret_ref()),
    ])
    .required(&["name"]);
    object([
        (
            "mode",
            string()
                .one_of(&["Default", "SingleInstance", "MultiInstance"])
                .says("Default: the first instance, or the cluster's own credentials when none is listed. SingleInstance: one instance, picked once. MultiInstance: spread over all."),
        ),
        ("instances", list(instance).keyed_by(&["name"])),
    ])
    .rule(
        "!has(self.mode) || self.mode == 'Default' || (has(self.instances) && self.instances.size() > 0)",
        "instances must list at least one Proxmox VE cluster in this mode",
    )
}

/// `status.instances`: how the machines are spread.
pub(super) fn instances_status() -> Schema {
    list(
        object([
            ("name", string()),
            ("ready", boolean()),
            ("machines", int32()),
            ("controlPlaneMachines", int32()),
        ])
        .required(&["name"]),
    )
    .keyed_by(&["name"])
}
