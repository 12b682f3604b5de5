//! Resource pools: named sets of guests and storages that rights can be given on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::access::Access;

/// One pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pool {
    #[serde(default)]
    pub(crate) comment: Option<String>,
    #[serde(default)]
    pub(crate) guests: BTreeSet<u32>,
    #[serde(default)]
    pub(crate) storages: BTreeSet<String>,
}

impl Access {
    /// Puts a guest into a pool and out of any other.
    pub(crate) fn join_pool(&mut self, vmid: u32, pool: &str) {
        self.leave_pool(vmid);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.guests.insert(vmid);
        }
    }

    /// Takes a guest out of its pool.
    pub(crate) fn leave_pool(&mut self, vmid: u32) {
        for pool in self.pools.values_mut() {
            pool.guests.remove(&vmid);
        }
    }

    /// Forgets a destroyed guest: its rights and its pool.
    pub(crate) fn forget_guest(&mut self, vmid: u32) {
        self.leave_pool(vmid);
        self.acl.remove(&format!("/vms/{vmid}"));
    }

    /// Forgets a storage that is no longer configured: its rights and its pools.
    pub(crate) fn forget_storage(&mut self, id: &str) {
        for pool in self.pools.values_mut() {
            pool.storages.remove(id);
        }
        self.acl.remove(&format!("/storage/{id}"));
    }
}
