//! Firewall configuration of the datacenter, of nodes and of guests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One rule: its options by name.
pub(crate) type Rule = BTreeMap<String, String>;

/// One firewall file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) rules: Vec<Rule>,
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) aliases: BTreeMap<String, Alias>,
    pub(crate) ipsets: BTreeMap<String, IpSet>,
}

/// A name for an address.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Alias {
    pub(crate) cidr: String,
    pub(crate) comment: Option<String>,
}

/// A set of addresses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct IpSet {
    pub(crate) comment: Option<String>,
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// An address in a set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) comment: Option<String>,
    pub(crate) nomatch: bool,
}

/// A security group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) comment: Option<String>,
    pub(crate) rules: Vec<Rule>,
}

/// All firewall files of a cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Firewall {
    pub(crate) cluster: File,
    pub(crate) groups: BTreeMap<String, Group>,
    pub(crate) nodes: BTreeMap<String, File>,
    pub(crate) guests: BTreeMap<u32, File>,
    #[serde(default)]
    pub(crate) vnets: BTreeMap<String, File>,
}

impl Firewall {
    /// A clone gets a copy of its source's firewall file.
    pub(crate) fn copy_guest(&mut self, from: u32, to: u32) {
        if let Some(file) = self.guests.get(&from).cloned() {
            self.guests.insert(to, file);
        }
    }

    /// A destroyed guest loses its firewall file.
    pub(crate) fn remove_guest(&mut self, vmid: u32) {
        self.guests.remove(&vmid);
    }
}
