//! The Cluster API provider: `infrastructure.cluster.x-k8s.io`.
//!
//! Cluster API owns the shape of a Kubernetes cluster; this front-end translates its machines into the engine's guests and says
//! back what Cluster API's contract asks for. A ProxmoxCluster names one or several Proxmox VE clusters (instances), their
//! credentials and address pools; a ProxmoxMachine becomes one guest on one of them.
//!
//! What is decided is written down where it can be read: the instance in `spec.instance`, identity in the engine's record and
//! `spec.providerID`, the instance of mode SingleInstance in the ProxmoxCluster's status. So a restart decides nothing again.

mod address;
pub(crate) mod cluster;
mod connect;
mod credentials;
mod ignition;
pub(crate) mod machine;
mod netplan;
mod networkd;
mod notice;
mod owner;
mod secrets;
mod spread;
pub(crate) mod template;

use std::sync::Arc;

use crate::context::{Context, Error};
use crate::kinds::Watches;

pub(crate) use cluster::Paces;
pub use connect::GlobalCredentials;
pub(crate) use connect::{Places, place_changed};
pub(crate) use machine::{Asked, Identified};
pub(crate) use notice::Unnoticed;
pub(crate) use secrets::KEEP;
pub(crate) use spread::Chosen;

/// Something is missing that may yet come; the reason is fit for a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Wait {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// Why a pass ends early.
pub(crate) enum Stop {
    /// Something is missing.
    Wait(Wait),
    /// Something was just asked for and will be there in a moment: too soon to say that it is missing.
    Asked,
    /// The Kubernetes API failed.
    Failed(Error),
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Self {
        Self::Wait(wait)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<kube::Error> for Stop {
    fn from(error: kube::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Has every kind looked at again when something it reads has changed.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    cluster::wire(watches, context);
    machine::wire(watches, context);
}
