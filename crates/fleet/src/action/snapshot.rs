//! Snapshots.

use std::time::Duration;

use pve::{
    GuestConfig, SnapshotName,
    api::guest::snapshot::{CreateSnapshot, Snapshot},
    task::{Source, TaskEnd, TaskEntry, TaskFilter},
};
use sha2::{Digest as _, Sha256};

use super::{Act, Flow, failed, migrate::has_local_seed, revert::Seen};
use crate::{
    Failure, Outcome, PowerFact, Waiting,
    cloudinit::hex,
    diff::is_seed,
    intent::{SnapshotIntent, SnapshotWish},
    mark,
    record::{StepKind, Subject},
    view::{GuestRow, View},
};

/// The age in seconds of a guest whose first-boot image is in its drive to stay.
const KEPT: u64 = 600;

impl Act<'_> {
    pub(super) async fn snapshot(&mut self, intent: &SnapshotIntent) -> Flow<Outcome> {
        let name = SnapshotName::new(intent.name.clone())
            .map_err(|error| failed(Failure::Invalid, format!("name: {error}")))?;
        let described = digest(&intent.description);
        if intent.wish == SnapshotWish::Present
            && self.record.done
            && self.record.in_flight.is_empty()
        {
            self.same_guest(intent)?;
            self.guest_is_there(intent).await?;
            let written = self.record.described.as_ref();
            if written.is_none_or(|written| *written == described) {
                // What was taken holds, whether or not the cluster can be seen just now.
                return Ok(Outcome::Settled);
            }
        }
        let view = self.view()?;
        let mut ended = self.settle()?;
        if let Some((StepKind::Rollback, upid, end)) = &mut ended
            && let Err(error) = &*end
        {
            let forgotten = matches!(error, pve::Error::OutcomeUnknown { .. });
            if self.doubtful_rollback(intent, &view, upid, error).await? {
                *end = Ok(TaskEnd::Ok);
            } else if forgotten {
                self.record.reverting = None;
                ended = None;
            }
        }
        let begun = if matches!(ended, Some((StepKind::Rollback, ..))) {
            // Whatever came of it, the next one is another.
            self.record.reverting.take()
        } else {
            None
        };
        if let Some((step, _, Err(error))) = &ended {
            // What was to be made is there, or what was to go is gone: the list of snapshots tells.
            let moot = match step {
                StepKind::Snapshot => matches!(error, pve::Error::AlreadyExists { .. }),
                StepKind::DeleteSnapshot => error.is_not_found(),
                // Those that are in the way are named below.
                StepKind::Rollback => matches!(error, pve::Error::InUse { .. }),
                _ => false,
            };
            if !moot {
                let doing = super::reason(*step);
                return Err(self.trouble(doing, error));
            }
        }
        if intent.wish != SnapshotWish::Absent {
            self.same_guest(intent)?;
        }
        let otherwise = self.record.described.as_ref();
        if otherwise.is_some_and(|written| *written != described)
            && self.record.done
            && intent.wish != SnapshotWish::Absent
        {
            self.describe(intent, &name, &view).await?;
            self.record.described = Some(described);
        }
        match intent.wish {
            SnapshotWish::Present if self.record.done => return Ok(Outcome::Settled),
            SnapshotWish::Reverted { generation, .. }
                if self.record.has_reverted(self.kept_by(), generation) =>
            {
                return Ok(Outcome::Settled);
            }
            _ => {}
        }
        if let (Some((StepKind::Rollback, _, Ok(_))), SnapshotWish::Reverted { generation, .. }) =
            (&ended, intent.wish)
        {
            // It may have been asked for anew since.
            let keeper = self.kept_by().cloned();
            let (reverted, of) = match begun {
                Some(begun) => (begun.generation, begun.keeper.or(keeper)),
                None => (generation, keeper),
            };
            let outcome = self.reverted(intent, &view, (reverted, of)).await;
            return Ok(if self.record.has_reverted(self.kept_by(), generation) {
                outcome
            } else {
                Outcome::Persist
            });
        }
        if intent.wish == SnapshotWish::Present && self.begins(intent, &view) {
            return Ok(Outcome::Persist);
        }
        let gone = intent.wish == SnapshotWish::Absent;
        let Some(row) = self.row(&view).await? else {
            return if gone {
                Ok(Outcome::Gone)
            } else {
                Err(no_guest(intent))
            };
        };
        // Whose guest it is was read before the task was sent that has just ended.
        let made = matches!(ended, Some((StepKind::Snapshot, _, Ok(_))));
        let config = if made {
            None
        } else {
            self.checked(&row).await?
        };
        if config.is_none() && !made {
            return if gone {
                Ok(Outcome::Gone)
            } else {
                Err(not_meant(intent))
            };
        }
        if gone && !self.record.done {
            self.none_is_being_made(&row).await?;
        }
        let list = match self.handle(&row).snapshots().await {
            Ok(list) => list,
            Err(error) => return Err(self.trouble("listing snapshots", &error)),
        };
        let found = list.iter().find(|snapshot| snapshot.name == intent.name);
        let ours = found.filter(|snapshot| is_ours(snapshot, intent));
        if let (Some((StepKind::Snapshot, _, Err(error))), None) = (&ended, found) {
            // Something else of its name stands in the way.
            return Err(self.trouble(super::reason(StepKind::Snapshot), error));
        }
        match intent.wish {
            SnapshotWish::Present => {
                let has_seed = |config: &GuestConfig| config.iter().any(|(_, v)| is_seed(v));
                let is_tied = |config: &GuestConfig| {
                    row.uptime < KEPT && has_local_seed(config, &view, &row.node)
                };
                let mut memory = intent.memory && row.kind == pve::GuestKind::Qemu;
                let waits = config.as_ref().is_some_and(|config| {
                    if memory {
                        has_seed(config)
                    } else {
                        is_tied(config)
                    }
                });
                if ours.is_none() && waits {
                    // Going back to its memory would want the image, which is removed when the guest has read it; and a
                    // snapshot that names a disc of one node alone keeps the guest there. The list of guests may be behind
                    // a start.
                    if self.power_now(&view).await != Some(PowerFact::Stopped) {
                        let text = "the first-boot image is still in its drive";
                        return Err(self.wait(Waiting::Guest, text, Duration::from_secs(5)));
                    }
                    // A guest that is off has no memory to keep, and may stay off.
                    memory = false;
                }
                self.present(intent, &name, &row, (found, ours), memory)
                    .await
            }
            SnapshotWish::Absent => match ours {
                None => {
                    self.heard()?;
                    Ok(Outcome::Gone)
                }
                Some(snapshot) => {
                    let force = snapshot.snapstate.is_some();
                    self.absent(intent, &name, &row, force).await
                }
            },
            SnapshotWish::Reverted { generation, start } => {
                if ours.is_none() {
                    // It was taken, so it went with an earlier guest, or somebody removed it.
                    let text = format!(
                        "guest {} no longer has snapshot '{}': delete this object, and go back to another",
                        intent.guest, intent.name
                    );
                    return Err(failed(Failure::Lost, text));
                }
                if let Some((StepKind::Rollback, _, Err(error))) = &ended {
                    self.note_hindrance(intent, &list, error);
                }
                let seen = Seen {
                    view: &view,
                    row: &row,
                    config: config.as_ref(),
                    list: &list,
                };
                self.revert(intent, &name, (generation, start), &seen).await
            }
        }
    }

    /// Comes back unless the snapshot was taken of another guest than is meant now.
    fn same_guest(&self, intent: &SnapshotIntent) -> Flow<()> {
        let was_of = self.record.subject.as_ref().filter(|_| self.record.done);
        match was_of.filter(|was| !was.is(&subject(intent))) {
            None => Ok(()),
            Some(_) => Err(gone_with_its_guest(intent)),
        }
    }

    /// Comes back unless PVE says that there is no guest of this number any more. Only one that is not to be seen is asked for:
    /// what was taken costs nothing as long as it is kept.
    async fn guest_is_there(&mut self, intent: &SnapshotIntent) -> Flow<()> {
        let view = {
            let state = self.cluster.state();
            let known = state.problem.is_none() && state.stranger.is_none();
            state.view.clone().filter(|_| known)
        };
        let row = view.as_ref().map(|view| view.guests.get(&self.guest));
        match row {
            // It may have been another cluster, or only the list, that did not have it.
            Some(Some(row)) if self.record.lost => {
                self.record.lost = !self.is_back(intent, row).await?;
            }
            None | Some(Some(_)) => {}
            Some(None) if self.record.lost => {}
            Some(None) => {
                let free = self.cluster.client.cluster().is_free(self.guest).await;
                self.record.lost = matches!(free, Ok(true));
            }
        }
        if !self.record.lost {
            return Ok(());
        }
        let text = format!(
            "guest {} is gone, and took '{}' along: delete this object",
            intent.guest, intent.name
        );
        Err(failed(Failure::Lost, text))
    }

    /// Whether the guest that was gone is there after all, and has the snapshot.
    async fn is_back(&mut self, intent: &SnapshotIntent, row: &GuestRow) -> Flow<bool> {
        if self.checked(row).await?.is_none() {
            return Ok(false);
        }
        match self.handle(row).snapshots().await {
            Ok(list) => Ok(list.iter().any(|snapshot| is_ours(snapshot, intent))),
            Err(error) => Err(self.trouble("listing snapshots", &error)),
        }
    }

    /// Takes note of whose snapshot it will be before there is any: it is removed from that guest, also when that is let go
    /// meanwhile.
    fn begins(&mut self, intent: &SnapshotIntent, view: &View) -> bool {
        let subject = subject(intent);
        let known = self.record.subject.as_ref();
        if known.is_some_and(|known| known.is(&subject)) || !view.guests.contains_key(&self.guest) {
            return false;
        }
        self.record.begun = true;
        self.record.subject = Some(subject);
        true
    }

    /// Changes the note of a snapshot that was made.
    async fn describe(
        &mut self,
        intent: &SnapshotIntent,
        name: &SnapshotName,
        view: &View,
    ) -> Flow<()> {
        let Some(row) = self.row(view).await? else {
            return Ok(());
        };
        let handle = self.handle(&row);
        let list = match handle.snapshots().await {
            Ok(list) => list,
            Err(error) => return Err(self.trouble("listing snapshots", &error)),
        };
        if !list.iter().any(|snapshot| is_ours(snapshot, intent)) {
            return Ok(());
        }
        let text = mark::describe(&intent.description, &intent.owner);
        let written = handle.describe_snapshot(name, &text).await;
        written.map_err(|error| self.trouble("describing the snapshot", &error))
    }

    /// Whether the guest runs, asked at the source.
    pub(super) async fn power_now(&self, view: &View) -> Option<PowerFact> {
        let row = view.guests.get(&self.guest)?;
        let status = self.handle(row).status().await.ok()?;
        Some(if status.is_running() {
            PowerFact::Running
        } else {
            PowerFact::Stopped
        })
    }

    async fn present(
        &mut self,
        intent: &SnapshotIntent,
        name: &SnapshotName,
        row: &GuestRow,
        (found, ours): (Option<&Snapshot>, Option<&Snapshot>),
        memory: bool,
    ) -> Flow<Outcome> {
        if let Some(snapshot) = ours {
            if snapshot.snapstate.is_some() {
                // PVE lists it from the moment it is begun, and what died on the way stays in the list.
                self.none_is_being_made(row).await?;
                return self.absent(intent, name, row, true).await;
            }
            self.record.done = true;
            // Whatever was sent to make it can make nothing any more.
            self.cluster
                .memory(self.owner, |memory| memory.unheard = None);
            self.record.subject = Some(subject(intent));
            let written = snapshot.description.as_deref().unwrap_or_default();
            self.record.described = Some(digest(&mark::strip(written)));
            self.record.facts.node = Some(row.node.clone());
            self.record.facts.created = snapshot.snaptime;
            self.record.facts.parent.clone_from(&snapshot.parent);
            self.record.facts.memory = Some(snapshot.vmstate);
            self.event(
                "Snapshotted",
                format!("snapshot '{}' of guest {}", intent.name, intent.guest),
            );
            return Ok(Outcome::Settled);
        }
        if found.is_some() {
            let text = format!(
                "guest {} has a snapshot '{}' that is not ours: take another name",
                intent.guest, intent.name
            );
            return Err(failed(Failure::Foreign, text));
        }
        self.free(row)?;
        self.enter(&row.node)?;
        let mut create = CreateSnapshot::new(name.clone());
        create.description = Some(mark::describe(&intent.description, &intent.owner));
        create.vmstate = memory;
        let message = format!(
            "making snapshot '{}' of guest {}",
            intent.name, intent.guest
        );
        let sent = self.handle(row).snapshot(&create).await;
        self.sent(StepKind::Snapshot, &message, sent)
    }

    /// Comes back when no snapshot of the guest is being made: one that was begun before a crash may be on its way.
    async fn none_is_being_made(&mut self, row: &GuestRow) -> Flow<()> {
        let filter = TaskFilter {
            vmid: Some(self.guest),
            source: Source::Active,
            ..TaskFilter::default()
        };
        match self.cluster.client.node(&row.node).tasks(&filter).await {
            Ok(list) => {
                let makes =
                    |task: &TaskEntry| task.is_running() && task.upid.kind().ends_with("snapshot");
                if list.iter().any(makes) {
                    let message = "a snapshot of the guest is being made";
                    return Err(self.wait(Waiting::Locked, message, Duration::from_secs(2)));
                }
                Ok(())
            }
            Err(error) => Err(self.trouble("looking for snapshots under way", &error)),
        }
    }

    async fn absent(
        &mut self,
        intent: &SnapshotIntent,
        name: &SnapshotName,
        row: &GuestRow,
        force: bool,
    ) -> Flow<Outcome> {
        self.free(row)?;
        self.enter(&row.node)?;
        let message = format!(
            "removing snapshot '{}' of guest {}",
            intent.name, intent.guest
        );
        let sent = self.handle(row).delete_snapshot(name, force).await;
        self.sent(StepKind::DeleteSnapshot, &message, sent)
    }

    /// Waits while the guest carries a lock.
    pub(super) fn free(&mut self, row: &GuestRow) -> Flow<()> {
        match row.lock.as_deref().filter(|lock| *lock != "suspended") {
            None => {
                self.cluster
                    .memory(self.owner, |memory| memory.locked = None);
                Ok(())
            }
            Some(lock) => {
                let (pause, message) = self.cluster.held(self.owner, row.kind, self.guest, lock);
                Err(self.wait(Waiting::Locked, message, pause))
            }
        }
    }
}

fn is_ours(snapshot: &Snapshot, intent: &SnapshotIntent) -> bool {
    let text = snapshot.description.as_deref().unwrap_or_default();
    snapshot.name == intent.name && mark::owner_of(text).as_ref() == Some(&intent.owner)
}

/// What tells one description from another.
fn digest(description: &str) -> String {
    let plain = mark::strip(description);
    hex(&Sha256::digest(plain.trim_end())[..8])
}

/// The guest that is meant.
fn subject(intent: &SnapshotIntent) -> Subject {
    Subject {
        cluster: intent.cluster.clone(),
        guest: intent.guest,
        owner: intent.guest_owner.clone(),
        keeper: intent.guest_keeper.clone(),
        likeness: intent.likeness.clone(),
    }
}

fn gone_with_its_guest(intent: &SnapshotIntent) -> Outcome {
    let text = format!(
        "'{}' was taken of another guest than {}, and went with it: delete this object, and take a new one",
        intent.name, intent.guest
    );
    failed(Failure::Lost, text)
}

fn no_guest(intent: &SnapshotIntent) -> Outcome {
    failed(
        Failure::Lost,
        format!("guest {} does not exist", intent.guest),
    )
}

fn not_meant(intent: &SnapshotIntent) -> Outcome {
    failed(
        Failure::Foreign,
        format!("guest {} is not the one that was meant", intent.guest),
    )
}
