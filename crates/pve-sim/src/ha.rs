//! High availability: guests that shall run whatever happens to their node.
//!
//! Every ten seconds the manager compares what is requested with what is: it starts and stops
//! guests, moves them where rules (or, on 8, groups) want them, and when a node has been gone for
//! a minute it fences the node and brings its guests up elsewhere.

mod manager;
mod place;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::world::World;

pub(crate) use manager::round;

/// What is requested of one guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Resource {
    /// `started`, `stopped`, `disabled` or `ignored`.
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) group: Option<String>,
    pub(crate) max_restart: u32,
    pub(crate) max_relocate: u32,
    #[serde(default)]
    pub(crate) comment: Option<String>,
    pub(crate) failback: bool,
    /// Options that are only kept and shown.
    #[serde(default)]
    pub(crate) options: BTreeMap<String, String>,
}

impl Default for Resource {
    fn default() -> Self {
        Self {
            state: "started".to_owned(),
            group: None,
            max_restart: 1,
            max_relocate: 1,
            comment: None,
            failback: true,
            options: BTreeMap::new(),
        }
    }
}

/// A group of nodes (8.4).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    /// `pve1:2,pve2`
    pub(crate) nodes: String,
    pub(crate) restricted: bool,
    pub(crate) nofailback: bool,
    #[serde(default)]
    pub(crate) comment: Option<String>,
}

/// A rule (9).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rule {
    #[serde(rename = "type")]
    pub(crate) kind: RuleKind,
    pub(crate) resources: BTreeSet<String>,
    #[serde(default)]
    pub(crate) comment: Option<String>,
    #[serde(default)]
    pub(crate) disable: bool,
    pub(crate) order: u32,
}

/// What a rule says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum RuleKind {
    /// Where resources shall run.
    Node { nodes: String, strict: bool },
    /// Whether resources shall run together (`true`) or apart.
    Resource { together: bool },
}

/// What the manager knows of one guest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Service {
    pub(crate) state: String,
    pub(crate) node: String,
    restarts: u32,
    relocates: u32,
    /// Where somebody asked the guest to be moved.
    target: Option<String>,
    /// The worker acting for it.
    #[serde(skip)]
    task: Option<String>,
}

/// The configuration and the state of the manager.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ha {
    pub(crate) resources: BTreeMap<String, Resource>,
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) rules: BTreeMap<String, Rule>,
    pub(crate) services: BTreeMap<String, Service>,
    /// Since when a node is gone.
    #[serde(default)]
    gone: BTreeMap<String, u64>,
    /// Nodes that were put into maintenance.
    #[serde(default)]
    pub(crate) maintenance: BTreeSet<String>,
}

/// The id of the resource of a guest, `vm:100` or `ct:100`.
fn is_of(sid: &str, vmid: u32) -> bool {
    sid.split_once(':')
        .is_some_and(|(_, id)| id.parse() == Ok(vmid))
}

impl Ha {
    fn sid(&self, vmid: u32) -> Option<&String> {
        self.resources.keys().find(|sid| is_of(sid, vmid))
    }

    /// Whether the manager has this guest.
    pub(crate) fn managed(&self, vmid: u32) -> bool {
        !self.resources.is_empty() && self.sid(vmid).is_some()
    }

    /// The state of the guest's service, once the manager has seen it.
    pub(crate) fn state(&self, vmid: u32) -> Option<String> {
        if self.services.is_empty() {
            return None;
        }
        let sid = self.sid(vmid)?;
        self.services.get(sid).map(|service| service.state.clone())
    }

    /// Requests a state of a managed guest; the manager sees it in its next round.
    pub(crate) fn request(&mut self, vmid: u32, state: &str) {
        if let Some(sid) = self.sid(vmid).cloned()
            && let Some(resource) = self.resources.get_mut(&sid)
        {
            state.clone_into(&mut resource.state);
        }
    }

    /// The manager gives a guest up, as when it could be neither started nor moved.
    pub(crate) fn give_up(&mut self, vmid: u32) {
        if let Some(sid) = self.sid(vmid).cloned() {
            let service = self.services.entry(sid).or_default();
            "error".clone_into(&mut service.state);
        }
    }

    /// Requests that a managed guest is moved.
    pub(crate) fn request_migrate(&mut self, vmid: u32, node: &str) {
        if let Some(sid) = self.sid(vmid).cloned()
            && let Some(service) = self.services.get_mut(&sid)
        {
            service.target = Some(node.to_owned());
        }
    }

    /// Puts a guest under the manager.
    pub(crate) fn add(&mut self, sid: &str, state: &str) {
        let resource = Resource {
            state: state.to_owned(),
            ..Resource::default()
        };
        self.resources.insert(sid.to_owned(), resource);
    }

    /// Forgets a destroyed guest, in rules too.
    pub(crate) fn forget(&mut self, vmid: u32) {
        let Some(sid) = self.sid(vmid).cloned() else {
            return;
        };
        self.resources.remove(&sid);
        self.services.remove(&sid);
        for rule in self.rules.values_mut() {
            rule.resources.remove(&sid);
        }
        self.rules.retain(|_, rule| !rule.resources.is_empty());
    }

    /// What the manager thinks of a node, if it manages anything.
    pub(crate) fn node_state(&self, world: &World, node: &str) -> Option<&'static str> {
        if self.maintenance.contains(node) {
            return Some("maintenance");
        }
        if self.services.is_empty() {
            return None;
        }
        let up = world.nodes.get(node).is_some_and(|it| it.up) && world.quorate(node);
        Some(match (up, self.gone.get(node)) {
            (true, _) => "online",
            (false, Some(_)) => "unknown",
            (false, None) => "fence",
        })
    }
}
