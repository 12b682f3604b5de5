//! From API objects to the engine's intents: pure, so that what a field does can be read and tested here.
//!
//! A machine's intent comes from five objects: the machine, its class, its image (already resolved to a
//! source), its Provider's defaults and its placement policy. Where several speak, the nearest to the
//! machine wins. What no object says stays `None` in the intent, which the engine reads as "not ours".

mod disks;
mod hardware;
mod init;
mod networks;
mod options;
mod place;

use std::time::Duration;

use api::vm::{
    DeletionPolicy, LossPolicy, ManagementPolicy, PowerState, Provider, Readiness, UpdatePolicy,
    VMClass, VMPlacementPolicy, VirtualMachine,
};
use fleet::{
    ClusterName, GuestRecord, Owner, Size, StorageId, Vmid,
    intent::{
        Deletion, GuestIntent, Loss, Management, Policy, Power, Readiness as When, Source, Update,
        VmidRange,
    },
};
use kube::ResourceExt as _;

use super::apart::Apart;

pub(crate) use disks::drive;
pub(crate) use hardware::of as hardware_of;
pub(crate) use init::{InitParts, init};
pub(crate) use networks::container_nic;
pub(crate) use options::{firewall, ha, pool, startup};
pub(crate) use place::{anti_affinity_tag, label_tags, placement};

/// A field that cannot be what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub(crate) struct Invalid {
    pub(crate) field: String,
    pub(crate) problem: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// What a machine's intent is made of.
pub(crate) struct MachineParts<'a> {
    pub(crate) owner: Owner,
    pub(crate) cluster: ClusterName,
    pub(crate) machine: &'a VirtualMachine,
    pub(crate) class: Option<&'a VMClass>,
    pub(crate) provider: &'a Provider,
    pub(crate) provider_nodes: &'a [String],
    pub(crate) policy: Option<&'a VMPlacementPolicy>,
    /// What this one is kept apart from.
    pub(crate) apart: &'a Apart,
    /// Label keys that some placement policy speaks of.
    pub(crate) watched_labels: &'a [String],
    pub(crate) source: Source,
    pub(crate) init: Option<fleet::intent::Init>,
    /// The guest was there before, and keeps what no object speaks of.
    pub(crate) adopted: bool,
    /// What is known of the guest.
    pub(crate) record: &'a GuestRecord,
}

/// The intent of a machine.
pub(crate) fn machine(parts: MachineParts<'_>) -> Result<GuestIntent, Invalid> {
    let spec = &parts.machine.spec;
    let defaults = parts.provider.spec.defaults.clone().unwrap_or_default();
    let name = parts.machine.name_any();
    let mut intent = GuestIntent::new(parts.owner, parts.cluster, name, parts.source);
    let adopted = parts.adopted;
    intent.hardware = hardware::hardware(spec, parts.class, adopted)?;
    intent.disks = disks::disks(spec, parts.class, &defaults, &intent.source)?;
    intent.nics = networks::nics(spec, parts.provider)?;
    intent.init = parts.init;
    networks::sizes_are_heard(&intent)?;
    let labels = parts.machine.labels();
    let tags = place::label_tags(parts.watched_labels, |key| {
        labels.get(key).map(String::as_str)
    });
    intent.options = options::options(spec, &defaults, tags, parts.record, adopted);
    intent.power = match spec.power_state {
        None if adopted => Power::Unmanaged { started: false },
        said => power(said.unwrap_or_default()),
    };
    intent.restarts = spec.restarts.unwrap_or_default().into();
    intent.placement = place::placement(
        spec.node.as_deref(),
        parts.provider_nodes,
        parts.policy.map(|p| &p.spec),
        parts.apart,
    )?;
    intent.policy = Policy {
        update: match spec.update_policy {
            UpdatePolicy::Live => Update::Live,
            UpdatePolicy::RestartIfNeeded => Update::RestartIfNeeded,
            UpdatePolicy::Staged => Update::Staged,
        },
        deletion: deletion(spec.deletion(adopted)),
        loss: match spec.loss_policy {
            LossPolicy::Report => Loss::Report,
            LossPolicy::Recreate => Loss::Recreate,
        },
        management: match spec.management_policy {
            ManagementPolicy::Manage => Management::Full,
            ManagementPolicy::Observe => Management::Observe,
        },
        readiness: match spec.readiness {
            Readiness::Address => When::Addresses,
            Readiness::Running => When::Running,
        },
        shutdown_timeout: spec
            .shutdown_timeout_seconds
            .map_or(Policy::default().shutdown_timeout, |s| {
                Duration::from_secs(s.into())
            }),
        protected: spec.protection == Some(true),
        ..Policy::default()
    };
    intent.vmids = vmids(parts.provider)?;
    intent.adopt = spec
        .adopt
        .as_ref()
        .map(|adopt| vmid("spec.adopt.vmid", adopt.vmid))
        .transpose()?;
    Ok(intent)
}

/// What a wish about power means to the engine.
pub(crate) fn power(state: PowerState) -> Power {
    match state {
        PowerState::On => Power::On,
        PowerState::Off | PowerState::OffGraceful => Power::Off,
        PowerState::OffHard => Power::HardOff,
        PowerState::Paused => Power::Paused,
        PowerState::Suspended => Power::Suspended,
    }
}

/// What a deletion policy means to the engine.
pub(crate) fn deletion(policy: DeletionPolicy) -> Deletion {
    match policy {
        DeletionPolicy::Delete => Deletion::Delete,
        DeletionPolicy::Retain => Deletion::Retain,
        DeletionPolicy::Orphan => Deletion::Orphan,
    }
}

/// The VMIDs a Provider gives out.
pub(crate) fn vmids(provider: &Provider) -> Result<VmidRange, Invalid> {
    match provider
        .spec
        .defaults
        .as_ref()
        .and_then(|defaults| defaults.vmid_range)
    {
        None => Ok(VmidRange::default()),
        Some(range) => VmidRange::new(range.min, range.max).ok_or_else(|| {
            Invalid::new(
                "Provider spec.defaults.vmidRange",
                "min must be at least 100 and not greater than max",
            )
        }),
    }
}

pub(crate) fn vmid(field: &str, id: u32) -> Result<Vmid, Invalid> {
    Vmid::new(id).map_err(|error| Invalid::new(field, error.to_string()))
}

pub(crate) fn storage(field: &str, name: &str) -> Result<StorageId, Invalid> {
    StorageId::new(name).map_err(|error| Invalid::new(field, error.to_string()))
}

pub(crate) fn size(bytes: api::vm::Bytes) -> Size {
    Size::bytes(bytes.0)
}

/// Nodes a Provider's guests may be placed on: the spec's own list, else `PVE_NODE_SELECTOR`.
pub(crate) fn provider_nodes(provider: &Provider, env: Option<&str>) -> Vec<String> {
    if provider.spec.node_selector.is_empty() {
        let listed = env.unwrap_or_default().split(',').map(str::trim);
        listed
            .filter(|name| !name.is_empty())
            .map(ToOwned::to_owned)
            .collect()
    } else {
        provider.spec.node_selector.clone()
    }
}
