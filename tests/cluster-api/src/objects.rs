//! Objects of any kind, as JSON.

use kube::core::ApiResource;
use serde_json::Value;

/// The status of an object's condition, empty if it has none of that type.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
}

/// A kind and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its group.
    pub group: &'static str,
    /// The version that is spoken.
    pub version: &'static str,
    /// Its name.
    pub kind: &'static str,
    /// Its name in paths.
    pub plural: &'static str,
}

impl Kind {
    const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
        }
    }

    /// The same kind in another version.
    #[must_use]
    pub const fn at(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    pub(crate) fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: if self.group.is_empty() {
                self.version.to_owned()
            } else {
                format!("{}/{}", self.group, self.version)
            },
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }
}

/// The kinds that cases speak about.
pub mod kinds {
    #![expect(missing_docs, reason = "each is the kind of its name")]

    use super::Kind;

    const CAPI: &str = "cluster.x-k8s.io";
    const INFRA: &str = "infrastructure.cluster.x-k8s.io";
    const IPAM: &str = "ipam.cluster.x-k8s.io";
    const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";
    const CONTROL: &str = "controlplane.cluster.x-k8s.io";

    pub const CLUSTER: Kind = Kind::new(CAPI, "v1beta2", "Cluster", "clusters");
    pub const CLUSTER_CLASS: Kind = Kind::new(CAPI, "v1beta2", "ClusterClass", "clusterclasses");
    pub const MACHINE: Kind = Kind::new(CAPI, "v1beta2", "Machine", "machines");
    pub const MACHINE_SET: Kind = Kind::new(CAPI, "v1beta2", "MachineSet", "machinesets");
    pub const MACHINE_DEPLOYMENT: Kind =
        Kind::new(CAPI, "v1beta2", "MachineDeployment", "machinedeployments");
    pub const MACHINE_HEALTH_CHECK: Kind =
        Kind::new(CAPI, "v1beta2", "MachineHealthCheck", "machinehealthchecks");
    pub const KUBEADM_CONFIG: Kind =
        Kind::new(BOOTSTRAP, "v1beta2", "KubeadmConfig", "kubeadmconfigs");
    pub const KUBEADM_CONFIG_TEMPLATE: Kind = Kind::new(
        BOOTSTRAP,
        "v1beta2",
        "KubeadmConfigTemplate",
        "kubeadmconfigtemplates",
    );
    pub const CONTROL_PLANE: Kind = Kind::new(
        CONTROL,
        "v1beta2",
        "KubeadmControlPlane",
        "kubeadmcontrolplanes",
    );
    pub const CONTROL_PLANE_TEMPLATE: Kind = Kind::new(
        CONTROL,
        "v1beta2",
        "KubeadmControlPlaneTemplate",
        "kubeadmcontrolplanetemplates",
    );
    pub const PROXMOX_CLUSTER: Kind =
        Kind::new(INFRA, "v1beta1", "ProxmoxCluster", "proxmoxclusters");
    pub const PROXMOX_CLUSTER_TEMPLATE: Kind = Kind::new(
        INFRA,
        "v1beta1",
        "ProxmoxClusterTemplate",
        "proxmoxclustertemplates",
    );
    pub const PROXMOX_MACHINE: Kind =
        Kind::new(INFRA, "v1beta1", "ProxmoxMachine", "proxmoxmachines");
    pub const PROXMOX_MACHINE_TEMPLATE: Kind = Kind::new(
        INFRA,
        "v1beta1",
        "ProxmoxMachineTemplate",
        "proxmoxmachinetemplates",
    );
    pub const IP_ADDRESS: Kind = Kind::new(IPAM, "v1beta2", "IPAddress", "ipaddresses");
    pub const IP_ADDRESS_CLAIM: Kind =
        Kind::new(IPAM, "v1beta2", "IPAddressClaim", "ipaddressclaims");
    pub const IP_POOL: Kind = Kind::new(IPAM, "v1alpha2", "InClusterIPPool", "inclusterippools");
    pub const SECRET: Kind = Kind::new("", "v1", "Secret", "secrets");
    pub const NAMESPACE: Kind = Kind::new("", "v1", "Namespace", "namespaces");

    /// All of them, for finding one by the name of its kind.
    pub const ALL: &[Kind] = &[
        CLUSTER,
        CLUSTER_CLASS,
        MACHINE,
        MACHINE_SET,
        MACHINE_DEPLOYMENT,
        MACHINE_HEALTH_CHECK,
        KUBEADM_CONFIG,
        KUBEADM_CONFIG_TEMPLATE,
        CONTROL_PLANE,
        CONTROL_PLANE_TEMPLATE,
        PROXMOX_CLUSTER,
        PROXMOX_CLUSTER_TEMPLATE,
        PROXMOX_MACHINE,
        PROXMOX_MACHINE_TEMPLATE,
        IP_ADDRESS,
        IP_ADDRESS_CLAIM,
        IP_POOL,
        SECRET,
        NAMESPACE,
    ];
}
