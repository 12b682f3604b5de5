//! The kubelet: it registers its Node, and says every few seconds that it is alive.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Config};
use pve_sim::Boot;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::SecretString;
use serde_json::{Value, json};
use testbed::pki::Identity;
use tokio::time::sleep;

use super::kubeadm::NodeRegistration;
use super::{Failure, again};

/// How often a kubelet renews its lease.
const HEARTBEAT: Duration = Duration::from_secs(4);

/// What a kubelet has on its disk.
#[derive(Clone)]
pub(super) struct Kubelet {
    pub(super) name: String,
    pub(super) endpoint: String,
    pub(super) authority: String,
    pub(super) identity: Identity,
    pub(super) registration: NodeRegistration,
}

/// How a server is reached whose authority is known.
pub(super) fn config(endpoint: &str, authority: &str) -> Result<Config, Failure> {
    let mut config = Config::new(format!("https://{endpoint}").parse()?);
    let roots = CertificateDer::pem_slice_iter(authority.as_bytes())
        .map(|cert| cert.map(|cert| cert.to_vec()))
        .collect::<Result<Vec<_>, _>>()?;
    config.root_cert = Some(roots);
    Ok(config)
}

/// A client of that server, as somebody.
pub(super) fn client(
    endpoint: &str,
    authority: &str,
    identity: &Identity,
) -> Result<Client, Failure> {
    let mut config = config(endpoint, authority)?;
    config.auth_info.client_certificate_data = Some(STANDARD.encode(&identity.cert));
    config.auth_info.client_key_data = Some(SecretString::from(STANDARD.encode(&identity.key)));
    Ok(Client::try_from(config)?)
}

impl Kubelet {
    fn client(&self) -> Result<Client, Failure> {
        client(&self.endpoint, &self.authority, &self.identity)
    }

    /// Registers the Node.
    pub(super) async fn register(&self, boot: &Boot) -> Result<(), Failure> {
        let client = self.client()?;
        let version = client.apiserver_version().await?.git_version;
        let node: Node = serde_json::from_value(self.node(boot, &version))?;
        let api: Api<Node> = Api::all(client);
        match api.create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
        Ok(())
    }

    /// Renews the lease for as long as the guest is up.
    pub(super) async fn run(&self, boot: &Boot, up: impl Fn() -> bool) -> Result<(), Failure> {
        let leases: Api<Lease> = Api::namespaced(self.client()?, "kube-node-lease");
        // After a reboot the Node is there already and must be told that all is well again.
        again(|| self.report(boot)).await?;
        while up() {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": self.name},
                "spec": {
                    "holderIdentity": self.name, "leaseDurationSeconds": 40,
                    "renewTime": format!("{:.6}", now()),
                },
            });
            let params = PatchParams::apply("kubelet").force();
            // An API server that does not answer is tried again; that is what a kubelet does.
            let _ = leases
                .patch(&self.name, &params, &Patch::Apply(&lease))
                .await;
            sleep(HEARTBEAT).await;
        }
        Ok(())
    }

    /// Says how the node is, if it is registered.
    async fn report(&self, boot: &Boot) -> Result<(), Failure> {
        let client = self.client()?;
        let version = client.apiserver_version().await?.git_version;
        let status = json!({"status": self.status(boot, &version)});
        let nodes: Api<Node> = Api::all(client);
        let params = PatchParams::default();
        match nodes
            .patch_status(&self.name, &params, &Patch::Merge(&status))
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
        Ok(())
    }

    fn node(&self, boot: &Boot, version: &str) -> Value {
        let mut labels = json!({
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        });
        let own = self
            .registration
            .argument("node-labels")
            .unwrap_or_default();
        for (key, value) in own.split(',').filter_map(|pair| pair.split_once('=')) {
            labels[key] = json!(value);
        }
        let mut spec = json!({"taints": self.registration.taints.clone().unwrap_or_default()});
        if let Some(id) = self.registration.argument("provider-id") {
            spec["providerID"] = json!(id);
        }
        json!({
            "metadata": {"name": self.name, "labels": labels},
            "spec": spec,
            "status": self.status(boot, version),
        })
    }

    fn status(&self, boot: &Boot, version: &str) -> Value {
        let outside = boot.interfaces.iter().filter(|i| i.name != "lo");
        let mut addresses: Vec<Value> = outside
            .flat_map(|interface| &interface.addresses)
            .filter(|(address, _)| !address.to_string().starts_with("fe80"))
            .map(|(address, _)| json!({"type": "InternalIP", "address": address}))
            .collect();
        addresses.push(json!({"type": "Hostname", "address": self.name}));
        let now = format!("{:.0}", now());
        let condition = |kind: &str, status: &str, reason: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": "",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            })
        };
        json!({
            "addresses": addresses,
            "capacity": {"cpu": "2", "memory": "4Gi", "pods": "110"},
            "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"},
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {
                "machineID": "", "systemUUID": boot.uuid, "bootID": "", "kernelVersion": "6.8.0",
                "osImage": "Ubuntu 24.04 LTS", "containerRuntimeVersion": "containerd://2.1.0",
                "kubeletVersion": version, "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a lease is compared with the real clock of a real controller"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
