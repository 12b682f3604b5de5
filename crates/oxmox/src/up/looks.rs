//! Which clusters this process has looked at: what it said of machines before its last start is not taken for how they are.

use std::collections::BTreeMap;
use std::time::Duration;

use api::vm::VirtualMachine;
use fleet::{ClusterName, Fleet};
use tokio::time::Instant;

/// What a look shows is in the objects after this time.
const SETTLED: Duration = Duration::from_secs(3);

/// How long a cluster may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The clusters there are, and since when each answers, or does not.
pub(super) struct Looks {
    fleet: Fleet,
    clusters: BTreeMap<ClusterName, Look>,
}

#[derive(Clone, Copy)]
struct Look {
    answers: bool,
    since: Instant,
}

impl Looks {
    pub(super) fn new(fleet: Fleet) -> Self {
        Self {
            fleet,
            clusters: BTreeMap::new(),
        }
    }

    /// Expects this cluster to answer from now on.
    pub(super) fn expect(&mut self, cluster: ClusterName) {
        let answers = self.answers(&cluster);
        let since = Instant::now();
        self.clusters
            .entry(cluster)
            .or_insert(Look { answers, since });
    }

    /// Looks again.
    pub(super) fn refresh(&mut self) {
        let names: Vec<ClusterName> = self.clusters.keys().cloned().collect();
        for name in names {
            let answers = self.answers(&name);
            self.note(name, answers);
        }
    }

    fn answers(&self, cluster: &ClusterName) -> bool {
        let facts = self.fleet.facts(cluster);
        facts.is_some_and(|facts| facts.reachable)
    }

    fn note(&mut self, cluster: ClusterName, answers: bool) {
        let since = Instant::now();
        let look = self.clusters.entry(cluster);
        let look = look.or_insert(Look { answers, since });
        if look.answers != answers {
            *look = Look { answers, since };
        }
    }

    /// Whether all were looked at.
    pub(super) fn are_done(&self) -> bool {
        self.clusters.values().all(is_done)
    }

    /// Whether the cluster of a machine was looked at.
    pub(super) fn have_seen(&self, machine: &VirtualMachine) -> bool {
        cluster_of(machine)
            .and_then(|cluster| self.clusters.get(&cluster))
            .is_some_and(is_done)
    }

    /// Those that have not answered for too long, and why.
    pub(super) fn silent(&self) -> Vec<(String, String)> {
        let silent = |look: &Look| !look.answers && look.since.elapsed() >= PATIENCE;
        let silent = self.clusters.iter().filter(|(_, look)| silent(look));
        let why = |name: &ClusterName| {
            let problem = self.fleet.facts(name).and_then(|facts| facts.problem);
            problem.unwrap_or_else(|| "`kubectl describe provider` says why".to_owned())
        };
        silent
            .map(|(name, _)| (name.to_string(), why(name)))
            .collect()
    }
}

#[cfg(test)]
impl Looks {
    /// Has a cluster looked at.
    pub(super) async fn see(&mut self, cluster: &str) {
        let name = ClusterName::new(cluster).unwrap();
        self.note(name, true);
        tokio::time::sleep(SETTLED).await;
    }
}

fn is_done(look: &Look) -> bool {
    look.answers && look.since.elapsed() >= SETTLED
}

/// The cluster a machine is on.
pub(super) fn cluster_of(machine: &VirtualMachine) -> Option<ClusterName> {
    let cluster = machine.status.as_ref()?.cluster.as_deref()?;
    ClusterName::new(cluster).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cluster: &str) -> VirtualMachine {
        let mut machine = VirtualMachine::new("web", api::vm::VirtualMachineSpec::default());
        machine.status = Some(api::vm::VirtualMachineStatus {
            cluster: Some(cluster.to_owned()),
            ..api::vm::VirtualMachineStatus::default()
        });
        machine
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_was_looked_at_once_it_answers_and_that_has_reached_the_objects() {
        let name = ClusterName::new("default/pve").unwrap();
        let mut looks = Looks::new(Fleet::new());
        looks.expect(name.clone());
        assert!(!looks.are_done());
        looks.note(name.clone(), true);
        assert!(!looks.have_seen(&machine("default/pve")));
        looks.see("default/pve").await;
        assert!(looks.are_done());
        assert!(looks.have_seen(&machine("default/pve")));
        assert!(!looks.have_seen(&machine("default/other")));
        looks.note(name, false);
        assert!(!looks.are_done());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_does_not_answer_is_waited_for_no_longer_than_needed() {
        let mut looks = Looks::new(Fleet::new());
        looks.expect(ClusterName::new("default/pve").unwrap());
        tokio::time::sleep(PATIENCE / 2).await;
        looks.refresh();
        assert!(looks.silent().is_empty());
        tokio::time::sleep(PATIENCE / 2).await;
        looks.refresh();
        assert_eq!(looks.silent()[0].0, "default/pve");
    }
}
