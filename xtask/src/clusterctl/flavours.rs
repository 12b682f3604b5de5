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
}

const ABOUT: &str =
    "# A cluster on one Proxmox VE, with kube-vip holding the control plane's address.\n";
const IPV4: &str = "    gateway: ${GATEWAY}\n";
const NODES: &str = "  allowedNodes: ${ALLOWED_NODES:=[]}\n";

/// Under the names that users of CAPMOX know.
pub(super) const ALL: &[Flavour] = &[
    Flavour {
        name: "auto-image",
        about: "# The plain cluster, from whatever template carries the tags.\n",
        changes: &[(
            "      sourceNode: ${PROXMOX_SOURCENODE}\n      template: ${TEMPLATE_VMID}\n",
            "      templateSelector:\n        matchTags: ${TEMPLATE_TAGS}\n",
        )],
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
        Ok(text)
    }
}
