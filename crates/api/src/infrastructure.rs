//! `infrastructure.cluster.x-k8s.io`: the Cluster API provider's kinds.
//!
//! Four versions are served. `v1alpha1` and `v1alpha2` are what existing manifests use, `v1alpha3` adds several Proxmox VE
//! clusters, [`v1beta1`] is the hub: stored, typed, and the only one the controllers read. The older three are a schema and a
//! conversion each ([`convert`]). What a schema cannot check, [`admission`] does.

pub mod admission;
pub mod convert;
pub mod v1beta1;

mod review;
mod v1alpha1;
mod v1alpha2;
mod v1alpha3;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionVersion,
    ServiceReference, WebhookClientConfig, WebhookConversion,
};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::schema::{Schema, object, string};

pub use review::review;

/// The API group.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// Label with the zone a machine and its addresses belong to; `default` where none is named.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/proxmox-zone";
/// Where the conversion webhook listens.
pub const CONVERT_PATH: &str = "/convert";

/// How conversion is asked for through a Service. Whom to believe is filled in by whoever serves it.
pub fn through_service(namespace: &str, name: &str) -> WebhookClientConfig {
    WebhookClientConfig {
        service: Some(ServiceReference {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            path: Some(CONVERT_PATH.to_owned()),
            port: Some(443),
        }),
        ..WebhookClientConfig::default()
    }
}

/// The definitions of this group, converted by the webhook at `conversion`.
pub fn crds(conversion: &WebhookClientConfig) -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        v1beta1::ProxmoxCluster::crd(),
        v1beta1::ProxmoxClusterTemplate::crd(),
        v1beta1::ProxmoxMachine::crd(),
        v1beta1::ProxmoxMachineTemplate::crd(),
    ];
    for crd in &mut crds {
        let older = older_versions(&crd.spec.names.kind);
        crd.spec.versions.splice(0..0, older);
        crd.spec.conversion = Some(CustomResourceConversion {
            strategy: "Webhook".into(),
            webhook: Some(WebhookConversion {
                client_config: Some(conversion.clone()),
                conversion_review_versions: vec!["v1".into()],
            }),
        });
        let labels = crd.metadata.labels.get_or_insert_default();
        for (name, value) in [
            ("cluster.x-k8s.io/provider", "infrastructure-proxmox"),
            // Cluster API takes the newest version listed for the contract it speaks.
            ("cluster.x-k8s.io/v1beta1", "v1alpha1"),
            ("cluster.x-k8s.io/v1beta2", "v1alpha2_v1alpha3_v1beta1"),
            ("clusterctl.cluster.x-k8s.io", ""),
        ] {
            labels.insert(name.into(), value.into());
        }
    }
    crds
}

/// The versions of a kind before the hub, oldest first.
fn older_versions(kind: &str) -> Vec<CustomResourceDefinitionVersion> {
    let versions = match kind {
        "ProxmoxCluster" => [
            (
                "v1alpha1",
                v1alpha1::cluster_spec(),
                Some(v1alpha1::cluster_status()),
            ),
            (
                "v1alpha2",
                v1alpha2::cluster_spec(),
                Some(v1alpha2::cluster_status()),
            ),
            (
                "v1alpha3",
                v1alpha3::cluster_spec(),
                Some(v1alpha3::cluster_status()),
            ),
        ],
        "ProxmoxClusterTemplate" => [
            (
                "v1alpha1",
                template("v1alpha1", v1alpha1::cluster_template_spec()),
                None,
            ),
            (
                "v1alpha2",
                template("v1alpha2", v1alpha2::cluster_template_spec()),
                None,
            ),
            (
                "v1alpha3",
                template("v1alpha3", v1alpha3::cluster_template_spec()),
                None,
            ),
        ],
        "ProxmoxMachine" => [
            (
                "v1alpha1",
                v1alpha1::machine_spec(),
                Some(v1alpha1::machine_status()),
            ),
            (
                "v1alpha2",
                v1alpha2::machine_spec(),
                Some(v1alpha2::machine_status()),
            ),
            (
                "v1alpha3",
                v1alpha3::machine_spec(),
                Some(v1alpha2::machine_status()),
            ),
        ],
        _ => [
            (
                "v1alpha1",
                template("v1alpha1", v1alpha1::machine_template_spec()),
                None,
            ),
            (
                "v1alpha2",
                template("v1alpha2", v1alpha2::machine_template_spec()),
                None,
            ),
            (
                "v1alpha3",
                template("v1alpha3", v1alpha3::machine_template_spec()),
                None,
            ),
        ],
    };
    versions
        .into_iter()
        .map(|(name, spec, status)| version(kind, name, spec, status))
        .collect()
}

/// A template around a spec.
fn template(version: &str, spec: Schema) -> Schema {
    let strings = || crate::schema::map_of(string());
    let mut metadata = object([("labels", strings()), ("annotations", strings())]);
    if version != "v1alpha1" {
        metadata = metadata.with("minProperties", 1);
    }
    object([(
        "template",
        object([("metadata", metadata), ("spec", spec)]).required(&["spec"]),
    )])
    .required(&["template"])
}

fn version(
    kind: &str,
    name: &str,
    spec: Schema,
    status: Option<Schema>,
) -> CustomResourceDefinitionVersion {
    let mut version = json!({"name": name, "served": true, "storage": false});
    if status.is_some() || (kind, name) == ("ProxmoxClusterTemplate", "v1alpha1") {
        version["subresources"] = json!({"status": {}});
    }
    if let Some(columns) = columns(kind, name) {
        version["additionalPrinterColumns"] = columns;
    }
    let mut schema = object([
        ("apiVersion", string()),
        ("kind", string()),
        ("metadata", object([]).without_properties()),
        ("spec", spec),
    ]);
    if let Some(status) = status {
        schema = schema.field("status", status);
    }
    if name != "v1alpha1" {
        schema = schema.required(&["spec"]);
    }
    version["schema"] = json!({"openAPIV3Schema": schema.build()});
    serde_json::from_value(version).expect("the version is written as the type has it")
}

fn columns(kind: &str, version: &str) -> Option<Value> {
    let ready = match version {
        "v1alpha1" => ".status.ready",
        _ => ".status.initialization.provisioned",
    };
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    match kind {
        "ProxmoxCluster" => Some(json!([
            column(
                "Cluster",
                r".metadata.labels['cluster\.x-k8s\.io/cluster-name']"
            ),
            column("Ready", ready),
            column("Endpoint", ".spec.controlPlaneEndpoint"),
        ])),
        "ProxmoxMachine" => Some(json!([
            column(
                "Cluster",
                r".metadata.labels.cluster\.x-k8s\.io/cluster-name"
            ),
            column("Ready", ready),
            column("Node", ".status.proxmoxNode"),
            column("Provider_ID", ".spec.providerID"),
            column(
                "Machine",
                r#".metadata.ownerReferences[?(@.kind=="Machine")].name"#
            ),
        ])),
        _ => None,
    }
}
