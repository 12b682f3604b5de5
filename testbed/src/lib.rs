//! The real Kubernetes beside ours.
//!
//! What Oxmox promises to be ("kubectl cannot tell it from the real one") is only proved by asking
//! the real one. So this room builds etcd, kube-apiserver, its controllers, kubectl, Helm and Cluster
//! API from their published Go modules, at the versions pinned in `go/*/go.mod`, and starts them for
//! tests on free loopback ports in a temporary directory.
//!
//! - [`components`] is the list: what there is, at which version, and where it lies once built.
//! - `cargo xtask testbed` builds what is missing into a cache outside of the checkout.
//! - [`Assets`] finds the built programs; a suite that needs them begins with [`assets_or_skip`].
//! - `manager` runs Cluster API's controllers and CAPMOX as plain processes, with their webhooks on this machine.
//! - `ControlPlane` starts etcd and kube-apiserver; `Kubectl` and `Helm` run those programs; `http::Client`
//!   speaks to a server without hiding anything.
//!
//! No process outlives the test binary that started it: each runs under a watchdog that ends it when
//! the pipe to us closes, whichever way we die.

mod assets;
pub mod components;
#[cfg(feature = "run")]
pub mod control_plane;
#[cfg(feature = "run")]
pub mod http;
#[cfg(feature = "run")]
mod kubeconfig;
#[cfg(feature = "run")]
pub mod manager;
#[cfg(feature = "run")]
pub mod pki;
#[cfg(feature = "run")]
pub mod process;
#[cfg(feature = "run")]
pub mod tools;

pub use assets::{Assets, Error as AssetsError, assets, assets_or_skip};
#[cfg(feature = "run")]
pub use control_plane::{ControlPlane, Options};
#[cfg(feature = "run")]
pub use manager::{Manager, Provider};
#[cfg(feature = "run")]
pub use tools::{Helm, Kubectl, Outcome};
