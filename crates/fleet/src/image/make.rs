//! Making a template: download, import, turn into a template, remove the download.

use std::time::Duration;

use pve::{
    CreateQemu, GuestConfig, PoolId, VolumeId,
    api::{
        guest::ConfigView,
        storage::upload::{Checksum as PveChecksum, Download},
    },
};
use tokio::time::Instant;

use super::{Flow, Work, failed, template_uuid};
use crate::{
    Event, Failure, NodeName, Outcome, Vmid, Waiting,
    gate::End,
    guest::source::volumes,
    mark,
    record::{ReplicaRecord, ReplicaStage, StepKind},
    trouble::{self, Trouble},
    view::View,
};

impl Work<'_> {
    pub(super) async fn keep(&mut self) -> Flow<Outcome> {
        self.suspect_calls();
        let view = self.view()?;
        self.track();
        self.follow(&view).await?;
        let nodes = self.nodes(&view)?;
        let begun = self.begun_elsewhere(&view, &nodes);
        let mut down = None;
        for node in nodes {
            let stage = self.record.replicas.get(&node).map(|replica| replica.stage);
            let known = self.record.replicas.get(&node);
            let known = known.filter(|_| stage == Some(ReplicaStage::Clean));
            let there = self
                .there(&view)
                .into_iter()
                .find(|(on, vmid)| *on == node && known.is_none_or(|known| known.vmid == *vmid));
            let is_done = stage == Some(ReplicaStage::Clean) && there.is_some();
            if !is_done && !view.node_online(&node) {
                // The others need not wait for it.
                down.get_or_insert(node);
                continue;
            }
            match (stage, there) {
                (Some(ReplicaStage::Clean), Some(_)) => {}
                (Some(ReplicaStage::Clean), None) => self.confirm_lost(&view, &node).await?,
                (Some(ReplicaStage::Joining), _) => return self.join(&node).await,
                (None, Some((_, vmid))) => return Ok(self.intend_to_join(&node, vmid)),
                (Some(ReplicaStage::New | ReplicaStage::Downloaded), Some((_, vmid))) => {
                    return self.join_instead(&view, &node, vmid).await;
                }
                _ => return self.replica(&view, &node).await,
            }
        }
        if let Some(node) = begun {
            return match self.record.replicas.get(&node).map(|replica| replica.stage) {
                Some(ReplicaStage::Joining) => self.join(&node).await,
                _ => self.drop_begun(&view, &node).await,
            };
        }
        if let Some(node) = down {
            let text = format!("node {node} is down");
            return Err(self.wait(Waiting::NodeDown, text, Duration::from_secs(30)));
        }
        Ok(Outcome::Settled)
    }

    pub(super) async fn replica(&mut self, view: &View, node: &NodeName) -> Flow<Outcome> {
        if !self.record.replicas.contains_key(node) {
            self.nobody_else_makes_it(view, node)?;
            let chosen = self.choose(view, node).await;
            if chosen.is_err() {
                self.let_others_make_it();
            }
            return chosen;
        }
        self.settle(node)?;
        let Some(replica) = self.record.replicas.get(node).cloned() else {
            return Ok(Outcome::Persist);
        };
        if replica.stage <= ReplicaStage::Imported {
            self.rested()?;
        }
        if replica.stage <= ReplicaStage::Downloaded {
            // Somebody else may have got the place while this one rested.
            self.nobody_else_makes_it(view, node)?;
        }
        match replica.stage {
            ReplicaStage::New => self.download(node, &replica).await,
            ReplicaStage::Downloaded => self.import(node, &replica).await,
            ReplicaStage::Imported => self.convert(node, &replica).await,
            ReplicaStage::Template => {
                self.drop_file(node, &replica.volume).await?;
                self.events.push(Event::normal(
                    "Prepared",
                    format!("template {} on {node} is ready", replica.vmid),
                ));
                self.cluster.refresh();
                Ok(self.advance(node, ReplicaStage::Clean))
            }
            ReplicaStage::Clean | ReplicaStage::Joining => {
                self.cluster.refresh();
                Err(self.wait(
                    Waiting::Source,
                    "the template is not listed yet",
                    Duration::from_secs(5),
                ))
            }
        }
    }

    async fn choose(&mut self, view: &View, node: &NodeName) -> Flow<Outcome> {
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
        // Guests that one may not see have numbers too, and gigabytes are fetched for this one.
        match self.cluster.client.cluster().is_free(vmid).await {
            Ok(true) => {}
            Ok(false) => {
                self.take_another(vmid);
                return Ok(Outcome::Persist);
            }
            Err(error) => {
                self.give_back(vmid);
                return Err(self.trouble("asking for a free VMID", &error));
            }
        }
        let volume = format!(
            "{storage}:import/oxmox-{}-{vmid}.{}",
            self.intent.key(),
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
            compression: None,
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
            Err(error) => {
                self.cluster.exit(&self.intent.owner, End::Other);
                self.note_unheard(&error);
                Err(self.trouble("downloading the image", &error))
            }
        }
    }

    async fn import(&mut self, node: &NodeName, replica: &ReplicaRecord) -> Flow<Outcome> {
        let qemu = self.cluster.client.node(node).qemu(replica.vmid);
        if replica.attempts > 0 {
            // An earlier answer may have been lost.
            match qemu.config(ConfigView::Next).await {
                Ok(config) if self.is_mine(&config) && config.lock().is_none() => {
                    return Ok(self.advance(node, ReplicaStage::Imported));
                }
                Ok(config) if self.is_mine(&config) => {
                    return Err(self.wait(
                        Waiting::Locked,
                        "the guest is being made",
                        Duration::from_secs(2),
                    ));
                }
                Ok(config) => {
                    if let Some(why) = self.left_behind(&config, replica.vmid).await? {
                        // Its node died over it. Nothing will come of it, so it is in nobody's way but its number's.
                        let text = format!("{why}; taking another VMID");
                        self.events.push(Event::warning("VmidTaken", text));
                    }
                    return self.choose_another(node, replica).await;
                }
                Err(error) if error.is_guest_not_found() => {}
                Err(error @ pve::Error::Denied { .. }) => {
                    if self.is_anothers(replica.vmid, &error).await? {
                        return self.choose_another(node, replica).await;
                    }
                }
                Err(error) => return Err(self.trouble("reading the guest", &error)),
            }
            if !self.is_fetched(node, replica).await? {
                let text = format!("'{}' is gone: it is fetched again", replica.volume);
                self.events.push(Event::warning("DownloadGone", text));
                return Ok(self.advance(node, ReplicaStage::New));
            }
        }
        self.enter(node)?;
        if let Some(replica) = self.record.replicas.get_mut(node) {
            replica.attempts += 1;
        }
        let mut create = CreateQemu::new(replica.vmid, self.config(replica));
        create.pool = self.pool()?;
        match self.cluster.client.node(node).create_qemu(&create).await {
            Ok(upid) => {
                let text = format!("importing the image as {} on {node}", replica.vmid);
                self.events.push(Event::normal("Importing", text));
                Ok(self.started(node, StepKind::Create, &upid))
            }
            // No guest of that number is on this node, so it is on another one, or a container: not ours. What was sent
            // before is given time to show, though.
            Err(error) if error.is_vmid_taken() && replica.attempts > 1 => {
                self.choose_another(node, replica).await
            }
            Err(error) if error.is_vmid_taken() => {
                self.cluster.exit(&self.intent.owner, End::Other);
                if replica.attempts == 0 {
                    return Ok(Outcome::Persist);
                }
                Err(self.wait(Waiting::Vmid, error.to_string(), Duration::from_secs(5)))
            }
            Err(error) => {
                self.cluster.exit(&self.intent.owner, End::Other);
                self.note_unheard(&error);
                Err(self.trouble("importing the image", &error))
            }
        }
    }

    /// Whether the download is still there. An import may fail for hours, and somebody may make room meanwhile.
    async fn is_fetched(&mut self, node: &NodeName, replica: &ReplicaRecord) -> Flow<bool> {
        let Ok(volume) = VolumeId::new(replica.volume.clone()) else {
            return Ok(true);
        };
        let storage = self.cluster.client.node(node).storage(&volume.storage());
        match storage.content(Some("import"), None).await {
            Ok(list) => Ok(list.iter().any(|it| it.volid == volume)),
            Err(error) => Err(self.trouble("looking for the download", &error)),
        }
    }

    /// Whether a guest that may not be read is somebody else's, and not nobody's. Ours is in its pool as soon as it is made.
    async fn is_anothers(&mut self, vmid: Vmid, denied: &pve::Error) -> Flow<bool> {
        match self.cluster.client.cluster().is_free(vmid).await {
            Ok(true) => return Ok(false),
            Ok(false) => {}
            Err(error) => return Err(self.trouble("asking for the guest", &error)),
        }
        match self.cluster.is_being_made(&self.intent.owner, vmid).await {
            Ok(None) => Ok(true),
            Ok(Some(pause)) => {
                let text = trouble::line(denied);
                Err(self.wait(Waiting::Privilege, text, pause))
            }
            Err(error) => Err(self.trouble("looking for who makes the guest", &error)),
        }
    }

    /// Takes note of a call that makes something and was not answered.
    fn note_unheard(&self, error: &pve::Error) {
        if trouble::judge(error) == Trouble::Verify {
            let now = Instant::now();
            self.cluster
                .memory(&self.intent.owner, |memory| memory.unheard = Some(now));
        }
    }

    /// Makes a template of what was imported.
    ///
    /// PVE marks the guest as a template first and turns its disks into base volumes after that. One that was left in between
    /// looks like a template and nothing can be linked to it: its other disks are asked for one by one.
    async fn convert(&mut self, node: &NodeName, replica: &ReplicaRecord) -> Flow<Outcome> {
        let qemu = self.cluster.client.node(node).qemu(replica.vmid);
        // There is no way back from a template: a guest that has got the number since must not become one.
        let config = match qemu.config(ConfigView::Next).await {
            Ok(config) if self.is_mine(&config) => config,
            Ok(_) => return self.choose_another(node, replica).await,
            Err(error) if error.is_guest_not_found() => {
                return self.gone_again(node, replica).await;
            }
            Err(error) => return Err(self.trouble("reading the guest", &error)),
        };
        if config.is_template() {
            return self.convert_the_rest(node, replica, &config).await;
        }
        match qemu.make_template().await {
            Ok(Some(upid)) => Ok(self.started(node, StepKind::MakeTemplate, &upid)),
            // On the spot, or by a call whose answer was lost: it is looked at how far that came.
            Ok(None) | Err(pve::Error::IsTemplate { .. }) => Ok(Outcome::Persist),
            Err(error) => Err(self.trouble("making the template", &error)),
        }
    }

    /// Turns what is not a base volume yet into one. Where storages have no such volumes disks stay what they are, however
    /// often they are asked for: once is enough.
    async fn convert_the_rest(
        &mut self,
        node: &NodeName,
        replica: &ReplicaRecord,
        config: &GuestConfig,
    ) -> Flow<Outcome> {
        let asked = self.remembered(|memory| memory.based.clone());
        let left = volumes(config)
            .into_iter()
            .find(|(disk, volume)| !is_base(volume) && !asked.contains(disk));
        let Some((disk, _)) = left else {
            self.remembered(|memory| memory.based.clear());
            return Ok(self.advance(node, ReplicaStage::Template));
        };
        let qemu = self.cluster.client.node(node).qemu(replica.vmid);
        match qemu.make_base(&disk).await {
            Ok(upid) => {
                self.remembered(|memory| memory.based.insert(disk));
                Ok(self.started(node, StepKind::MakeTemplate, &upid))
            }
            Err(error) => Err(self.trouble("making the template", &error)),
        }
    }

    /// Somebody removed what was imported: it is made anew, once PVE says that the VMID is free.
    async fn gone_again(&mut self, node: &NodeName, replica: &ReplicaRecord) -> Flow<Outcome> {
        match self.cluster.client.cluster().is_free(replica.vmid).await {
            Ok(true) => self.choose_another(node, replica).await,
            Ok(false) => {
                let text = format!("guest {} is not on {node} any more", replica.vmid);
                Err(self.wait(Waiting::Source, text, Duration::from_secs(30)))
            }
            Err(error) => Err(self.trouble("asking for the guest", &error)),
        }
    }

    /// The VMID turned out to be somebody else's.
    async fn choose_another(&mut self, node: &NodeName, replica: &ReplicaRecord) -> Flow<Outcome> {
        self.cluster.exit(&self.intent.owner, End::Other);
        self.take_another(replica.vmid);
        self.drop_file(node, &replica.volume).await?;
        self.record.replicas.remove(node);
        Ok(Outcome::Persist)
    }

    /// Takes note that a VMID is somebody else's though no list shows it.
    fn take_another(&self, vmid: Vmid) {
        let now = Instant::now();
        self.cluster.state().taken.insert(vmid, now);
        self.give_back(vmid);
    }

    fn pool(&self) -> Flow<Option<PoolId>> {
        let pool = self.intent.pool.clone().map(PoolId::new).transpose();
        pool.map_err(|error| failed(Failure::Invalid, format!("pool: {error}")))
    }

    /// Whether the guest under the chosen VMID is the one this owner makes.
    fn is_mine(&self, config: &GuestConfig) -> bool {
        config.description().and_then(mark::owner_of).as_ref() == Some(&self.intent.owner)
    }

    fn config(&self, replica: &ReplicaRecord) -> GuestConfig {
        let intent = self.intent;
        let mut tags: Vec<String> = intent.tags.iter().map(|tag| tag.to_lowercase()).collect();
        tags.extend([self.tag.clone(), self.use_tag.clone()]);
        let mut config = GuestConfig::new()
            .with("name", &intent.name)
            .with(
                "description",
                mark::describe(&format!("made from {}", intent.url), &intent.owner),
            )
            .with("tags", tags.join(";"))
            .with(
                "smbios1",
                format!("uuid={}", template_uuid(&self.tag, replica.vmid)),
            )
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
}

/// Whether disks can be linked to a volume; one that is linked itself is named after its base, and then itself.
fn is_base(volume: &str) -> bool {
    let name = volume.rsplit(['/', ':']).next().unwrap_or_default();
    name.starts_with("base-")
}

/// The ending PVE wants for the file; cloud images called `.img` are qcow2.
fn extension(url: &str) -> &'static str {
    let path = url
        .split(['?', '#'])
        .next()
        .unwrap_or_default()
        .to_lowercase();
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
    fn base_volumes_are_told_from_those_linked_to_them() {
        assert!(is_base("local-lvm:base-9000-disk-0"));
        assert!(is_base("local:9000/base-9000-disk-0.qcow2"));
        assert!(!is_base("local-lvm:vm-9000-disk-0"));
        assert!(!is_base(
            "local:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2"
        ));
    }

    #[test]
    fn endings_are_those_pve_knows() {
        assert_eq!(extension("https://x/noble.img"), "qcow2");
        assert_eq!(extension("https://x/a.raw?token=1"), "raw");
        assert_eq!(extension("https://x/a.VMDK"), "vmdk");
    }
}
