//! The Cluster API provider under the real Cluster API.
//!
//! Real here: `oxmox operator` as a process with its webhooks, kube-apiserver, garbage collection, Cluster API with its kubeadm providers, the in-cluster address manager, CAPMOX; and a
//! kube-apiserver of its own for every cluster that is made. Simulated: Proxmox VE, over HTTPS, and what runs inside its guests.
//!
//! A [`Bed`] is a management cluster with the controllers on it, shared by all cases that do not need one of their own. A
//! [`Datacenter`] is some Proxmox VE clusters. Their guests are not mute: on its first boot a guest reads what cloud-init would read
//! ([`guest`]) and does what kubeadm and the kubelet would do. `kubeadm init` starts a kube-apiserver with the authority that
//! came with the bootstrap data; `kubeadm join` proves itself with the token, has its certificate signed and registers its
//! Node. So a Machine gets its `nodeRef` only if name, addresses, provider ID, files and tokens all arrived as they should.
//!
//! How far KubeadmControlPlane is real: it makes, joins (three of them) and removes machines, and reports itself initialized and
//! available. Its API server is a real one, started with the certificate authority, service-account keys and flags that the
//! bootstrap data carries; controllers sign the kubelets' certificates and notice when a node no longer reports. Not real: etcd is
//! external and reached without TLS, all control-plane nodes share the one API server at the endpoint, their static pods
//! are objects without containers, no workload runs, and the expiry of certificates is told to Cluster API instead of read
//! through a kubelet. So stacked etcd and upgrades of a control plane are not proved here.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "everything here serves tests, where failing is saying what is wrong"
)]

mod bed;
mod datacenter;
mod guest;
mod objects;
mod plan;

pub use bed::{Bed, alone, both, shared};
pub use datacenter::{Datacenter, Guest};
pub use objects::{Kind, condition, kinds};
pub use plan::{Plan, VERSION};
