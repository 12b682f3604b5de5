//! What goes wrong.

use std::{collections::BTreeSet, time::Duration};

use pve_sim::{Action, Fault};

use crate::{Bed, Dice, Guest, Tally, weather::Weather};

/// What is wrong just now beyond single faults.
#[derive(Default)]
pub(crate) struct Mischief {
    /// A node without power: its cluster, its name, and for how many turns more.
    dead: Option<(usize, String, u64)>,
    /// Turns until the API server is back.
    away: u64,
    /// The nodes that lost their power at some time, by cluster.
    killed: BTreeSet<(usize, String)>,
    /// What nobody else counts.
    done: Tally,
}

impl Mischief {
    /// Does something bad, or ends it; says what.
    pub(crate) async fn turn(&mut self, bed: &Bed, dice: &mut Dice) -> Option<String> {
        let mut said = Vec::new();
        if let Some((cluster, node, turns)) = self.dead.take() {
            if turns == 0 {
                bed.cluster(cluster).revive_node(&node);
                said.push(format!("{node} of cluster {cluster} has power again"));
            } else {
                self.dead = Some((cluster, node, turns - 1));
            }
        }
        if self.away > 0 {
            self.away -= 1;
            if self.away == 0 {
                bed.line().api_down(false);
                said.push("the API server is back".to_owned());
            }
        }
        if dice.one_in(2) {
            said.push(self.begin(bed, dice).await);
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    async fn begin(&mut self, bed: &Bed, dice: &mut Dice) -> String {
        match dice.below(12) {
            0 => {
                bed.line().cut_watches();
                "watches break off".to_owned()
            }
            1 => {
                bed.line().cut_watches();
                bed.server().compact();
                self.done.add("fault: forgotten-history", 1);
                "watches break off and history is forgotten".to_owned()
            }
            2 if self.away == 0 => {
                bed.line().api_down(true);
                self.away = 1;
                "the API server goes away".to_owned()
            }
            3 | 4 => {
                let weather = Weather {
                    conflict: dice.below(120),
                    error: dice.below(120),
                    lost: dice.below(120),
                };
                bed.line().weather(weather, dice.roll());
                format!("{weather:?}")
            }
            5 if self.dead.is_none() => {
                let cluster = usize::from(dice.one_in(2));
                let node = dice.pick(&["pve1", "pve2", "pve3"]).to_owned();
                if is_busy(bed, cluster).await {
                    return format!("cluster {cluster} is too busy to lose {node}");
                }
                bed.cluster(cluster).kill_node(&node);
                self.killed.insert((cluster, node.clone()));
                self.done.add("fault: node-death", 1);
                let said = format!("{node} of cluster {cluster} loses its power");
                self.dead = Some((cluster, node, dice.below(4)));
                said
            }
            _ => {
                let cluster = usize::from(dice.one_in(2));
                let fault = fault(dice);
                let said = format!("cluster {cluster}: {fault:?}");
                bed.cluster(cluster).control().inject(fault);
                said
            }
        }
    }

    /// How often it did what shows in no call.
    pub(crate) fn done(&self) -> &Tally {
        &self.done
    }

    /// Lets other people's guests share the fate of their node: what had no power is off, or runs again if it starts with
    /// its node. That was not the controllers' doing; everything else about these guests is still compared.
    pub(crate) fn excuse(&self, before: &mut [Guest], now: &[Guest]) {
        for guest in before {
            if !self.killed.contains(&(guest.cluster, guest.node.clone())) {
                continue;
            }
            let same = |now: &&Guest| (now.cluster, now.vmid) == (guest.cluster, guest.vmid);
            let now = now.iter().find(same);
            guest.running = now.is_some_and(|now| now.running);
            guest.process = now.and_then(|now| now.process);
        }
    }

    /// Ends everything that is wrong.
    pub(crate) fn end(&mut self, bed: &Bed) {
        if let Some((cluster, node, _)) = self.dead.take() {
            bed.cluster(cluster).revive_node(&node);
        }
        for cluster in 0..bed.cluster_count() {
            bed.cluster(cluster).control().clear();
        }
        bed.line().weather(Weather::default(), 0);
        bed.line().api_down(false);
    }
}

/// Whether anything is under way. A task that dies with its node leaves a lock that PVE lets only root remove, by
/// hand: that is said to people, and is not for the controllers to get over. Nor is it known to be idle when the
/// question itself meets a fault.
async fn is_busy(bed: &Bed, cluster: usize) -> bool {
    match bed.root_of(cluster).cluster().tasks().await {
        Ok(tasks) => tasks.iter().any(pve::task::TaskEntry::is_running),
        Err(_) => true,
    }
}

/// A fault of Proxmox VE.
fn fault(dice: &mut Dice) -> Fault {
    let action = match dice.below(10) {
        0 | 1 => Action::DropAnswer,
        2 => Action::DropRequest,
        3 => Action::Proxy { status: 595 },
        4 => Action::Proxy { status: 596 },
        5 => Action::Hang,
        6 => Action::die("can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout"),
        7 => Action::Error {
            status: dice.pick(&[500, 503]),
            message: "got no worker upid - start worker failed".to_owned(),
        },
        8 => Action::FailTask {
            exit: "command '/sbin/lvcreate' failed: exit code 5".to_owned(),
        },
        _ => Action::delay(Duration::from_millis(dice.below(8_000))),
    };
    let route = match action {
        // Going back to a snapshot or removing it leaves a lock when it dies, which only root can take away.
        Action::FailTask { .. } => dice.pick(&[
            "POST */clone",
            "POST */config",
            "POST */start",
            "POST */migrate",
            "POST */snapshot",
            "POST */vzdump",
        ]),
        _ => dice.pick(&["*", "POST *", "PUT *", "GET *", "DELETE *"]),
    };
    Fault {
        times: Some(1 + dice.below(6)),
        ..Fault::sometimes(route, 0.5, action)
    }
}
