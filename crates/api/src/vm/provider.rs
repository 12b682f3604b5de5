//! `Provider`: one Proxmox VE cluster and the way in.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{ConditionList, KeySelector, NamespacedRef},
    network::NetworkMapping,
    quantity::Bytes,
};

/// One Proxmox VE cluster: where it is, who we are there, and what its names mean.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infra.virtrigaud.io",
    version = "v1beta1",
    kind = "Provider",
    namespaced,
    status = "ProviderStatus",
    shortname = "prov",
    category = "oxmox",
    derive = "PartialEq",
    doc = "One Proxmox VE cluster: where it is, who we are there, and what its names mean.",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.endpoint"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodeCount"),
    printcolumn(name = "VMs", type_ = "integer", json_path = ".status.connectedVMs"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.endpoint) || (has(self.runtime) && has(self.runtime.env) && self.runtime.env.exists(e, e.name == 'PVE_ENDPOINT'))").message("set endpoint to the address of the Proxmox VE API, for example https://pve.example.com:8006"))]
pub struct ProviderSpec {
    /// The kind of hypervisor. Oxmox serves `proxmox`.
    #[serde(rename = "type", default)]
    pub kind: ProviderType,
    /// Address of the API: `https://host:8006`. May come from `PVE_ENDPOINT` in `runtime.env` instead.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://[^\s/]+/?$"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// More nodes of the same cluster to try when the endpoint does not answer.
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// The Secret with `token_id` and `token_secret`, or `username` and `password`; optionally `ca.crt`
    /// and `fingerprint`. Left out, a Secret named `pve-credentials` in the Provider's namespace is used.
    /// A changed Secret takes effect at once, without a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential_secret_ref: Option<NamespacedRef>,
    /// Accept any certificate. For test systems; prefer `ca.crt` or `fingerprint` in the Secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// Other namespaces whose objects may use this Provider, and so its credentials; `*` is all.
    #[schemars(length(max = 256))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_namespaces: Vec<String>,
    /// Nodes on which guests of this Provider may be placed; all online nodes when empty. The same as
    /// `PVE_NODE_SELECTOR` in `runtime.env`, which it overrides.
    #[schemars(length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_selector: Vec<String>,
    /// What network names mean here. They come on top of the built-in ones: `lan` and `default` are
    /// vmbr0, `dmz` is vmbr1, `mgmt` and `management` are vmbr2, and `vmbr…` means itself.
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkMapping>,
    /// What guests get when neither they nor their class say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<ProviderDefaults>,
    /// How the connection is run. Oxmox connects from its own process, so there is no image to start;
    /// `env` is read as described at its field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
}

impl Provider {
    /// Whether the objects of a namespace may use it, and so its credentials.
    pub fn allows(&self, namespace: &str) -> bool {
        let own = self.metadata.namespace.as_deref() == Some(namespace);
        let allowed = &self.spec.allowed_namespaces;
        own || allowed.iter().any(|ns| ns == "*" || ns == namespace)
    }
}

/// A kind of hypervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderType {
    /// Proxmox VE.
    #[default]
    Proxmox,
}

/// What guests get when neither they nor their class say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderDefaults {
    /// Storage for disks.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Storage for cloud-init ISOs; must allow content `iso`.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_storage: Option<String>,
    /// Storage for downloaded images; must allow content `import`.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub import_storage: Option<String>,
    /// Bridge for networks without one.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Resource pool new guests join.
    #[schemars(length(max = 100))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// VMIDs to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmid_range: Option<VmidRange>,
    /// Tags every guest gets.
    #[schemars(length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// VMIDs to choose from, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("self.min <= self.max").message("vmidRange.min must not be greater than vmidRange.max"))]
pub struct VmidRange {
    /// The first.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub min: u32,
    /// The last.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub max: u32,
}

/// How the connection is run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Accepted for manifests written for a provider in its own process. The connection is always made
    /// by Oxmox itself; the Provider's status says so.
    #[serde(default)]
    pub mode: RuntimeMode,
    /// Image of such a provider process. Oxmox starts none; the Provider's status says so.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Settings as environment variables.
    #[schemars(length(max = 50))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
}

/// Where the connection is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuntimeMode {
    /// As the existing manifests say it.
    #[default]
    Remote,
    /// From Oxmox's own process.
    InProcess,
}

/// One setting of the connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.value) && has(self.valueFrom))").message("give value or valueFrom, not both"))]
pub struct EnvVar {
    /// Which setting. `PVE_ENDPOINT`, `PVE_TOKEN_ID`, `PVE_TOKEN_SECRET`, `PVE_USERNAME` and `PVE_PASSWORD`
    /// stand in for what the spec or the Secret leave out; `PVE_NODE_SELECTOR` lists nodes, separated by
    /// commas; `PVE_INSECURE_SKIP_VERIFY` is `true` or `false`; `PVE_CA_BUNDLE` is PEM text; `LOG_LEVEL`
    /// is `error`, `warn`, `info`, `debug` or `trace` for what is logged about this Provider's guests, whatever the
    /// process logs otherwise.
    #[schemars(length(max = 64), extend("enum" = [
        "PVE_ENDPOINT", "PVE_TOKEN_ID", "PVE_TOKEN_SECRET", "PVE_USERNAME", "PVE_PASSWORD",
        "PVE_NODE_SELECTOR", "PVE_INSECURE_SKIP_VERIFY", "PVE_CA_BUNDLE", "LOG_LEVEL"
    ]))]
    pub name: String,
    /// Its value.
    #[schemars(length(max = 65536))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where its value is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// Where a setting's value is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVarSource {
    /// A key of a Secret in the Provider's namespace; the key defaults to the setting's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeySelector>,
    /// A key of a ConfigMap in the Provider's namespace; the key defaults to the setting's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeySelector>,
}

/// What is known about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// `Ready`, `Reachable`, `PrivilegesSufficient`; `Runtime` when an image was named.
    #[schemars(schema_with = "ConditionList::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The cluster answers and accepts us.
    #[serde(default)]
    pub healthy: bool,
    /// Version of Proxmox VE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_count: Option<i32>,
    /// The nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeInfo>,
    /// Guests of this Provider that Oxmox looks after.
    #[serde(rename = "connectedVMs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected_vms: Option<i32>,
    /// Privileges that are missing for full service, as `path: privilege`. Those that machines need make `PrivilegesSufficient`
    /// false; its message says what each other feature lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_privileges: Vec<String>,
}

/// A node as PVE reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// Whether it is part of the quorum right now.
    #[serde(default)]
    pub online: bool,
    /// Its threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<i32>,
    /// Its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}
