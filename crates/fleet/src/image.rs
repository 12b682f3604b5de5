//! Images: a file on the web becomes a template, wherever it is needed.
//!
//! The node fetches the file itself and checks its digest; a guest is created that imports it and is turned into a
//! template; the file is removed again. What makes two images the same is their checksum (or, without one, their
//! address), written on the template as a tag: an image that is already there is used, whoever asked for it first.

use std::{sync::Arc, time::Duration};

use pve::{
    CreateQemu, GuestConfig, VolumeId,
    api::{
        guest::{ConfigView, DeleteGuest},
        storage::upload::{Checksum as PveChecksum, Download},
    },
};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    ClusterName, Event, Failure, ImageFacts, ImageProgress, ImageRecord, NodeName, Outcome,
    StorageId, Vmid, Waiting,
    cloudinit::hex,
    cluster::Cluster,
    gate::{End, Key},
    intent::ImageIntent,
    mark,
    record::{InFlight, ReplicaRecord, ReplicaStage, StepKind},
    tasks::{Ended, Standing},
    trouble::{self, Trouble},
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
    tag: String,
}

impl<'a> Work<'a> {
    fn new(cluster: &'a Arc<Cluster>, intent: &'a ImageIntent, record: &ImageRecord) -> Self {
        let tag = format!("oxmox-image-{}", key(intent));
        Self {
            cluster,
            intent,
            record: record.clone(),
            events: Vec::new(),
            tag,
        }
    }

    fn finish(self, outcome: Outcome) -> ImageProgress {
        let templates = self
            .cluster
            .view()
            .map(|view| self.there(&view))
            .unwrap_or_default();
        if outcome.is_done() {
            self.cluster.forget(&self.intent.owner);
        }
        ImageProgress {
            record: self.record,
            outcome,
            facts: ImageFacts { templates },
            events: self.events,
        }
    }

    /// Templates of this image that the view shows.
    fn there(&self, view: &View) -> Vec<(NodeName, Vmid)> {
        view.templates()
            .filter(|(_, row)| row.tags.contains(&self.tag))
            .map(|(vmid, row)| (row.node.clone(), vmid))
            .collect()
    }

    async fn keep(&mut self) -> Flow<Outcome> {
        let view = self.view()?;
        let nodes = self.nodes(&view)?;
        for node in nodes {
            let done = self
                .record
                .replicas
                .get(&node)
                .is_some_and(|r| r.stage == ReplicaStage::Clean);
            let there = self.there(&view).iter().any(|(on, _)| *on == node);
            let begun = self.record.replicas.contains_key(&node);
            if there && (done || !begun) {
                continue;
            }
            if done && !there {
                self.confirm_lost(&view, &node).await?;
            }
            return self.replica(&view, &node).await;
        }
        Ok(Outcome::Settled)
    }

    /// A template that is no longer listed is made again once PVE says that its VMID is free.
    async fn confirm_lost(&mut self, view: &View, node: &NodeName) -> Flow<()> {
        let Some(replica) = self.record.replicas.get(node).cloned() else {
            return Ok(());
        };
        if view.guests.contains_key(&replica.vmid) {
            // PVE shows a new guest before it knows its tags.
            return Err(self.wait(
                Waiting::Source,
                "the template is not listed yet",
                Duration::from_secs(5),
            ));
        }
        match self.cluster.client.cluster().is_free(replica.vmid).await {
            Ok(true) => {
                self.record.replicas.remove(node);
                Err(Outcome::Persist)
            }
            Ok(false) => {
                self.cluster.refresh();
                Err(self.wait(
                    Waiting::Source,
                    "the template is not listed yet",
                    Duration::from_secs(5),
                ))
            }
            Err(error) => Err(self.trouble("asking for the template", &error)),
        }
    }

    async fn replica(&mut self, view: &View, node: &NodeName) -> Flow<Outcome> {
        if !self.record.replicas.contains_key(node) {
            return self.choose(view, node);
        }
        self.settle(node)?;
        let Some(replica) = self.record.replicas.get(node).cloned() else {
            return Ok(Outcome::Persist);
        };
        match replica.stage {
            ReplicaStage::New => self.download(node, &replica).await,
            ReplicaStage::Downloaded => self.import(node, &replica).await,
            ReplicaStage::Imported => {
                let sent = self
                    .cluster
                    .client
                    .node(node)
                    .qemu(replica.vmid)
                    .make_template()
                    .await;
                match sent {
                    Ok(Some(upid)) => Ok(self.started(node, StepKind::MakeTemplate, &upid)),
                    Ok(None) => Ok(self.advance(node, ReplicaStage::Template)),
                    Err(pve::Error::IsTemplate { .. }) => {
                        Ok(self.advance(node, ReplicaStage::Template))
                    }
                    Err(error) => Err(self.trouble("making the template", &error)),
                }
            }
            ReplicaStage::Template => {
                self.drop_file(node, &replica.volume).await?;
                self.events.push(Event::normal(
                    "Prepared",
                    format!("template {} on {node} is ready", replica.vmid),
                ));
                self.cluster.refresh();
                Ok(self.advance(node, ReplicaStage::Clean))
            }
            ReplicaStage::Clean => {
                self.cluster.refresh();
                Err(self.wait(
                    Waiting::Source,
                    "the template is not listed yet",
                    Duration::from_secs(5),
                ))
            }
        }
    }

    fn choose(&mut self, view: &View, node: &NodeName) -> Flow<Outcome> {
        let storage = match &self.intent.download_storage {
            Some(storage) => view
                .storage(storage, node)
                .filter(|row| row.holds("import"))
                .map(|_| storage.clone()),
            None => view
                .storages_for("import", node)
                .first()
                .map(|(id, _)| (*id).clone()),
        };
        let Some(storage) = storage else {
            let text = format!(
                "no storage of node {node} may hold downloads: allow content 'import' on one"
            );
            return Err(self.wait(Waiting::Space, text, Duration::from_secs(30)));
        };
        let (first, last) = self.intent.vmids.bounds();
        let vmid = {
            let mut state = self.cluster.state();
            let free = (first..=last)
                .filter_map(|n| Vmid::new(n).ok())
                .find(|vmid| {
                    !view.guests.contains_key(vmid)
                        && !state.owners.contains_key(vmid)
                        && !state.taken.contains_key(vmid)
                });
            if let Some(vmid) = free {
                state.owners.insert(vmid, self.intent.owner.clone());
            }
            free
        };
        let Some(vmid) = vmid else {
            let text = format!("no VMID is free from {first} to {last}");
            return Err(self.wait(Waiting::Vmid, text, Duration::from_mins(1)));
        };
        let volume = format!(
            "{storage}:import/oxmox-{}-{vmid}.{}",
            key(self.intent),
            extension(&self.intent.url)
        );
        self.record.replicas.insert(
            node.clone(),
            ReplicaRecord {
                vmid,
                volume,
                in_flight: Vec::new(),
                stage: ReplicaStage::New,
                attempts: 0,
            },
        );
        Ok(Outcome::Persist)
    }

    async fn download(&mut self, node: &NodeName, replica: &ReplicaRecord) -> Flow<Outcome> {
        let (Ok(volume), Some(file)) = (
            VolumeId::new(replica.volume.clone()),
            replica.volume.rsplit('/').next(),
        ) else {
            return Err(failed(
                Failure::Invalid,
                format!("'{}' is not a volume", replica.volume),
            ));
        };
        self.enter(node)?;
        let download = Download {
            url: self.intent.url.clone(),
            content: "import".to_owned(),
            filename: file.to_owned(),
            checksum: self.intent.checksum.as_ref().map(|sum| PveChecksum {
                algorithm: sum.kind.as_str().to_owned(),
                value: sum.hex.to_lowercase(),
            }),
            verify_certificates: None,
            compression: self.intent.compression.clone(),
        };
        match self
            .cluster
            .client
            .node(node)
            .storage(&volume.storage())
            .download_url(&download)
            .await
        {
            Ok(upid) => {
                self.events.push(Event::normal(
                    "Downloading",
                    format!("{node} fetches {}", self.intent.url),
                ));
                Ok(self.started(node, StepKind::Download, &upid))
            }
            Err(pve::Error::AlreadyExists { .. }) => self.again_without_file(node, replica).await,
            Err(error) => {
                self.cluster.exit(&self.intent.owner, End::Other);
                Err(self.trouble("downloading the image", &error))
            }
        }
    }

    /// A file of that name may be half a download of ours: away with it, and again.
    async fn again_without_file(
        &mut self,
        node: &NodeName,
        replica: &ReplicaRecord,
    ) -> Flow<Outcome> {
        self.cluster.exit(&self.intent.owner, End::Other);
        self.drop_file(node, &replica.volume).await?;
        Err(self.wait(
            Waiting::Error,
            "a download that was begun is repeated",
            Duration::from_secs(1),
        ))
    }

    async fn import(&mut self, node: &NodeName, replica: &ReplicaRecord) -> Flow<Outcome> {
        self.enter(node)?;
        let qemu = self.cluster.client.node(node).qemu(replica.vmid);
        if replica.attempts > 0 {
            // An earlier answer may have been lost.
            match qemu.config(ConfigView::Next).await {
                Ok(config) if self.is_ours(&config) && config.lock().is_none() => {
                    self.cluster.exit(&self.intent.owner, End::Other);
                    let stage = if config.is_template() {
                        ReplicaStage::Template
                    } else {
                        ReplicaStage::Imported
                    };
                    return Ok(self.advance(node, stage));
                }
                Ok(config) if self.is_ours(&config) => {
                    return Err(self.wait(
                        Waiting::Locked,
                        "the guest is being made",
                        Duration::from_secs(2),
                    ));
                }
                Ok(_) => {
                    self.cluster.exit(&self.intent.owner, End::Other);
                    self.cluster
                        .state()
                        .taken
                        .insert(replica.vmid, Instant::now());
                    self.drop_file(node, &replica.volume).await?;
                    self.record.replicas.remove(node);
                    return Ok(Outcome::Persist);
                }
                Err(error) if error.is_guest_not_found() => {}
                Err(error) => return Err(self.trouble("reading the guest", &error)),
            }
        }
        if let Some(replica) = self.record.replicas.get_mut(node) {
            replica.attempts += 1;
        }
        let create = CreateQemu::new(replica.vmid, self.config(replica));
        match self.cluster.client.node(node).create_qemu(&create).await {
            Ok(upid) => {
                let text = format!("importing the image as {} on {node}", replica.vmid);
                self.events.push(Event::normal("Importing", text));
                Ok(self.started(node, StepKind::Create, &upid))
            }
            Err(error) if error.is_vmid_taken() => {
                self.cluster.exit(&self.intent.owner, End::Other);
                Ok(Outcome::Persist)
            }
            Err(error) => {
                self.cluster.exit(&self.intent.owner, End::Other);
                Err(self.trouble("importing the image", &error))
            }
        }
    }

    fn config(&self, replica: &ReplicaRecord) -> GuestConfig {
        let intent = self.intent;
        let mut tags: Vec<String> = intent.tags.iter().map(|tag| tag.to_lowercase()).collect();
        tags.push(self.tag.clone());
        let mut config = GuestConfig::new()
            .with("name", &intent.name)
            .with(
                "description",
                mark::describe(&format!("made from {}", intent.url), &intent.owner),
            )
            .with("tags", tags.join(";"))
            .with("ostype", "l26")
            .with("scsihw", "virtio-scsi-single")
            .with("agent", "1")
            .with("serial0", "socket")
            .with("cores", 1)
            .with("memory", 1024)
            .with("boot", "order=scsi0")
            .with(
                "scsi0",
                format!("{}:0,import-from={}", intent.storage, replica.volume),
            );
        if intent.uefi {
            config.set("bios", "ovmf");
            config.set("machine", "q35");
            config.set(
                "efidisk0",
                format!("{}:1,efitype=4m,pre-enrolled-keys=0", intent.storage),
            );
        }
        config
    }

    fn is_ours(&self, config: &GuestConfig) -> bool {
        config.description().and_then(mark::owner_of).as_ref() == Some(&self.intent.owner)
    }

    async fn remove(&mut self) -> Flow<Outcome> {
        let view = self.view()?;
        let nodes: Vec<NodeName> = self.record.replicas.keys().cloned().collect();
        for node in nodes {
            if !view.node_online(&node) {
                let text = format!("node {node} is down");
                return Err(self.wait(Waiting::NodeDown, text, Duration::from_secs(30)));
            }
            if let Err(outcome) = self.settle(&node)
                && matches!(outcome, Outcome::Working { .. })
            {
                return Err(outcome);
            }
            let Some(replica) = self.record.replicas.get(&node).cloned() else {
                continue;
            };
            self.drop_file(&node, &replica.volume).await?;
            let qemu = self.cluster.client.node(&node).qemu(replica.vmid);
            match qemu.config(ConfigView::Next).await {
                Ok(config) if self.is_ours(&config) => {
                    self.enter(&node)?;
                    let also = DeleteGuest {
                        purge: true,
                        ..DeleteGuest::default()
                    };
                    return match qemu.delete(also).await {
                        Ok(upid) => Ok(self.started(&node, StepKind::Destroy, &upid)),
                        Err(error) => {
                            self.cluster.exit(&self.intent.owner, End::Other);
                            Err(self.trouble("removing the template", &error))
                        }
                    };
                }
                // Somebody else's by now, or nobody's: ours is gone.
                Ok(_) => {}
                Err(error) if error.is_guest_not_found() => {
                    match self.cluster.client.cluster().is_free(replica.vmid).await {
                        Ok(true) => {}
                        Ok(false) => {
                            self.cluster.refresh();
                            return Err(self.wait(
                                Waiting::Error,
                                "the template has moved",
                                Duration::from_secs(5),
                            ));
                        }
                        Err(error) => return Err(self.trouble("asking for the template", &error)),
                    }
                }
                Err(error) => return Err(self.trouble("reading the template", &error)),
            }
            self.record.replicas.remove(&node);
        }
        Ok(Outcome::Gone)
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
        if let Some(replica) = self.record.replicas.get_mut(node) {
            replica.in_flight.retain(|other| other.upid != task.upid);
            if end.is_ok() {
                replica.stage = match task.step {
                    StepKind::Download => ReplicaStage::Downloaded,
                    StepKind::Create => ReplicaStage::Imported,
                    StepKind::MakeTemplate => ReplicaStage::Template,
                    _ => replica.stage,
                };
            }
        }
        match end {
            Ok(_) => Ok(()),
            Err(pve::Error::IsTemplate { .. }) if task.step == StepKind::MakeTemplate => {
                self.advance(node, ReplicaStage::Template);
                Ok(())
            }
            Err(error) if task.step == StepKind::RemoveVolume && error.is_not_found() => Ok(()),
            Err(error) => Err(self.trouble("preparing the image", &error)),
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

    /// The nodes that need a template: those named, or one where the storage is.
    fn nodes(&mut self, view: &View) -> Flow<Vec<NodeName>> {
        if !self.intent.nodes.is_empty() {
            return Ok(self.intent.nodes.clone());
        }
        if let Some(node) = self.record.replicas.keys().next() {
            return Ok(vec![node.clone()]);
        }
        if let Some((node, _)) = self.there(view).first() {
            return Ok(vec![node.clone()]);
        }
        let has = |storage: &StorageId, node: &NodeName| {
            view.node_online(node)
                && view
                    .storage(storage, node)
                    .is_some_and(|row| row.holds("images"))
        };
        if let Some(node) = view
            .nodes
            .keys()
            .find(|node| has(&self.intent.storage, node))
        {
            return Ok(vec![node.clone()]);
        }
        let storage = &self.intent.storage;
        let text = format!("no node that is up may keep disks on storage '{storage}'");
        Err(self.wait(Waiting::Space, text, Duration::from_secs(30)))
    }

    fn view(&mut self) -> Flow<Arc<View>> {
        let (view, problem) = {
            let state = self.cluster.state();
            (state.view.clone(), state.problem.clone())
        };
        match (view, problem) {
            (Some(view), None) => Ok(view),
            (_, problem) => {
                self.cluster
                    .state()
                    .stranded
                    .insert(self.intent.owner.clone());
                let why = problem.map_or_else(
                    || "it has not been looked at yet".to_owned(),
                    |e| trouble::line(&e),
                );
                let message = format!("PVE does not answer: {why}");
                Err(Outcome::Waiting {
                    what: Waiting::Unreachable,
                    message,
                    retry: Duration::from_secs(10),
                })
            }
        }
    }

    fn enter(&mut self, node: &NodeName) -> Flow<()> {
        let keys = vec![
            Key::Cluster,
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

    fn trouble(&mut self, doing: &str, error: &pve::Error) -> Outcome {
        let failures = self.cluster.memory(&self.intent.owner, |memory| {
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
}

fn failed(why: Failure, message: impl Into<String>) -> Outcome {
    Outcome::Failed {
        why,
        message: message.into(),
    }
}

/// What makes two images the same.
fn key(intent: &ImageIntent) -> String {
    let what = match &intent.checksum {
        Some(sum) => format!("{}:{}", sum.kind.as_str(), sum.hex.to_lowercase()),
        None => intent.url.clone(),
    };
    let text = format!("{what} {} {}", intent.storage, intent.uefi);
    hex(&Sha256::digest(text)[..6])
}

/// The ending PVE wants for the file; cloud images called `.img` are qcow2.
fn extension(url: &str) -> &'static str {
    let path = url
        .split(['?', '#'])
        .next()
        .unwrap_or_default()
        .to_lowercase();
    let path = path
        .trim_end_matches(".gz")
        .trim_end_matches(".zst")
        .trim_end_matches(".lzo");
    match path.rsplit('.').next() {
        Some("raw") => "raw",
        Some("vmdk") => "vmdk",
        _ => "qcow2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_those_pve_knows() {
        assert_eq!(extension("https://x/noble.img"), "qcow2");
        assert_eq!(extension("https://x/a.raw.gz?token=1"), "raw");
        assert_eq!(extension("https://x/a.VMDK"), "vmdk");
    }
}
