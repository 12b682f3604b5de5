//! Leaving an image: the template goes with the last who uses it.

use std::time::Duration;

use pve::{
    GuestConfig,
    api::guest::{ConfigView, DeleteGuest},
    task::{Source, TaskEntry, TaskFilter},
};

use super::{Flow, Work, share};
use crate::{
    NodeName, Outcome, Waiting,
    gate::End,
    record::{ReplicaRecord, ReplicaStage, StepKind},
};

impl Work<'_> {
    pub(super) async fn remove(&mut self) -> Flow<Outcome> {
        let view = self.view()?;
        self.track();
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
            self.record.replicas.remove(&node);
        }
        Ok(Outcome::Gone)
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
        let qemu = self.cluster.client.node(node).qemu(replica.vmid);
        match qemu.config(ConfigView::Next).await {
            Ok(config) if self.may_leave(&config) => {
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
            Ok(_) => Ok(None),
            Err(error) if error.is_guest_not_found() => {
                match self.cluster.client.cluster().is_free(replica.vmid).await {
                    Ok(true) => Ok(None),
                    Ok(false) => {
                        self.cluster.refresh();
                        let text = "the template has moved";
                        Err(self.wait(Waiting::Error, text, Duration::from_secs(5)))
                    }
                    Err(error) => Err(self.trouble("asking for the template", &error)),
                }
            }
            Err(error) => Err(self.trouble("reading the template", &error)),
        }
    }

    /// Only a template of this image that carries our tag is ours to leave.
    fn may_leave(&self, config: &GuestConfig) -> bool {
        self.is_this_image(config) && share::tags(config).contains(&self.use_tag)
    }

    /// A download whose answer was lost may still be under way.
    async fn no_download_runs(&mut self, node: &NodeName) -> Flow<()> {
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
