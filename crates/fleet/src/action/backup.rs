//! Backups.

use std::time::Duration;

use pve::{
    VolumeId,
    api::{backup::Backup, storage::content::Volume},
};

use super::{Act, Flow, failed, no_facts};
use crate::{
    Failure, NodeName, Outcome, Waiting,
    intent::{BackupIntent, BackupMode, Compression},
    mark,
    record::StepKind,
    view::View,
};

impl Act<'_> {
    pub(super) async fn backup(&mut self, intent: &BackupIntent) -> Flow<Outcome> {
        if self.record.done {
            return Ok(Outcome::Settled);
        }
        let view = self.view()?;
        let ended = self.settle()?;
        if let Some((_, _, Err(error))) = &ended {
            return Err(self.trouble("making the backup", error));
        }
        let Some(row) = self.row(&view).await? else {
            return Err(failed(
                Failure::Lost,
                format!("guest {} does not exist", intent.guest),
            ));
        };
        if !self.record.begun {
            // From here on what is found on the storage may be our own work.
            self.record.begun = true;
            return Ok(Outcome::Persist);
        }
        let found = self.find(intent, &row.node).await?;
        if let Some((first, more)) = found.split_first() {
            // A lost answer may have made it twice.
            for extra in more {
                self.drop_volume(&row.node, &extra.volid).await?;
            }
            self.record.done = true;
            self.record.facts.volume = Some(first.volid.to_string());
            self.record.facts.size = first.size;
            self.record.facts.created = first.ctime;
            self.record.facts.node = Some(row.node.clone());
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
        if self.checked(&row).await?.is_none() {
            let text = format!("guest {} is not the one that was meant", intent.guest);
            return Err(failed(Failure::Foreign, text));
        }
        self.free(&row)?;
        self.enter(&row.node)?;
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
        if let Some((step, _, Err(error))) = self.settle()?
            && step != StepKind::Backup
        {
            return Err(self.trouble("removing the backup", &error));
        }
        let Some(node) = self.node_with(intent, &view) else {
            let message = format!("no node that is up has storage '{}'", intent.storage);
            return Err(self.wait(Waiting::NodeDown, message, Duration::from_secs(30)));
        };
        for volume in self.find(intent, &node).await? {
            if volume.protected {
                let text = format!(
                    "{} is protected: switch its protection off to go on",
                    volume.volid
                );
                return Err(self.wait(Waiting::Protected, text, Duration::from_mins(1)));
            }
            self.drop_volume(&node, &volume.volid).await?;
        }
        self.record.facts = no_facts();
        Ok(Outcome::Gone)
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

    fn node_with(&self, intent: &BackupIntent, view: &View) -> Option<NodeName> {
        let has = |node: &NodeName| {
            view.node_online(node)
                && view
                    .storage(&intent.storage, node)
                    .is_some_and(|row| row.available)
        };
        let made_on = self.record.facts.node.clone().filter(|node| has(node));
        made_on.or_else(|| view.nodes.keys().find(|node| has(node)).cloned())
    }
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
