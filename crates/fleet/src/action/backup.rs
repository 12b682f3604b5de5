//! Backups.

use std::{collections::BTreeMap, time::Duration};

use pve::{
    VolumeId,
    api::{backup::Backup, storage::content::Volume},
    task::{Source, TaskEntry, TaskFilter},
};
use tokio::time::Instant;

use super::{Act, Flow, failed, no_facts};
use crate::{
    Event, Failure, NodeName, Outcome, Upid, Waiting,
    guest::LATE,
    intent::{BackupIntent, BackupMode, Compression},
    mark,
    record::{StepKind, Subject},
    trouble,
    view::View,
};

impl Act<'_> {
    pub(super) async fn backup(&mut self, intent: &BackupIntent) -> Flow<Outcome> {
        if self.record.done {
            return Ok(Outcome::Settled);
        }
        let view = self.view()?;
        let ended = self.settle()?;
        if let Some((step, upid, Err(error))) = &ended {
            return Err(match step {
                StepKind::Backup => self.not_made(intent, upid, error).await,
                _ => self.trouble("removing a backup", error),
            });
        }
        let row = self.row(&view).await?;
        let lost = || {
            let text = format!("guest {} does not exist", intent.guest);
            failed(Failure::Lost, text)
        };
        if !self.record.begun {
            let row = row.ok_or_else(lost)?;
            // From here on what is found on the storage may be our own work.
            self.record.begun = true;
            self.record.subject = Some(Subject {
                cluster: intent.cluster.clone(),
                guest: intent.guest,
                owner: intent.guest_owner.clone(),
                keeper: intent.guest_keeper.clone(),
                likeness: intent.likeness.clone(),
            });
            self.record.facts.node = Some(row.node);
            return Ok(Outcome::Persist);
        }
        let began = self.record.facts.node.clone();
        let from = began.or_else(|| row.as_ref().map(|row| row.node.clone()));
        let from = from.ok_or_else(lost)?;
        if self.went_with(intent, &view, &from)? {
            // And whatever was made there.
            self.record.facts.node = Some(row.ok_or_else(lost)?.node);
            return Ok(Outcome::Persist);
        }
        let at = self.reaching(intent, &view, &from)?;
        let found = self.find(intent, &at).await?;
        if let Some((first, more)) = found.split_first() {
            // A lost answer may have made it twice.
            for extra in more {
                self.drop_volume(&at, &extra.volid).await?;
            }
            self.record.done = true;
            self.record.facts.volume = Some(first.volid.to_string());
            self.record.facts.size = first.size;
            self.record.facts.created = first.ctime;
            self.record.facts.node = Some(from);
            self.event(
                "BackedUp",
                format!("guest {} is in {}", intent.guest, first.volid),
            );
            return Ok(Outcome::Settled);
        }
        if ended.is_some_and(|(step, _, _)| step == StepKind::Backup) {
            // Trying again would fill the storage with backups nobody finds.
            let text = format!(
                "the backup is made, but '{}' does not list it",
                intent.storage
            );
            return Err(failed(Failure::GaveUp, text));
        }
        let Some(row) = row else {
            self.no_backup_runs(&view, &from).await?;
            return Err(lost());
        };
        if self.checked(&row).await?.is_none() {
            let text = format!("guest {} is not the one that was meant", intent.guest);
            return Err(failed(Failure::Foreign, text));
        }
        self.rested()?;
        self.free(&row)?;
        self.its_turn()?;
        // One whose answer was lost would be made twice.
        self.no_backup_runs(&view, &from).await?;
        if from != row.node {
            // It has moved since: what is made from now on is made there.
            self.record.facts.node = Some(row.node);
            return Ok(Outcome::Persist);
        }
        self.enter_for(StepKind::Backup, &row.node)?;
        let mut backup = Backup::of(intent.guest, intent.storage.clone());
        let mode = match intent.mode {
            BackupMode::Snapshot => "snapshot",
            BackupMode::Suspend => "suspend",
            BackupMode::Stop => "stop",
        };
        backup.mode = Some(mode.to_owned());
        let compress = match intent.compress {
            Compression::Zstd => "zstd",
            Compression::Lzo => "lzo",
            Compression::Gzip => "gzip",
            Compression::None => "0",
        };
        backup.compress = Some(compress.to_owned());
        // Unless told, PVE removes what the storage's rules do not keep: backups of other people.
        backup.remove = Some(false);
        backup.protected = intent.protected.then_some(true);
        backup.notes_template = Some(notes(intent));
        let message = format!("backing guest {} up to {}", intent.guest, intent.storage);
        let sent = self.cluster.client.node(&row.node).backup(&backup).await;
        self.sent(StepKind::Backup, &message, sent)
    }

    pub(super) async fn delete_backup(&mut self, intent: &BackupIntent) -> Flow<Outcome> {
        if !self.record.begun {
            return Ok(Outcome::Gone);
        }
        let view = self.view()?;
        let ended = self.settle()?;
        if let Some((step, _, Err(error))) = &ended
            && *step != StepKind::Backup
        {
            return Err(self.trouble("removing the backup", error));
        }
        let removed = matches!(ended, Some((StepKind::RemoveVolume, ..)));
        for from in self.nodes_it_may_be_on(intent, &view)? {
            if self.went_with(intent, &view, &from)? {
                continue;
            }
            let node = self.reaching(intent, &view, &from)?;
            if !self.record.done {
                self.no_backup_runs(&view, &from).await?;
            }
            let found = self.find(intent, &node).await?;
            if found.is_empty() && !removed {
                self.may_see(&node).await?;
            }
            for volume in found {
                if volume.protected {
                    let text = format!(
                        "{} is protected: switch its protection off to go on",
                        volume.volid
                    );
                    return Err(self.wait(Waiting::Protected, text, Duration::from_mins(1)));
                }
                self.drop_volume(&node, &volume.volid).await?;
            }
        }
        if !self.record.done {
            self.heard()?;
        }
        self.record.facts = no_facts();
        Ok(Outcome::Gone)
    }

    /// A backup that failed. Proxmox VE says only that there were errors; the log of the task says which.
    async fn not_made(
        &mut self,
        intent: &BackupIntent,
        upid: &Upid,
        error: &pve::Error,
    ) -> Outcome {
        let log = self.cluster.client.task_log(upid, 0, LOG_LINES).await;
        let log = log.unwrap_or_default();
        let why = complaint(&log);
        if let Some(why) = why.filter(|why| why.contains("max backup limit")) {
            let text = format!(
                "storage '{}' keeps no more backups of guest {} ({why}); nothing is removed for a new one: \
                 delete old ones, or let the storage keep more (its option prune-backups)",
                intent.storage, intent.guest
            );
            self.events
                .push(Event::warning("BackupLimit", text.clone()));
            return self.rest(Waiting::Space, text, LIMIT_PAUSE);
        }
        let doing = match why {
            Some(why) => format!("making the backup ({why})"),
            None => "making the backup".to_owned(),
        };
        let cause = why.map(|why| pve::Error::from_text(None, why, BTreeMap::new()));
        // By somebody who does not want it back at once.
        let stopped = matches!(cause, Some(pve::Error::Interrupted { .. }));
        if is_passing(error) || (!stopped && cause.as_ref().is_some_and(is_passing)) {
            return self.trouble(&doing, error);
        }
        // What goes wrong before the guest is touched ends the task with other words than these.
        let touched = why.is_some() || error.to_string().contains("job errors");
        if intent.mode != BackupMode::Snapshot && touched && !stopped {
            let text = format!(
                "{doing}: {}; it is not tried again by itself, because that would stop the guest once more: see to what \
                 failed and ask for another backup, or for one in mode snapshot",
                trouble::line(error)
            );
            self.events
                .push(Event::warning("BackupFailed", text.clone()));
            return failed(Failure::GaveUp, text);
        }
        let outcome = self.trouble(&doing, error);
        let Outcome::Waiting { what, message, .. } = outcome else {
            return outcome;
        };
        let failures = self.cluster.memory(self.owner, |memory| memory.failures);
        let pause = PAUSE.0 * (1 << (failures.clamp(1, 4) - 1));
        self.rest(what, message, pause.min(PAUSE.1))
    }

    /// Lets the backup be for a while, whoever looks meanwhile.
    fn rest(&mut self, what: Waiting, text: String, pause: Duration) -> Outcome {
        let rests = (Instant::now() + pause, what, text.clone());
        self.cluster
            .memory(self.owner, |memory| memory.rests = Some(rests));
        self.wait(what, text, pause)
    }

    /// Comes back when it may be tried again.
    fn rested(&mut self) -> Flow<()> {
        let rests = self
            .cluster
            .memory(self.owner, |memory| memory.rests.clone());
        let now = Instant::now();
        match rests.filter(|(until, ..)| *until > now) {
            Some((until, what, why)) => Err(self.wait(what, why, until - now)),
            None => Ok(()),
        }
    }

    /// Comes back when no other backup of the guest was begun just now. PVE names a backup after its second: of two in the same one
    /// the first would be lost.
    fn its_turn(&mut self) -> Flow<()> {
        let now = Instant::now();
        let waits = {
            let mut state = self.cluster.state();
            state.backups.retain(|_, (at, _)| now - *at < APART);
            let last = state.backups.get(&self.guest);
            let waits = last.is_some_and(|(_, owner)| owner != self.owner);
            if !waits {
                state.backups.insert(self.guest, (now, self.owner.clone()));
            }
            waits
        };
        if waits {
            let message = "another backup of the guest is being begun";
            return Err(self.wait(Waiting::Turn, message, APART));
        }
        Ok(())
    }

    /// Comes back when no backup of the guest is being made on the node: one whose answer was lost may be on its way.
    async fn no_backup_runs(&mut self, view: &View, node: &NodeName) -> Flow<()> {
        // Nothing runs any more on a node that has left the cluster.
        if !view.nodes.contains_key(node) {
            return Ok(());
        }
        let filter = TaskFilter {
            vmid: Some(self.guest),
            kind: Some("vzdump".to_owned()),
            source: Source::Active,
            ..TaskFilter::default()
        };
        match self.cluster.client.node(node).tasks(&filter).await {
            Ok(list) if list.iter().any(TaskEntry::is_running) => {
                let message = "a backup of the guest is being made";
                Err(self.wait(Waiting::Locked, message, Duration::from_secs(5)))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(self.trouble("looking for backups under way", &error)),
        }
    }

    /// Backups of the guest that carry our mark, oldest first.
    async fn find(&mut self, intent: &BackupIntent, node: &NodeName) -> Flow<Vec<Volume>> {
        let storage = self.cluster.client.node(node).storage(&intent.storage);
        let mark = mark::describe("", &intent.owner);
        match storage.content(Some("backup"), Some(intent.guest)).await {
            Ok(list) => {
                let mut ours: Vec<Volume> = list
                    .into_iter()
                    .filter(|volume| {
                        volume
                            .notes
                            .as_deref()
                            .is_some_and(|notes| notes.contains(&mark))
                    })
                    .collect();
                ours.sort_by_key(|volume| (volume.ctime, volume.volid.to_string()));
                Ok(ours)
            }
            Err(error) => Err(self.trouble("listing backups", &error)),
        }
    }

    /// Comes back unless the backup that was made may be there and hidden from us: PVE leaves out of its lists what one has no
    /// right to, such as the backups of guests that went, and took a right to their pool along.
    async fn may_see(&mut self, node: &NodeName) -> Flow<()> {
        let made = self.record.facts.volume.clone();
        let Some(volume) = made.and_then(|made| VolumeId::new(made).ok()) else {
            return Ok(());
        };
        let storage = self.cluster.client.node(node).storage(&volume.storage());
        match storage.volume(&volume).await {
            Err(pve::Error::Denied { .. }) => {
                let text = format!(
                    "{volume} may not be looked at, as may be when its guest is gone and was in a pool: grant VM.Backup on \
                     /vms/{}, or Datastore.Allocate on /storage/{}, to have it removed, or retain it",
                    self.guest,
                    volume.storage()
                );
                Err(self.wait(Waiting::Privilege, text, Duration::from_mins(1)))
            }
            Err(error) if error.is_unknown() => Err(self.trouble("looking for the backup", &error)),
            // It is not there, whatever words PVE has for that; or it says by its notes that it is not ours any more.
            _ => Ok(()),
        }
    }

    async fn drop_volume(&mut self, node: &NodeName, volume: &VolumeId) -> Flow<()> {
        let storage = self.cluster.client.node(node).storage(&volume.storage());
        match storage.delete_volume(volume, Some(15)).await {
            Ok(None) => Ok(()),
            Ok(Some(upid)) => {
                let task = self
                    .cluster
                    .started(self.owner, StepKind::RemoveVolume, &upid);
                self.record.in_flight.push(task);
                let message = format!("removing {volume}");
                Err(Outcome::Working {
                    step: StepKind::RemoveVolume,
                    message,
                })
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(self.trouble("removing a backup", &error)),
        }
    }

    /// Whether it went with its node, which has left the cluster for good.
    fn went_with(&mut self, intent: &BackupIntent, view: &View, from: &NodeName) -> Flow<bool> {
        let mut storages = view.storages.iter();
        let shared = storages.any(|((id, _), row)| *id == intent.storage && row.shared);
        if shared || view.nodes.contains_key(from) {
            self.cluster.memory(self.owner, |memory| memory.left = None);
            return Ok(false);
        }
        let now = Instant::now();
        let since = self
            .cluster
            .memory(self.owner, |memory| *memory.left.get_or_insert(now));
        match LATE.checked_sub(now - since).filter(|left| !left.is_zero()) {
            None => Ok(true),
            Some(left) => {
                let text = format!("node {from} is not part of the cluster any more");
                Err(self.wait(Waiting::NodeDown, text, left))
            }
        }
    }

    /// The node to ask for what was written from one: itself, or if the storage is shared any that sees it.
    fn reaching(&mut self, intent: &BackupIntent, view: &View, from: &NodeName) -> Flow<NodeName> {
        let row = |node: &NodeName| view.storage(&intent.storage, node);
        let sees =
            |node: &&NodeName| view.node_online(node) && row(node).is_some_and(|row| row.available);
        let shared = view
            .nodes
            .keys()
            .any(|node| row(node).is_some_and(|row| row.shared));
        let others = view.nodes.keys().filter(|_| shared);
        if let Some(node) = std::iter::once(from).chain(others).find(sees) {
            return Ok(node.clone());
        }
        if view.node_online(from) {
            let message = format!(
                "node {from} has no storage '{}' that is ready: check its name, and whether it is active there",
                intent.storage
            );
            return Err(self.wait(Waiting::Space, message, Duration::from_secs(30)));
        }
        let message = if shared {
            format!("no node that is up has storage '{}'", intent.storage)
        } else {
            format!(
                "storage '{}' of node {from} is not to be reached",
                intent.storage
            )
        };
        Err(self.wait(Waiting::NodeDown, message, Duration::from_secs(30)))
    }

    /// The node it was made on; those with the storage if that was not recorded.
    fn nodes_it_may_be_on(&mut self, intent: &BackupIntent, view: &View) -> Flow<Vec<NodeName>> {
        if let Some(node) = &self.record.facts.node {
            return Ok(vec![node.clone()]);
        }
        let all = view.storages.keys().filter(|(id, _)| *id == intent.storage);
        let all: Vec<NodeName> = all.map(|(_, node)| node.clone()).collect();
        if all.is_empty() {
            let message = format!("no node has storage '{}'", intent.storage);
            return Err(self.wait(Waiting::NodeDown, message, Duration::from_secs(30)));
        }
        Ok(all)
    }
}

/// How far apart two backups of a guest are begun.
const APART: Duration = Duration::from_secs(2);

/// After how long a storage is asked again whether it keeps one more.
const LIMIT_PAUSE: Duration = Duration::from_mins(10);

/// After how long a backup that failed is tried again, at first and at most: it may take hours each time.
const PAUSE: (Duration, Duration) = (Duration::from_mins(10), Duration::from_hours(1));

/// How much of a log is read.
const LOG_LINES: u64 = 200;

/// Whether an error says nothing against the backup: somebody was in the way, or nobody knows how far it came.
fn is_passing(error: &pve::Error) -> bool {
    use pve::Error;
    let passing = matches!(
        error,
        Error::OutcomeUnknown { .. }
            | Error::Interrupted { .. }
            | Error::Locked { .. }
            | Error::LockTimeout { .. }
            | Error::NoQuorum { .. }
    );
    passing || error.to_string().contains("can't acquire lock")
}

/// What the log of a backup says about its failure.
fn complaint(log: &[String]) -> Option<&str> {
    let mut said = log.iter().filter_map(|line| {
        let (_, rest) = line.split_once("ERROR: Backup of VM ")?;
        Some(rest.split_once(" failed - ")?.1.trim_end())
    });
    said.next_back()
}

/// PVE fills braces in and reads backslashes, so neither is passed on; the mark follows in the same line.
fn notes(intent: &BackupIntent) -> String {
    let plain = |c: char| {
        if c.is_control() || "{}\\".contains(c) {
            ' '
        } else {
            c
        }
    };
    let text: String = intent.notes.chars().map(plain).collect();
    format!("{} {}", text.trim(), mark::describe("", &intent.owner))
        .trim_start()
        .to_owned()
}
