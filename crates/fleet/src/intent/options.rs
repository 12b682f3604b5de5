//! What PVE keeps about a guest beside its hardware.

use std::net::IpAddr;

use crate::{Size, StorageId, intent::Payload};

/// Everything beside the hardware. `None` is not owned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Text for people. The owner mark is added to it.
    pub description: Option<String>,
    /// Tags.
    pub tags: Option<Vec<String>>,
    /// Further tags stay: its template's, and those that others gave it.
    pub keep_tags: bool,
    /// Pool.
    pub pool: Option<String>,
    /// The pool is the one that guests join when none is named for them.
    pub pool_by_default: bool,
    /// Start with the host.
    pub onboot: Option<bool>,
    /// Place in the host's start order.
    pub startup: Option<Startup>,
    /// Refuse removal of guest and disks, by anybody, until it is switched off again.
    pub protection: Option<bool>,
    /// High availability.
    pub ha: Option<Ha>,
    /// Firewall of the guest.
    pub firewall: Option<FirewallIntent>,
}

/// Place in a host's start order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Startup {
    /// Lower starts earlier.
    pub order: Option<u32>,
    /// Seconds to wait after starting it.
    pub up: Option<u32>,
    /// Seconds it gets to shut down.
    pub down: Option<u32>,
}

/// High availability of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ha {
    /// The state PVE's HA manager shall keep; the intent's power decides between started and stopped.
    pub state: HaState,
    /// HA group (PVE 8 and before). On PVE 9 use `nodes`.
    pub group: Option<String>,
    /// Preferred nodes (PVE 9: a node-affinity rule of the guest's own).
    pub nodes: Vec<String>,
    /// Only those nodes.
    pub strict: bool,
    /// Restarts on the same node.
    pub max_restart: Option<u32>,
    /// Moves to another node.
    pub max_relocate: Option<u32>,
}

/// Whether PVE's HA manager acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HaState {
    /// It keeps the power state of the intent.
    #[default]
    Managed,
    /// It looks on.
    Ignored,
}

/// Firewall of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FirewallIntent {
    /// Whether it filters.
    pub enable: Option<bool>,
    /// What happens to incoming traffic no rule names: `ACCEPT`, `REJECT`, `DROP`.
    pub policy_in: Option<String>,
    /// What happens to outgoing traffic no rule names.
    pub policy_out: Option<String>,
    /// Let only the guest's own hardware addresses through.
    pub mac_filter: Option<bool>,
    /// Let only the guest's own addresses through.
    pub ip_filter: Option<bool>,
    /// Security groups, in order, after the rules.
    pub groups: Vec<String>,
    /// Rules, in order.
    pub rules: Vec<FirewallRule>,
}

/// Which way traffic flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirewallDirection {
    /// Into the guest.
    #[default]
    In,
    /// Out of the guest.
    Out,
}

/// One firewall rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FirewallRule {
    /// Which way.
    pub direction: FirewallDirection,
    /// `ACCEPT`, `REJECT` or `DROP`.
    pub action: String,
    /// A macro, such as `SSH`.
    pub macro_name: Option<String>,
    /// Protocol, such as `tcp`.
    pub proto: Option<String>,
    /// Source address, network, set or alias.
    pub source: Option<String>,
    /// Destination address, network, set or alias.
    pub dest: Option<String>,
    /// Destination port or ports.
    pub dport: Option<String>,
    /// Source port or ports.
    pub sport: Option<String>,
    /// Interface, such as `net0`.
    pub iface: Option<String>,
    /// Text for people.
    pub comment: Option<String>,
}

/// What only a container has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// Run without the host's root.
    pub unprivileged: bool,
    /// Swap.
    pub swap: Option<Size>,
    /// Root password.
    pub password: Option<Payload>,
    /// SSH keys of its root.
    pub ssh_keys: Vec<String>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Search domain.
    pub search: Option<String>,
    /// Features such as `nesting=1`.
    pub features: Vec<String>,
    /// More file systems beside the root, which is the disk with role Root.
    pub mounts: Vec<MountPoint>,
}

/// A file system mounted in a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountPoint {
    /// The caller's name for it, which it keeps.
    pub name: String,
    /// Where.
    pub path: String,
    /// Its storage.
    pub storage: Option<StorageId>,
    /// Once it was made it stays where it is: `storage` is only where that is done.
    pub stays: bool,
    /// Its size.
    pub size: Size,
    /// Include it in backups.
    pub backup: bool,
    /// Mount it read-only.
    pub read_only: bool,
}
