//! Flavours of the cluster template that differ from the plain one in a few lines.
//!
//! clusterctl wants each as a whole file. They are made from `cluster-template.yaml`, so that what they share is written once.

use anyhow::{Result, ensure};

/// A cluster that differs from the plain one.
pub(super) struct Flavour {
    pub(super) name: &'static str,
    /// What it is, for who opens the file.
    about: &'static str,
    /// What stands in the plain one, wherever it does, and what stands there instead.
    changes: &'static [(&'static str, &'static str)],
    /// What is put after it.
    more: &'static str,
}

const ABOUT: &str =
    "# A cluster on one Proxmox VE, with kube-vip holding the control plane's address.\n";
const IPV4: &str = "    gateway: ${GATEWAY}\n";
const NODES: &str = "  allowedNodes: ${ALLOWED_NODES:=[]}\n";

/// Applies what a ConfigMap holds to the cluster.
macro_rules! resource_set {
    ($config_map:literal) => {
        concat!(
            "---\napiVersion: addons.cluster.x-k8s.io/v1beta2\nkind: ClusterResourceSet\nmetadata:\n  name: ${CLUSTER_NAME}-crs-0\n",
            "spec:\n  clusterSelector: { matchLabels: { cluster.x-k8s.io/cluster-name: \"${CLUSTER_NAME}\" } }\n",
            "  resources: [{ kind: ConfigMap, name: ", $config_map, " }]\n",
        )
    };
}

/// A label that a ClusterResourceSet finds the cluster by.
const LABELLED: &[(&str, &str)] = &[(
    "  name: ${CLUSTER_NAME}\nspec:\n  clusterNetwork:\n",
    "  name: ${CLUSTER_NAME}\n  labels: { cluster.x-k8s.io/cluster-name: \"${CLUSTER_NAME}\" }\nspec:\n  clusterNetwork:\n",
)];

/// Under the names that users of CAPMOX know.
pub(super) const ALL: &[Flavour] = &[
    Flavour {
        name: "auto-image",
        about: "# The plain cluster, from whatever template carries the tags.\n",
        changes: &[(
            "      sourceNode: ${PROXMOX_SOURCENODE}\n      template: ${TEMPLATE_VMID}\n",
            "      templateSelector:\n        matchTags: ${TEMPLATE_TAGS}\n",
        )],
        more: "",
    },
    Flavour {
        name: "calico",
        about: "# The plain cluster, with what the ConfigMap `calico` holds for its network.\n",
        changes: LABELLED,
        more: resource_set!("calico"),
    },
    Flavour {
        name: "cilium",
        about: "# The plain cluster, with what the ConfigMap `cilium` holds for its network.\n",
        changes: LABELLED,
        more: resource_set!("cilium"),
    },
    Flavour {
        name: "dual-stack",
        about: "# The plain cluster, with addresses of both families.\n",
        changes: &[
            (
                "    pods: { cidrBlocks: [\"${POD_CIDR:=192.168.0.0/16}\"] }\n",
                "    pods: { cidrBlocks: [\"${POD_CIDR:=192.168.0.0/16}\", \"${POD_IPV6_CIDR:=fd00:100:64::/48}\"] }\n    \
                 services: { cidrBlocks: [\"${SERVICE_CIDR:=10.96.0.0/12}\", \"${SERVICE_IPV6_CIDR:=fd00:100:96::/112}\"] }\n",
            ),
            (
                IPV4,
                "    gateway: ${GATEWAY}\n  ipv6Config:\n    addresses: ${NODE_IPV6_RANGES}\n    prefix: ${IPV6_PREFIX}\n    \
                 gateway: ${IPV6_GATEWAY}\n",
            ),
            (
                "            defaultIPv4: true\n",
                "            defaultIPv4: true\n            defaultIPv6: true\n",
            ),
        ],
        more: "",
    },
    Flavour {
        name: "external-creds",
        about: "# The plain cluster, with credentials of its own.\n",
        changes: &[(
            NODES,
            "  allowedNodes: ${ALLOWED_NODES:=[]}\n  credentialsRef: { name: \"${CLUSTER_NAME}-proxmox-credentials\" }\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata:\n  name: ${CLUSTER_NAME}-proxmox-credentials\nstringData:\n  \
             url: \"${PROXMOX_URL}\"\n  token: \"${PROXMOX_TOKEN}\"\n  secret: \"${PROXMOX_SECRET}\"\n",
        )],
        more: "",
    },
    Flavour {
        name: "multiple-vlans",
        about: "# The plain cluster, with a second interface in another VLAN.\n",
        changes: &[(
            "            defaultIPv4: true\n",
            "            defaultIPv4: true\n            vlan: ${VLAN:=null}\n          - name: net1\n            bridge: ${SECONDARY_BRIDGE}\n            \
             model: virtio\n            vlan: ${SECONDARY_VLAN:=null}\n            dnsServers: ${DNS_SERVERS}\n            ipPoolRef:\n              \
             - { apiGroup: ipam.cluster.x-k8s.io, kind: GlobalInClusterIPPool, name: \"${CLUSTER_NAME}-secondary\" }\n",
        )],
        more: "---\napiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: GlobalInClusterIPPool\nmetadata:\n  name: ${CLUSTER_NAME}-secondary\nspec:\n  \
               addresses: ${NODE_SECONDARY_IP_RANGES}\n  prefix: ${SECONDARY_IP_PREFIX}\n  gateway: ${SECONDARY_GATEWAY}\n",
    },
];

impl Flavour {
    /// The file, made from the plain one.
    pub(super) fn of(&self, plain: &str) -> Result<String> {
        let mut text = plain.to_owned();
        for (stands, instead) in [(ABOUT, self.about)].iter().chain(self.changes) {
            ensure!(
                text.contains(stands),
                "cluster-template.yaml lacks what flavour {} changes:\n{stands}",
                self.name
            );
            text = text.replace(stands, instead);
        }
        Ok(text + self.more)
    }
}
