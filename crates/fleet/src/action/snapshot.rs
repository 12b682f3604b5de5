//! Snapshots.

use std::{collections::BTreeSet, time::Duration};

use pve::{
    GuestConfig, SnapshotName,
    api::guest::snapshot::{CreateSnapshot, Snapshot},
    task::{Source, TaskEnd, TaskEntry, TaskFilter},
};
use sha2::{Digest as _, Sha256};

use super::{Act, Flow, failed, migrate::has_local_seed};
use crate::{
    Event, Failure, Outcome, PowerFact, Upid, Waiting,
    cloudinit::hex,
    cluster::GuestMemory,
    diff::is_seed,
    intent::{SnapshotIntent, SnapshotWish},
    mark,
    record::{InFlight, Reverting, StepKind, Subject},
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
            let written = self.record.described.as_ref();
            if written.is_none_or(|written| *written == described) {
                // What was taken holds, whether or not the cluster can be seen just now.
                return Ok(Outcome::Settled);
            }
        }
        let view = self.view()?;
        let mut ended = self.settle()?;
        if let Some((StepKind::Rollback, upid, Err(pve::Error::OutcomeUnknown { .. }))) = &ended {
            let upid = upid.clone();
            match self.forgotten_rollback(intent, &view, &upid).await? {
                Some(end) => ended = Some((StepKind::Rollback, upid, Ok(end))),
                None => ended = None,
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
            SnapshotWish::Reverted { generation, .. } if self.record.reverted >= generation => {
                return Ok(Outcome::Settled);
            }
            _ => {}
        }
        if let (Some((StepKind::Rollback, _, Ok(_))), SnapshotWish::Reverted { generation, .. }) =
            (&ended, intent.wish)
        {
            // It may have been asked for anew since.
            let reverted = begun.map_or(generation, |begun| begun.generation);
            self.record.reverted = reverted;
            self.event(
                "Reverted",
                format!("guest {} is back at '{}'", intent.guest, intent.name),
            );
            let power = self.power_now(&view).await;
            self.unsettle_guest(|memory, now| {
                memory.power = power.map(|power| (power, now));
                memory.guest = GuestMemory::default();
            });
            if reverted < generation {
                return Ok(Outcome::Persist);
            }
            return Ok(Outcome::Settled);
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
                None => Ok(Outcome::Gone),
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
                    let text = in_the_way(&list, &intent.name, error);
                    let known = Some((names(&list), text));
                    self.cluster
                        .memory(self.owner, |memory| memory.in_the_way = known);
                }
                let known = self
                    .cluster
                    .memory(self.owner, |memory| memory.in_the_way.clone());
                if let Some((_, text)) = known.filter(|(known, _)| *known == names(&list)) {
                    return Err(self.wait(Waiting::InUse, text, Duration::from_mins(2)));
                }
                let newest = self.newest_rollback(&row).await?;
                match &self.record.reverting {
                    Some(begun) if begun.generation == generation => {
                        if let Some(upid) = newest.filter(|it| Some(it) != begun.before.as_ref()) {
                            return Ok(self.found_rollback(&upid));
                        }
                    }
                    _ => {
                        let said = |key: &str| {
                            let config = config.as_ref();
                            config.and_then(|c| c.get(key)).map(str::to_owned)
                        };
                        self.record.reverting = Some(Reverting {
                            generation,
                            before: newest,
                            parent: said("parent"),
                            genid: said("vmgenid"),
                        });
                        return Ok(Outcome::Persist);
                    }
                }
                self.free(&row)?;
                self.enter(&row.node)?;
                let message = format!("taking guest {} back to '{}'", intent.guest, intent.name);
                // Who keeps the guest starts it, after what the snapshot brought back was put right.
                let start = start && self.guest_owner.is_none();
                let sent = self.handle(&row).rollback(&name, start).await;
                self.sent(StepKind::Rollback, &message, sent)
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

    /// The newest task that took the guest back to a snapshot, running or not.
    async fn newest_rollback(&mut self, row: &GuestRow) -> Flow<Option<Upid>> {
        let kind = match row.kind {
            pve::GuestKind::Qemu => "qmrollback",
            pve::GuestKind::Lxc => "vzrollback",
        };
        let filter = TaskFilter {
            vmid: Some(self.guest),
            kind: Some(kind.to_owned()),
            source: Source::All,
            limit: Some(1),
            ..TaskFilter::default()
        };
        match self.cluster.client.node(&row.node).tasks(&filter).await {
            Ok(list) => Ok(list.into_iter().next().map(|task| task.upid)),
            Err(error) => Err(self.trouble("looking for reverts", &error)),
        }
    }

    /// A revert was carried out, and only its answer was lost.
    fn found_rollback(&mut self, upid: &Upid) -> Outcome {
        let step = StepKind::Rollback;
        let message = format!("{} ({upid})", super::reason(step));
        let task = self.cluster.started(self.owner, step, upid);
        self.record.in_flight.push(task);
        Outcome::Working { step, message }
    }

    /// PVE does not know any more how the task ended that took the guest back. To do it again would throw away what was
    /// written since, so the guest itself is asked. What it cannot tell is not guessed.
    async fn forgotten_rollback(
        &mut self,
        intent: &SnapshotIntent,
        view: &View,
        upid: &Upid,
    ) -> Flow<Option<TaskEnd>> {
        // Until that is known, it is not forgotten here as well.
        self.record.in_flight = vec![InFlight {
            step: StepKind::Rollback,
            upid: upid.clone(),
        }];
        let begun = self.record.reverting.clone();
        let wanted = match (intent.wish, &begun) {
            (SnapshotWish::Reverted { generation, .. }, Some(begun)) => {
                begun.generation == generation
            }
            (SnapshotWish::Reverted { .. }, None) => true,
            _ => false,
        };
        let mut done = Some(false);
        if wanted
            && let Some(row) = self.row(view).await?
            && let Some(config) = self.checked(&row).await?
        {
            // A task that died leaves its lock.
            self.free(&row)?;
            done = was_taken_back(begun.as_ref(), &config, &intent.name);
        }
        let Some(done) = done else {
            let text = format!(
                "PVE no longer knows how task {upid} ended, and nothing about guest {} tells whether it was taken back to '{}'; \
                 look at it, and ask again if it was not",
                intent.guest, intent.name
            );
            return Err(failed(Failure::Uncertain, text));
        };
        self.record.in_flight.clear();
        self.record.reverting = None;
        if !done {
            return Ok(None);
        }
        self.events.push(Event::warning(
            "RevertForgotten",
            format!(
                "PVE no longer knows task {upid}; guest {} shows that it was taken back to '{}'",
                intent.guest, intent.name
            ),
        ));
        Ok(Some(TaskEnd::Ok))
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
    async fn power_now(&self, view: &View) -> Option<PowerFact> {
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

fn names(list: &[Snapshot]) -> BTreeSet<String> {
    let kept = list.iter().filter(|snapshot| !snapshot.is_current());
    kept.map(|snapshot| snapshot.name.clone()).collect()
}

/// Why a guest cannot go back to a snapshot: some storages cannot go back past a newer one.
fn in_the_way(list: &[Snapshot], to: &str, error: &pve::Error) -> String {
    let taken = |snapshot: &&Snapshot| snapshot.snaptime.unwrap_or_default();
    let at = list.iter().find(|snapshot| snapshot.name == to);
    let at = at.as_ref().map_or(0, taken);
    let newer = list
        .iter()
        .filter(|snapshot| !snapshot.is_current() && taken(snapshot) > at);
    let newer: Vec<&str> = newer.map(|snapshot| snapshot.name.as_str()).collect();
    let newer = newer.join(", ");
    format!("{error}: delete the newer ones first ({newer}), whose state is lost by going back")
}

/// What tells one description from another.
fn digest(description: &str) -> String {
    let plain = mark::strip(description);
    hex(&Sha256::digest(plain.trim_end())[..8])
}

/// Whether a guest was taken back to a snapshot since the revert was begun. PVE gives it a new generation whenever it does; one
/// without generations says only what snapshot it goes on from, which may have been the same one before.
fn was_taken_back(begun: Option<&Reverting>, now: &GuestConfig, to: &str) -> Option<bool> {
    let from_it = now.get("parent") == Some(to);
    let Some(begun) = begun else {
        return Some(from_it);
    };
    if let (Some(then), Some(now)) = (begun.genid.as_deref(), now.get("vmgenid")) {
        return Some(from_it && then != now);
    }
    let before = begun.parent.as_deref() == Some(to);
    (!before || !from_it).then_some(from_it)
}

/// The guest that is meant.
fn subject(intent: &SnapshotIntent) -> Subject {
    Subject {
        cluster: intent.cluster.clone(),
        guest: intent.guest,
        owner: intent.guest_owner.clone(),
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
