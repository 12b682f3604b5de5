//! Backup jobs: what `pvescheduler` runs by the calendar.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::access::Caller;
use crate::cluster::Cluster;
use crate::guest::{Guest, backup};
use crate::params::{Params, split_list};
use crate::schedule::Schedule;
use crate::world::World;

/// All backup jobs of a cluster.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Jobs {
    pub(crate) by_id: BTreeMap<String, Job>,
    /// Up to when the calendar has been looked at.
    #[serde(skip)]
    checked: u64,
}

/// A backup job: its options as `jobs.cfg` keeps them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) options: BTreeMap<String, String>,
}

impl Job {
    fn get(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Whether the scheduler runs it.
    pub(crate) fn enabled(&self) -> bool {
        self.get("enabled") != Some("0")
    }

    /// When it runs.
    pub(crate) fn schedule(&self) -> Option<Schedule> {
        Schedule::parse(self.get("schedule")?)
    }

    /// Whether it saves the guest.
    pub(crate) fn includes(&self, world: &World, guest: &Guest) -> bool {
        let named = |list: &str| {
            let list = self.get(list).map(split_list).unwrap_or_default();
            list.iter().any(|id| id.parse() == Ok(guest.vmid))
        };
        if self.get("node").is_some_and(|node| node != guest.node) || named("exclude") {
            return false;
        }
        let pool = || world.access.pool_of(guest.vmid);
        self.get("all") == Some("1")
            || named("vmid")
            || self
                .get("pool")
                .is_some_and(|wanted| pool() == Some(wanted))
    }
}

/// Runs the jobs whose time has come, on every node that has guests of theirs.
pub(crate) fn round(cluster: &Cluster) {
    cluster.world(|world| {
        let now = world.now();
        let since = std::mem::replace(&mut world.backups.checked, now);
        if since == 0 || since >= now {
            return;
        }
        let jobs = world.backups.by_id.iter().filter(|(_, job)| {
            let due = job.schedule().is_some_and(|it| it.between(since, now));
            due && job.enabled()
        });
        let mut tasks = Vec::new();
        for (id, job) in jobs {
            for (node, _) in world.nodes.iter().filter(|(_, node)| node.up) {
                let guests = world.guests.on_node(node);
                let chosen: Vec<u32> = guests
                    .filter(|guest| job.includes(world, guest))
                    .map(|guest| guest.vmid)
                    .collect();
                if chosen.is_empty() {
                    continue;
                }
                let mut params = Params::new();
                for (name, value) in &job.options {
                    params.set(name, value);
                }
                params.set("job-id", id);
                let caller = Caller::user_id("root@pam");
                tasks.push(backup::task(node, &caller, chosen, params));
            }
        }
        for task in tasks {
            cluster.start_in(world, task);
        }
    });
}
