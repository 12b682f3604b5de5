//! Images: a file on the web becomes a template, wherever it is needed.
//!
//! The node fetches the file itself and checks its digest; a guest is created that imports it and is turned into a
//! template; the file is removed again. What makes two images the same is their checksum (or, without one, their
//! address), written on the template as a tag: an image that is already there is used, whoever asked for it first.
//!
//! Everybody who uses a template has a tag of their own on it ([`share`]). Who leaves takes that tag off; the
//! template goes with the last one.

mod lost;
mod make;
mod nodes;
mod remove;
mod rest;
mod share;

use std::{sync::Arc, time::Duration};

use pve::{GuestConfig, VolumeId};
use uuid::Uuid;

use crate::{
    ClusterName, Event, Failure, ImageFacts, ImageProgress, ImageRecord, NodeName, Outcome, Owner,
    Vmid, Waiting,
    cluster::{Cluster, ImageMemory},
    gate::Key,
    guest::look::{is_making, left_locked},
    intent::ImageIntent,
    mark,
    record::{InFlight, ReplicaStage, StepKind, uuid_of},
    tasks::{Ended, Standing},
    view::View,
};

type Flow<T> = Result<T, Outcome>;

/// Brings an image one step nearer to being there.
pub(crate) async fn keep(
    cluster: &Arc<Cluster>,
    intent: &ImageIntent,
    record: &ImageRecord,
) -> ImageProgress {
    let mut work = Work::new(cluster, intent, record);
    let outcome = match Box::pin(work.keep()).await {
        Ok(outcome) | Err(outcome) => outcome,
    };
    work.finish(outcome)
}

/// Brings the end of an image one step nearer: templates of ours that nothing is linked to go.
pub(crate) async fn remove(
    cluster: &Arc<Cluster>,
    intent: &ImageIntent,
    record: &ImageRecord,
) -> ImageProgress {
    let mut work = Work::new(cluster, intent, record);
    let outcome = match Box::pin(work.remove()).await {
        Ok(outcome) | Err(outcome) => outcome,
    };
    work.finish(outcome)
}

/// The end of an image for which nothing was done.
pub(crate) fn nothing_begun(record: &ImageRecord) -> ImageProgress {
    ImageProgress {
        record: record.clone(),
        outcome: Outcome::Gone,
        facts: ImageFacts::default(),
        events: Vec::new(),
    }
}

/// The answer when the cluster is not connected.
pub(crate) fn not_connected(cluster: &ClusterName, record: &ImageRecord) -> ImageProgress {
    ImageProgress {
        record: record.clone(),
        outcome: Outcome::Waiting {
            what: Waiting::Cluster,
            message: format!("PVE cluster '{cluster}' is not connected"),
            retry: Duration::from_secs(30),
        },
        facts: ImageFacts::default(),
        events: Vec::new(),
    }
}

struct Work<'a> {
    cluster: &'a Arc<Cluster>,
    intent: &'a ImageIntent,
    record: ImageRecord,
    events: Vec<Event>,
    /// What is on every template of this image.
    tag: String,
    /// What is on every template this owner uses.
    use_tag: String,
}

impl<'a> Work<'a> {
    fn new(cluster: &'a Arc<Cluster>, intent: &'a ImageIntent, record: &ImageRecord) -> Self {
        Self {
            cluster,
            intent,
            record: record.clone(),
            events: Vec::new(),
            tag: intent.tag(),
            use_tag: share::tag_of(&intent.owner),
        }
    }

    fn finish(self, outcome: Outcome) -> ImageProgress {
        let templates = self
            .cluster
            .view()
            .map(|view| self.there(&view))
            .unwrap_or_default();
        if outcome.is_done() && self.is_last_to_rest() {
            self.cluster.forget(&self.intent.owner);
        }
        if outcome == Outcome::Gone {
            let mut state = self.cluster.state();
            state.owners.retain(|_, owner| owner != &self.intent.owner);
        }
        ImageProgress {
            record: self.record,
            outcome,
            facts: ImageFacts { templates },
            events: self.events,
        }
    }

    /// Forgets what is remembered of this image. Whether nothing else of its owner is under way here, whose tasks, turn and unheard
    /// calls are its owner's too.
    fn is_last_to_rest(&self) -> bool {
        let mut state = self.cluster.state();
        let place = self.place();
        // It rests as well while all its nodes are down, but not for ever.
        let down = state.images.remove(&place).and_then(|memory| memory.down);
        let mut others = state.images.keys();
        let last = others.all(|(owner, _)| *owner != self.intent.owner);
        let here = format!("{}@", self.tag);
        let mine = |at: &str, maker: &Owner| *maker == self.intent.owner && at.starts_with(&here);
        state.image_makers.retain(|at, maker| !mine(at, maker));
        if down.is_some() {
            let memory = ImageMemory {
                down,
                ..ImageMemory::default()
            };
            state.images.insert(place, memory);
        }
        last
    }

    /// Templates of this image that the view shows, but for those that were found to be others.
    fn there(&self, view: &View) -> Vec<(NodeName, Vmid)> {
        let others = self.remembered(|memory| memory.others.clone());
        view.templates()
            .filter(|(vmid, row)| row.tags.contains(&self.tag) && !others.contains(vmid))
            .map(|(vmid, row)| (row.node.clone(), vmid))
            .collect()
    }

    /// Ties the VMIDs that were chosen to their owner, so that nobody else chooses them.
    fn track(&self) {
        let mut state = self.cluster.state();
        for replica in self.record.replicas.values() {
            state.owners.insert(replica.vmid, self.intent.owner.clone());
        }
    }

    /// Whether a guest is a template of this image that Oxmox made.
    fn is_this_image(&self, config: &GuestConfig, vmid: Vmid) -> bool {
        is_of_image(config, &self.tag, vmid)
    }

    /// Comes back when it can be said whose a guest is. PVE writes its mark when it is complete; one that is being made under a VMID
    /// of ours may be ours, by a call whose answer was lost.
    async fn complete(&mut self, config: &GuestConfig, vmid: Vmid) -> Flow<()> {
        match self.left_behind(config, vmid).await? {
            Some(text) => Err(self.wait(Waiting::Locked, text, Duration::from_mins(1))),
            None => Ok(()),
        }
    }

    /// Comes back when a guest is complete, or with what to say of it when nobody makes it any more.
    async fn left_behind(&mut self, config: &GuestConfig, vmid: Vmid) -> Flow<Option<String>> {
        let marked = config.description().is_some_and(mark::is_marked);
        let lock = config.lock().filter(|lock| !marked && is_making(lock));
        let Some(lock) = lock else { return Ok(None) };
        let made = self.cluster.is_being_made(&self.intent.owner, vmid);
        match made.await {
            Ok(Some(pause)) => {
                let text = format!("guest {vmid} is being made ({lock})");
                Err(self.wait(Waiting::Locked, text, pause))
            }
            Ok(None) => Ok(Some(left_locked(vmid, lock))),
            Err(error) => Err(self.trouble("looking for who makes the guest", &error)),
        }
    }

    /// Notes where its guests are by now: somebody may have moved one, or taken a node out of the cluster.
    async fn follow(&mut self, view: &View) -> Flow<()> {
        for (node, replica) in self.record.replicas.clone() {
            let row = view.guests.get(&replica.vmid);
            match row.map(|row| &row.node) {
                Some(on) if *on == node => {}
                Some(on) => {
                    let ours = row.is_some_and(|row| row.tags.contains(&self.tag));
                    if ours
                        && replica.in_flight.is_empty()
                        && !self.record.replicas.contains_key(on)
                    {
                        self.record.replicas.remove(&node);
                        self.record.replicas.insert(on.clone(), replica);
                        return Err(Outcome::Persist);
                    }
                }
                None if view.nodes.contains_key(&node) => {}
                None => match self.cluster.client.cluster().is_free(replica.vmid).await {
                    Ok(true) => {
                        self.record.replicas.remove(&node);
                        return Err(Outcome::Persist);
                    }
                    Ok(false) => {
                        self.cluster.refresh();
                        let text = format!(
                            "node {node} has left the cluster, and guest {} is not to be seen",
                            replica.vmid
                        );
                        return Err(self.wait(Waiting::NodeDown, text, Duration::from_secs(30)));
                    }
                    Err(error) => return Err(self.trouble("asking for the template", &error)),
                },
            }
        }
        Ok(())
    }

    async fn drop_file(&mut self, node: &NodeName, volume: &str) -> Flow<()> {
        let Ok(volume) = VolumeId::new(volume) else {
            return Ok(());
        };
        match self
            .cluster
            .client
            .node(node)
            .storage(&volume.storage())
            .delete_volume(&volume, Some(15))
            .await
        {
            Ok(None) => Ok(()),
            Ok(Some(upid)) => Err(self.started(node, StepKind::RemoveVolume, &upid)),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(self.trouble("removing the download", &error)),
        }
    }

    /// Takes note of ended tasks of one replica.
    fn settle(&mut self, node: &NodeName) -> Flow<()> {
        let Some(replica) = self.record.replicas.get(node).cloned() else {
            return Ok(());
        };
        for task in &replica.in_flight {
            match self.cluster.standing(&self.intent.owner, task) {
                Standing::Flying => {
                    let message = format!("{:?} on {node} ({})", task.step, task.upid);
                    return Err(Outcome::Working {
                        step: task.step,
                        message,
                    });
                }
                Standing::Ended(end) => self.ended(node, task, *end)?,
            }
        }
        Ok(())
    }

    fn ended(&mut self, node: &NodeName, task: &InFlight, end: Ended) -> Flow<()> {
        self.cluster.state().tasks.settle(&task.upid);
        let partly = task.step == StepKind::MakeTemplate
            && self.remembered(|memory| {
                if end.is_err() {
                    memory.based.clear();
                }
                !memory.based.is_empty()
            });
        if let Some(replica) = self.record.replicas.get_mut(node) {
            replica.in_flight.retain(|other| other.upid != task.upid);
            if end.is_ok() && !partly {
                replica.stage = match task.step {
                    StepKind::Download => ReplicaStage::Downloaded,
                    StepKind::Create => ReplicaStage::Imported,
                    StepKind::MakeTemplate => ReplicaStage::Template,
                    _ => replica.stage,
                };
            }
        }
        match end {
            Ok(_) => {
                self.recovered();
                Ok(())
            }
            // PVE gives a download its name only when it is complete, and the name is this template's alone: an answer
            // was lost.
            Err(pve::Error::AlreadyExists { .. }) if task.step == StepKind::Download => {
                self.advance(node, ReplicaStage::Downloaded);
                Ok(())
            }
            Err(error) if task.step == StepKind::RemoveVolume && error.is_not_found() => Ok(()),
            Err(error @ pve::Error::InUse { .. }) if task.step == StepKind::Destroy => {
                Err(self.note_links(&error))
            }
            Err(error) => Err(self.not_done(task.step, &error)),
        }
    }

    fn advance(&mut self, node: &NodeName, stage: ReplicaStage) -> Outcome {
        if let Some(replica) = self.record.replicas.get_mut(node) {
            replica.stage = stage;
        }
        Outcome::Persist
    }

    fn started(&mut self, node: &NodeName, step: StepKind, upid: &crate::Upid) -> Outcome {
        let task = self.cluster.started(&self.intent.owner, step, upid);
        if let Some(replica) = self.record.replicas.get_mut(node) {
            replica.in_flight.push(task);
        }
        Outcome::Working {
            step,
            message: format!("{step:?} on {node}"),
        }
    }

    /// Whose image it is, and which.
    fn place(&self) -> (Owner, String) {
        (self.intent.owner.clone(), self.tag.clone())
    }

    /// Reads and changes what is remembered of this image alone: its owner may have others, on other storages.
    fn remembered<T>(&self, change: impl FnOnce(&mut ImageMemory) -> T) -> T {
        change(self.cluster.state().images.entry(self.place()).or_default())
    }

    fn view(&self) -> Flow<Arc<View>> {
        self.cluster.ready(&self.intent.owner)
    }

    fn enter(&mut self, node: &NodeName) -> Flow<()> {
        let keys = vec![
            Key::Node(node.clone()),
            Key::Storage(self.intent.storage.clone()),
        ];
        if self.cluster.enter(&self.intent.owner, keys) {
            return Ok(());
        }
        let message = format!("in line for node {node}");
        Err(Outcome::Waiting {
            what: Waiting::Turn,
            message,
            retry: Duration::from_mins(1),
        })
    }

    fn wait(&mut self, what: Waiting, message: impl Into<String>, retry: Duration) -> Outcome {
        self.cluster.remind(&self.intent.owner, retry);
        Outcome::Waiting {
            what,
            message: message.into(),
            retry,
        }
    }
}

/// Whether a guest is a template of the image with this tag that Oxmox made. A copy that somebody makes of one has its tags and
/// notes, and another UUID.
pub(crate) fn is_of_image(config: &GuestConfig, tag: &str, vmid: Vmid) -> bool {
    share::tags(config).contains(tag) && uuid_of(config) == Some(template_uuid(tag, vmid))
}

/// The SMBIOS UUID of a template.
fn template_uuid(tag: &str, vmid: Vmid) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{tag}/{vmid}").as_bytes())
}

fn failed(why: Failure, message: impl Into<String>) -> Outcome {
    Outcome::Failed {
        why,
        message: message.into(),
    }
}
