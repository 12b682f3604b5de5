//! Things done to a guest that is there: snapshots, moves, backups.
//!
//! Each is a matter of its own with an owner of its own, kept apart from the guest's. Whether it was
//! done is written where it can be found again: a snapshot and a backup carry their owner's mark in
//! their description, a move leaves the guest on its node.

mod backup;
mod migrate;
mod revert;
mod snapshot;

use std::{sync::Arc, time::Duration};

use pve::{GuestConfig, GuestKind, api::guest::ConfigView};
use tokio::time::Instant;

use crate::{
    ActionFacts, ActionProgress, ActionRecord, ClusterName, Event, Failure, NodeName, Outcome,
    Owner, Vmid, Waiting,
    cluster::{Cluster, Memory},
    gate::Key,
    intent::{BackupIntent, MigrationIntent, SnapshotIntent},
    record::{Likeness, StepKind},
    tasks::{Ended, Standing},
    trouble::{self, Trouble},
    view::{GuestRow, View},
};

/// A pass that ends here ends like this.
type Flow<T> = Result<T, Outcome>;

/// One call for one action.
struct Act<'a> {
    cluster: &'a Arc<Cluster>,
    owner: &'a Owner,
    guest: Vmid,
    guest_owner: Option<&'a Owner>,
    guest_keeper: Option<&'a Owner>,
    likeness: &'a Likeness,
    record: ActionRecord,
    events: Vec<Event>,
}

macro_rules! door {
    ($name:ident, $intent:ty) => {
        pub(crate) async fn $name(
            cluster: &Arc<Cluster>,
            intent: &$intent,
            record: &ActionRecord,
        ) -> ActionProgress {
            let mut act = Act {
                cluster,
                owner: &intent.owner,
                guest: intent.guest,
                guest_owner: intent.guest_owner.as_ref(),
                guest_keeper: intent.guest_keeper.as_ref(),
                likeness: &intent.likeness,
                record: record.clone(),
                events: Vec::new(),
            };
            let open = !record.done || record.reverting.is_some();
            cluster.suspect_calls(&intent.owner, open);
            let outcome = match Box::pin(act.$name(intent)).await {
                Ok(outcome) | Err(outcome) => outcome,
            };
            act.finish(outcome)
        }
    };
}

door!(snapshot, SnapshotIntent);
door!(migrate, MigrationIntent);
door!(backup, BackupIntent);
door!(delete_backup, BackupIntent);

/// The end of an action that was never begun.
pub(crate) fn nothing_begun(record: &ActionRecord) -> ActionProgress {
    ActionProgress {
        record: record.clone(),
        outcome: Outcome::Gone,
        facts: record.facts.clone(),
        events: Vec::new(),
    }
}

/// The answer when the cluster is not connected.
pub(crate) fn not_connected(cluster: &ClusterName, record: &ActionRecord) -> ActionProgress {
    let message = format!("PVE cluster '{cluster}' is not connected");
    ActionProgress {
        record: record.clone(),
        outcome: Outcome::Waiting {
            what: Waiting::Cluster,
            message,
            retry: Duration::from_secs(30),
        },
        facts: record.facts.clone(),
        events: Vec::new(),
    }
}

impl Act<'_> {
    fn finish(self, outcome: Outcome) -> ActionProgress {
        if outcome.is_done() {
            self.cluster.forget(self.owner);
        }
        let facts = self.record.facts.clone();
        ActionProgress {
            record: self.record,
            outcome,
            facts,
            events: self.events,
        }
    }

    fn view(&self) -> Flow<Arc<View>> {
        self.cluster.ready(self.owner)
    }

    /// The guest as the view shows it. `None` when PVE says that its VMID is free.
    async fn row(&mut self, view: &View) -> Flow<Option<GuestRow>> {
        if let Some(row) = view.guests.get(&self.guest) {
            if !view.node_online(&row.node) {
                let message = format!("node {} is down", row.node);
                self.cluster.state().stranded.insert(self.owner.clone());
                return Err(self.wait(Waiting::NodeDown, message, Duration::from_secs(30)));
            }
            return Ok(Some(row.clone()));
        }
        match self.cluster.client.cluster().is_free(self.guest).await {
            Ok(true) => Ok(None),
            Ok(false) => {
                self.cluster.refresh();
                let message = format!("guest {} is not to be seen yet", self.guest);
                Err(self.wait(Waiting::Source, message, Duration::from_secs(5)))
            }
            Err(error) => Err(self.trouble("asking for the guest", &error)),
        }
    }

    /// Reads the guest and checks whose it is. `None` if it is not the one that was meant.
    async fn checked(&mut self, row: &GuestRow) -> Flow<Option<GuestConfig>> {
        match self.handle(row).config(ConfigView::Next).await {
            Ok(config) => {
                let (owner, keeper) = (self.guest_owner, self.guest_keeper);
                let meant = self.likeness.is_meant(owner, keeper, row.kind, &config);
                Ok(meant.then_some(config))
            }
            Err(error) if error.is_guest_not_found() => {
                self.cluster.refresh();
                Err(self.wait(
                    Waiting::Error,
                    "the guest is moving",
                    Duration::from_secs(2),
                ))
            }
            Err(error) => Err(self.trouble("reading the guest", &error)),
        }
    }

    /// Who keeps the guest, made or taken over.
    fn kept_by(&self) -> Option<&Owner> {
        self.guest_owner.or(self.guest_keeper)
    }

    fn handle(&self, row: &GuestRow) -> pve::Guest {
        let node = self.cluster.client.node(&row.node);
        match row.kind {
            GuestKind::Qemu => (*node.qemu(self.guest)).clone(),
            GuestKind::Lxc => (*node.lxc(self.guest)).clone(),
        }
    }

    fn event(&mut self, reason: &'static str, message: impl Into<String>) {
        self.events.push(Event::normal(reason, message));
    }

    fn wait(&mut self, what: Waiting, message: impl Into<String>, retry: Duration) -> Outcome {
        self.cluster.remind(self.owner, retry);
        Outcome::Waiting {
            what,
            message: message.into(),
            retry,
        }
    }

    fn trouble(&mut self, doing: &str, error: &pve::Error) -> Outcome {
        let failures = self.cluster.memory(self.owner, |memory| {
            memory.failures += 1;
            memory.failures
        });
        let text = format!("{doing}: {}", trouble::line(error));
        if failures == 1 || failures.is_power_of_two() {
            self.events.push(Event::warning("Retrying", text.clone()));
        }
        match trouble::judge(error) {
            Trouble::Never(why) => failed(why, text),
            Trouble::Verify => self.wait(Waiting::Error, text, trouble::backoff(failures)),
            Trouble::Wait(what) => self.wait(what, text, trouble::backoff(failures)),
        }
    }

    /// Asks for room on the node, once for the whole action.
    fn enter(&mut self, node: &NodeName) -> Flow<()> {
        self.enter_for(StepKind::Snapshot, node)
    }

    /// The same for what may take hours.
    fn enter_for(&mut self, step: StepKind, node: &NodeName) -> Flow<()> {
        let keys = vec![Key::of(step, node)];
        if self.cluster.enter(self.owner, keys) {
            return Ok(());
        }
        let message = match step {
            StepKind::Backup => format!("in line for the backups of node {node}"),
            StepKind::Migrate => format!("in line for the moves from node {node}"),
            _ => format!("in line for node {node}"),
        };
        Err(Outcome::Waiting {
            what: Waiting::Turn,
            message,
            retry: Duration::from_mins(1),
        })
    }

    /// Takes note of a started task, or of why it was not started.
    fn sent(
        &mut self,
        step: StepKind,
        message: &str,
        sent: pve::Result<pve::Upid>,
    ) -> Flow<Outcome> {
        match sent {
            Ok(upid) => {
                self.event(reason(step), message);
                let task = self.cluster.started(self.owner, step, &upid);
                self.record.in_flight.push(task);
                self.record.begun = true;
                Ok(Outcome::Working {
                    step,
                    message: message.to_owned(),
                })
            }
            Err(error) => {
                self.cluster.exit(self.owner, crate::gate::End::Other);
                let lasting = matches!(
                    step,
                    StepKind::Snapshot | StepKind::Backup | StepKind::Rollback
                );
                if lasting && trouble::judge(&error) == Trouble::Verify {
                    let now = Instant::now();
                    self.cluster
                        .memory(self.owner, |memory| memory.unheard = Some(now));
                }
                Err(self.trouble(message, &error))
            }
        }
    }

    /// Comes back when no call can take effect any more that was not answered.
    fn heard(&mut self) -> Flow<()> {
        match self.cluster.unheard(self.owner) {
            None => Ok(()),
            Some(left) => {
                let text = "a call was not answered and may still take effect";
                Err(self.wait(Waiting::Error, text, left))
            }
        }
    }

    /// The task that has ended since the last call; comes back only if none is under way.
    fn settle(&mut self) -> Flow<Option<(StepKind, pve::Upid, Ended)>> {
        let Some(task) = self.record.in_flight.first().cloned() else {
            return Ok(None);
        };
        match self.cluster.standing(self.owner, &task) {
            Standing::Flying => {
                let tasks = [task];
                if let Some(task) = self.cluster.cut_off(self.owner, &tasks) {
                    let (node, upid) = (task.upid.node(), &task.upid);
                    let message = format!("node {node} is down, in the middle of {upid}");
                    return Err(self.wait(Waiting::NodeDown, message, Duration::from_secs(30)));
                }
                let [task] = tasks;
                let message = format!("{} ({})", reason(task.step), task.upid);
                Err(Outcome::Working {
                    step: task.step,
                    message,
                })
            }
            Standing::Ended(end) => {
                self.cluster.state().tasks.settle(&task.upid);
                self.record.in_flight.clear();
                Ok(Some((task.step, task.upid, *end)))
            }
        }
    }

    /// What was known of the guest may no longer hold: its own owner shall look again.
    fn unsettle_guest(&self, change: impl FnOnce(&mut Memory, Instant)) {
        let now = Instant::now();
        let owner = self.cluster.state().owners.get(&self.guest).cloned();
        let Some(owner) = owner else { return };
        self.cluster.memory(&owner, |memory| {
            memory.doubt = true;
            memory.model = None;
            memory.power = None;
            // Its disks may be as they were before they grew.
            memory.grown.clear();
            change(memory, now);
        });
        self.cluster.refresh();
        self.cluster.wake(&[owner]);
    }
}

fn failed(why: Failure, message: impl Into<String>) -> Outcome {
    Outcome::Failed {
        why,
        message: message.into(),
    }
}

fn reason(step: StepKind) -> &'static str {
    match step {
        StepKind::Snapshot => "Snapshotting",
        StepKind::DeleteSnapshot => "DeletingSnapshot",
        StepKind::Rollback => "Reverting",
        StepKind::Migrate => "Moving",
        StepKind::Backup => "BackingUp",
        _ => "Removing",
    }
}

fn no_facts() -> ActionFacts {
    ActionFacts::default()
}
