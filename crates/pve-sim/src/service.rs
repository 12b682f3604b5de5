//! What runs on the nodes by itself: the statistics daemon, the HA manager, the backup scheduler; and what happens to
//! nodes from outside: power, fencing, broken networks.

use std::sync::Weak;
use std::time::Duration;

use crate::access::Caller;
use crate::cluster::{Cluster, Inner};
use crate::params::Params;
use crate::task::Task;
use crate::{backup, guest, ha, replication, resources};

/// How long a node takes to boot again after its watchdog has reset it.
const REBOOT: Duration = Duration::from_mins(2);

/// Reports and manages until the cluster is gone.
pub(crate) async fn run(cluster: Weak<Inner>) {
    loop {
        tokio::time::sleep(resources::INTERVAL).await;
        let Some(cluster) = Cluster::from_weak(&cluster) else {
            return;
        };
        cluster.world(resources::report);
        ha::round(&cluster);
        backup::round(&cluster);
        replication::round(&cluster);
    }
}

impl Cluster {
    /// Guests that were booting when the state was kept boot on.
    pub(crate) fn resume_boots(&self) {
        let running: Vec<u32> = self.world(|world| {
            let guests = world.guests.iter().filter(|guest| guest.is_running());
            guests.map(|guest| guest.vmid).collect()
        });
        for vmid in running {
            guest::inside::boot(self, vmid);
        }
    }

    /// A node loses its power: its guests and workers are gone at once.
    pub fn kill_node(&self, node: &str) {
        self.world(|world| {
            let active = world.tasks.active(Some(node));
            let cut = active.map(|record| record.upid.to_string()).collect();
            if let Some(it) = world.nodes.get_mut(node).filter(|it| it.up) {
                it.up = false;
                it.cut = cut;
            }
            world.guests.power_loss(node);
        });
        self.kill_tasks_of(node);
    }

    /// A node is switched off and taken out of the cluster. What the others know of its guests stays: their configuration is
    /// everybody's.
    pub fn remove_node(&self, node: &str) {
        self.kill_node(node);
        self.world(|world| world.nodes.remove(node));
    }

    /// Puts a node into maintenance, as `ha-manager crm-command node-maintenance enable` does, or takes it out again. Guests
    /// that no manager looks after stay where they are.
    pub fn maintain_node(&self, node: &str, maintained: bool) {
        self.world(|world| {
            if maintained {
                world.ha.maintenance.insert(node.to_owned());
            } else {
                world.ha.maintenance.remove(node);
            }
        });
    }

    /// A node is switched on again; guests that start with their node do.
    pub fn revive_node(&self, node: &str) {
        self.world(|world| {
            let now = world.now();
            let Some(it) = world.nodes.get_mut(node).filter(|it| !it.up) else {
                return;
            };
            it.up = true;
            it.cut.clear();
            it.started = now;
            let starting: Vec<(u32, guest::Kind)> = world
                .guests
                .on_node(node)
                .filter(|guest| guest.config.get("onboot") == Some("1") && !guest.is_template())
                .filter(|guest| !world.ha.managed(guest.vmid))
                .map(|guest| (guest.vmid, guest.kind))
                .collect();
            let caller = Caller::user_id("root@pam");
            for (vmid, kind) in starting {
                let task: Task = match kind {
                    guest::Kind::Qemu => {
                        guest::power::start_task(node, vmid, &caller, Params::new())
                    }
                    guest::Kind::Lxc => guest::lxc::power::start_task(node, vmid, &caller),
                };
                self.start_in(world, task);
            }
        });
    }

    /// A node without quorum is reset by its watchdog and comes up again.
    pub(crate) fn fence_node(&self, node: &str) {
        self.kill_node(node);
        let cluster = self.clone();
        let node = node.to_owned();
        self.tracker().spawn(async move {
            tokio::time::sleep(REBOOT).await;
            cluster.revive_node(&node);
        });
    }

    /// Splits the cluster's network: nodes reach only those of their own part. Nodes that are not
    /// named form a part together.
    pub fn partition(&self, parts: &[Vec<String>]) {
        self.world(|world| {
            world.parts.clear();
            for (number, part) in (1..).zip(parts) {
                for node in part {
                    world.parts.insert(node.clone(), number);
                }
            }
        });
    }

    /// Cuts every node off from every other, so that none has quorum.
    pub fn lose_quorum(&self) {
        let alone: Vec<Vec<String>> = self.nodes().into_iter().map(|node| vec![node]).collect();
        self.partition(&alone);
    }

    /// A node does not know of the others any more, as for a moment after its cluster file system has started again: it shows
    /// itself alone, and all guests.
    pub fn blind_node(&self, node: &str) {
        self.world(|world| world.blind.insert(node.to_owned()));
    }

    /// Makes the network whole again, and every node know of the others.
    pub fn heal(&self) {
        self.partition(&[]);
        self.world(|world| world.blind.clear());
    }
}
