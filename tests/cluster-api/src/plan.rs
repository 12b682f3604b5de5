//! The manifests of a cluster, as its user writes them.

use serde_json::{Value, json};

/// A cluster that a case makes: a control plane of kubeadm, and one group of workers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the Cluster and of its namespace.
    pub name: String,
    /// Port of this machine at which its API server will answer.
    pub port: u16,
    /// Where the external etcd answers.
    pub etcd: String,
    /// Control-plane machines.
    pub control_plane: u32,
    /// Workers.
    pub workers: u32,
    /// What the group of workers is called.
    pub group: &'static str,
    /// Version of the infrastructure kinds in the manifests.
    pub version: &'static str,
    /// Spec of the ProxmoxCluster; endpoint, addresses and name servers are added.
    pub infrastructure: Value,
    /// Spec of the machines.
    pub machine: Value,
}

/// Kubernetes' version, which is the API server's that the testbed builds.
pub const VERSION: &str = "v1.36.4";
const INFRA: &str = "infrastructure.cluster.x-k8s.io";

impl Plan {
    /// Uses both Proxmox VE clusters of the datacenter, `txl` and `fra`.
    pub fn over_both(&mut self) {
        self.infrastructure = json!({"settings": {"mode": "MultiInstance", "instances": [
            {"name": "txl", "credentialsRef": {"name": "pve-0"}},
            {"name": "fra", "credentialsRef": {"name": "pve-1"}},
        ]}});
    }

    /// Where its API server will answer.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How nodes register: under the name and the identity that their meta-data says.
    pub fn registration() -> Value {
        json!({"nodeRegistration": {
            "name": "{{ ds.meta_data.local_hostname }}",
            "kubeletExtraArgs": [{"name": "provider-id", "value": "proxmox://{{ ds.meta_data.instance_id }}"}],
        }})
    }

    /// What kubeadm is told about the cluster: its etcd is elsewhere.
    pub fn kubeadm(&self) -> Value {
        json!({
            "clusterConfiguration": {
                "apiServer": {"extraArgs": [{"name": "etcd-prefix", "value": format!("/{}", self.name)}]},
                "etcd": {"external": {
                    "endpoints": [self.etcd],
                    "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
                    "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
                    "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
                }},
            },
            "initConfiguration": Self::registration(),
            "joinConfiguration": Self::registration(),
        })
    }

    /// The whole ProxmoxCluster spec.
    pub fn infrastructure_spec(&self) -> Value {
        let mut spec = json!({
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": self.port},
            "ipv4Config": {"addresses": ["10.10.0.10-10.10.0.200"], "prefix": 24, "gateway": "10.10.0.1"},
            "dnsServers": ["10.10.0.1"],
        });
        merge(&mut spec, &self.infrastructure);
        spec
    }

    /// A ProxmoxMachineTemplate.
    pub fn template(&self, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": format!("{INFRA}/{}", self.version), "kind": "ProxmoxMachineTemplate",
            "metadata": {"name": name},
            "spec": {"template": {"spec": spec}},
        })
    }

    fn reference(kind: &str, name: &str) -> Value {
        let group = match kind {
            "KubeadmConfigTemplate" => "bootstrap.cluster.x-k8s.io",
            "KubeadmControlPlane" => "controlplane.cluster.x-k8s.io",
            _ => INFRA,
        };
        json!({"apiGroup": group, "kind": kind, "name": name})
    }

    /// The cluster itself, with its control plane.
    pub fn cluster(&self) -> Vec<Value> {
        let name = self.name.as_str();
        let control_plane = format!("{name}-control-plane");
        vec![
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
                "metadata": {"name": name},
                "spec": {
                    "clusterNetwork": {"pods": {"cidrBlocks": ["192.168.0.0/16"]}},
                    "infrastructureRef": Self::reference("ProxmoxCluster", name),
                    "controlPlaneRef": Self::reference("KubeadmControlPlane", &control_plane),
                },
            }),
            json!({
                "apiVersion": format!("{INFRA}/{}", self.version), "kind": "ProxmoxCluster",
                "metadata": {"name": name}, "spec": self.infrastructure_spec(),
            }),
            self.template(&control_plane, &self.machine),
            json!({
                "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
                "metadata": {"name": control_plane},
                "spec": {
                    "replicas": self.control_plane, "version": VERSION,
                    "machineTemplate": {
                        // Said here, because to find it out Cluster API would call a pod through its kubelet.
                        "metadata": {"annotations": {"machine.cluster.x-k8s.io/certificates-expiry": "2099-01-01T00:00:00Z"}},
                        "spec": {"infrastructureRef": Self::reference("ProxmoxMachineTemplate", &control_plane)},
                    },
                    "kubeadmConfigSpec": self.kubeadm(),
                },
            }),
        ]
    }

    /// The group of workers.
    pub fn workers(&self) -> Vec<Value> {
        let name = self.name.as_str();
        let workers = format!("{name}-{}", self.group);
        vec![
            self.template(&workers, &self.machine),
            json!({
                "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfigTemplate",
                "metadata": {"name": workers},
                "spec": {"template": {"spec": {"joinConfiguration": Self::registration()}}},
            }),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
                "metadata": {"name": workers},
                "spec": {
                    "clusterName": name, "replicas": self.workers,
                    "selector": {"matchLabels": {}},
                    "template": {"spec": {
                        "clusterName": name, "version": VERSION,
                        "bootstrap": {"configRef": Self::reference("KubeadmConfigTemplate", &workers)},
                        "infrastructureRef": Self::reference("ProxmoxMachineTemplate", &workers),
                    }},
                },
            }),
        ]
    }
}

/// Lays one object over another.
pub(crate) fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}
