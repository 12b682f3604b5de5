//! Leaving an image: the template goes with the last who uses it.

use std::time::Duration;

use pve::{
    GuestConfig, GuestKind,
    api::guest::{ConfigView, DeleteGuest},
    task::{Source, TaskEntry, TaskFilter},
};

use tokio::time::Instant;

use super::{Flow, Work, share};
use crate::{
    NodeName, Outcome, Vmid, Waiting,
    gate::End,
    record::{ReplicaRecord, ReplicaStage, StepKind},
};

/// How often it is looked whether a guest has gone, which costs no request.
const LINKED_PAUSE: Duration = Duration::from_secs(30);
/// For how long it is believed that something is linked to a template while all guests are there.
const LINKED_FOR: Duration = Duration::from_hours(1);

impl Work<'_> {
    pub(super) async fn remove(&mut self) -> Flow<Outcome> {
        if self.record.replicas.is_empty() {
            return Ok(Outcome::Gone);
        }
        self.suspect_calls();
        let view = self.view()?;
        self.track();
        self.follow(&view).await?;
        let nodes: Vec<NodeName> = self.record.replicas.keys().cloned().collect();
        for node in nodes {
            if !view.node_online(&node) {
                let text = format!("node {node} is down");
                return Err(self.wait(Waiting::NodeDown, text, Duration::from_secs(30)));
            }
            let made = self.is_being_made(&node);
            // What failed while it was made is of no interest any more; what failed while it was removed is waited for.
            if let Err(outcome) = self.settle(&node)
                && (!made || matches!(outcome, Outcome::Working { .. }))
            {
                return Err(outcome);
            }
            let Some(replica) = self.record.replicas.get(&node).cloned() else {
                continue;
            };
            if replica.stage == ReplicaStage::New {
                self.no_download_runs(&node).await?;
            }
            if replica.stage != ReplicaStage::Clean {
                self.drop_file(&node, &replica.volume).await?;
            }
            if let Some(outcome) = self.leave(&node, &replica).await? {
                return Ok(outcome);
            }
            if replica.stage < ReplicaStage::Imported
                && let Some(left) = self.cluster.unheard(&self.intent.owner)
            {
                let text =
                    "a call that makes the template was not answered and may still take effect";
                return Err(self.wait(Waiting::Error, text, left));
            }
            self.record.replicas.remove(&node);
        }
        Ok(Outcome::Gone)
    }

    /// A process before this one may have sent what makes a template a moment ago.
    pub(super) fn suspect_calls(&self) {
        let mut replicas = self.record.replicas.values();
        let open = replicas.any(|replica| replica.stage < ReplicaStage::Imported);
        self.cluster.suspect_calls(&self.intent.owner, open);
    }

    fn is_being_made(&self, node: &NodeName) -> bool {
        let makes = |step| {
            matches!(
                step,
                StepKind::Download | StepKind::Create | StepKind::MakeTemplate
            )
        };
        let replica = self.record.replicas.get(node);
        replica.is_some_and(|replica| replica.in_flight.iter().any(|task| makes(task.step)))
    }

    /// Leaves one template; comes back with nothing when there is nothing left of it to care for.
    async fn leave(&mut self, node: &NodeName, replica: &ReplicaRecord) -> Flow<Option<Outcome>> {
        self.linked_no_more()?;
        let qemu = self.cluster.client.node(node).qemu(replica.vmid);
        match qemu.config(ConfigView::Next).await {
            Ok(config) if self.may_leave(&config, replica.vmid) => {
                if let Some(lock) = config.lock() {
                    let message = format!("the template is locked ({lock})");
                    return Err(self.wait(Waiting::Locked, message, Duration::from_secs(2)));
                }
                if share::others(&config, &self.use_tag) {
                    self.write_tags(node, replica.vmid, &config, false).await?;
                    return Ok(None);
                }
                self.enter(node)?;
                let also = DeleteGuest {
                    purge: true,
                    ..DeleteGuest::default()
                };
                match qemu.delete(also).await {
                    Ok(upid) => Ok(Some(self.started(node, StepKind::Destroy, &upid))),
                    Err(error) => {
                        self.cluster.exit(&self.intent.owner, End::Other);
                        Err(self.trouble("removing the template", &error))
                    }
                }
            }
            // Somebody else's by now, or nobody's: ours is gone.
            Ok(config) => {
                self.complete(&config, replica.vmid).await?;
                Ok(None)
            }
            Err(error) if error.is_guest_not_found() => {
                match self.cluster.client.cluster().is_free(replica.vmid).await {
                    Ok(true) => Ok(None),
                    Ok(false) => self.elsewhere(replica.vmid).await,
                    Err(error) => Err(self.trouble("asking for the template", &error)),
                }
            }
            // Who has rights to some guests only is refused those that do not exist.
            Err(error @ pve::Error::Denied { .. }) => {
                match self.cluster.client.cluster().is_free(replica.vmid).await {
                    Ok(true) => Ok(None),
                    _ => Err(self.trouble("reading the template", &error)),
                }
            }
            Err(error) => Err(self.trouble("reading the template", &error)),
        }
    }

    /// The VMID is a guest's on another node: the template's, which was moved, or that of somebody who was given it later.
    async fn elsewhere(&mut self, vmid: Vmid) -> Flow<Option<Outcome>> {
        if let Some(row) = self.view()?.guests.get(&vmid) {
            if row.kind != GuestKind::Qemu {
                return Ok(None);
            }
            let qemu = self.cluster.client.node(&row.node).qemu(vmid);
            match qemu.config(ConfigView::Next).await {
                Ok(config) if !self.may_leave(&config, vmid) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.is_guest_not_found() => {}
                Err(error) => return Err(self.trouble("reading the template", &error)),
            }
        }
        self.cluster.refresh();
        let text = "the template has moved";
        Err(self.wait(Waiting::Error, text, Duration::from_secs(5)))
    }

    /// Takes note that disks are linked to a template, which lasts as long as all the guests that there are.
    pub(super) fn note_links(&mut self, error: &pve::Error) -> Outcome {
        let text = format!("the template goes when nothing is linked to it any more: {error}");
        let guests = self.cluster.view();
        let guests = guests.map(|view| view.guests.keys().copied().collect());
        let links = (guests.unwrap_or_default(), Instant::now(), text.clone());
        self.remembered(|memory| memory.linked = Some(links));
        self.wait(Waiting::InUse, text, LINKED_PAUSE)
    }

    /// Comes back when a template that disks were linked to may be free: a guest has gone, or somebody may have moved its disks.
    fn linked_no_more(&mut self) -> Flow<()> {
        let view = self.view()?;
        let known = self.remembered(|memory| memory.linked.clone());
        let lasts = known.filter(|(guests, at, _)| {
            at.elapsed() < LINKED_FOR && guests.iter().all(|vmid| view.guests.contains_key(vmid))
        });
        match lasts {
            Some((_, _, text)) => Err(self.wait(Waiting::InUse, text, LINKED_PAUSE)),
            None => Ok(()),
        }
    }

    /// Only a template of this image that carries our tag is ours to leave.
    fn may_leave(&self, config: &GuestConfig, vmid: Vmid) -> bool {
        self.is_this_image(config, vmid) && share::tags(config).contains(&self.use_tag)
    }

    /// A download whose answer was lost may still be under way.
    pub(super) async fn no_download_runs(&mut self, node: &NodeName) -> Flow<()> {
        let downloads = TaskFilter {
            kind: Some("download".to_owned()),
            source: Source::Active,
            ..TaskFilter::default()
        };
        match self.cluster.client.node(node).tasks(&downloads).await {
            Ok(list) if list.iter().any(TaskEntry::is_running) => {
                let text = "a download to the node has not ended yet";
                Err(self.wait(Waiting::Locked, text, Duration::from_secs(2)))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(self.trouble("looking for downloads", &error)),
        }
    }
}
