//! Several owners, one template.

use std::{collections::BTreeSet, time::Duration};

use pve::{ConfigChange, GuestConfig, api::guest::ConfigView};
use sha2::{Digest, Sha256};

use super::{Flow, Work};
use crate::{
    Event, NodeName, Outcome, Owner, Vmid, Waiting,
    cloudinit::hex,
    record::{ReplicaRecord, ReplicaStage},
    view::View,
};

const PREFIX: &str = "oxmox-use-";

/// The tag of somebody who uses a template.
pub(super) fn tag_of(owner: &Owner) -> String {
    format!("{PREFIX}{}", hex(&Sha256::digest(owner.as_str())[..6]))
}

/// The tags of a guest.
pub(super) fn tags(config: &GuestConfig) -> BTreeSet<String> {
    config
        .get("tags")
        .unwrap_or_default()
        .split([',', ';', ' '])
        .filter(|tag| !tag.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Whether anybody but the owner of this tag uses the template.
pub(super) fn others(config: &GuestConfig, mine: &str) -> bool {
    tags(config)
        .iter()
        .any(|tag| tag.starts_with(PREFIX) && tag != mine)
}

impl Work<'_> {
    /// Notes that a template somebody else made will be used, before anything is written on it.
    pub(super) fn intend_to_join(&mut self, node: &NodeName, vmid: Vmid) -> Outcome {
        self.record.replicas.insert(
            node.clone(),
            ReplicaRecord {
                vmid,
                volume: String::new(),
                in_flight: Vec::new(),
                stage: ReplicaStage::Joining,
                attempts: 0,
            },
        );
        Outcome::Persist
    }

    /// Gives up what was begun for a template that somebody else has made meanwhile.
    pub(super) async fn join_instead(
        &mut self,
        view: &View,
        node: &NodeName,
        vmid: Vmid,
    ) -> Flow<Outcome> {
        match self.take_back(view, node, Some(vmid)).await? {
            Some(outcome) => Ok(outcome),
            None => Ok(self.intend_to_join(node, vmid)),
        }
    }

    /// Takes back what was begun on a node where nobody needs a template any more, or finishes it where that is too late.
    pub(super) async fn drop_begun(&mut self, view: &View, node: &NodeName) -> Flow<Outcome> {
        if let Some(outcome) = self.take_back(view, node, None).await? {
            return Ok(outcome);
        }
        self.record.replicas.remove(node);
        Ok(Outcome::Persist)
    }

    /// Removes the download of a template that is not to be made, as long as nothing has been made of it. Comes back with nothing
    /// when that is done. The guest `there` may have become that template unheard.
    async fn take_back(
        &mut self,
        view: &View,
        node: &NodeName,
        there: Option<Vmid>,
    ) -> Flow<Option<Outcome>> {
        self.settle(node)?;
        let Some(replica) = self.record.replicas.get(node).cloned() else {
            return Ok(Some(Outcome::Persist));
        };
        if replica.stage >= ReplicaStage::Imported || there == Some(replica.vmid) {
            return self.replica(view, node).await.map(Some);
        }
        // A guest may have been made of it by a call whose answer was lost, or that nothing was written of before a crash.
        match self.cluster.client.cluster().is_free(replica.vmid).await {
            Ok(true) => {}
            Ok(false) => return self.replica(view, node).await.map(Some),
            Err(error) => return Err(self.trouble("asking for the guest", &error)),
        }
        if replica.stage == ReplicaStage::Downloaded {
            // The file goes: nothing must be made of it any more.
            return Ok(Some(self.advance(node, ReplicaStage::New)));
        }
        self.no_download_runs(node).await?;
        self.drop_file(node, &replica.volume).await?;
        self.give_back(replica.vmid);
        Ok(None)
    }

    /// Puts our tag on a template somebody else made.
    pub(super) async fn join(&mut self, node: &NodeName) -> Flow<Outcome> {
        let Some(replica) = self.record.replicas.get(node).cloned() else {
            return Ok(Outcome::Persist);
        };
        let qemu = self.cluster.client.node(node).qemu(replica.vmid);
        let config = match qemu.config(ConfigView::Next).await {
            Ok(config) => config,
            Err(error) if error.is_guest_not_found() => {
                self.record.replicas.remove(node);
                self.cluster.refresh();
                let text = "the template that was there is gone";
                return Err(self.wait(Waiting::Source, text, Duration::from_secs(10)));
            }
            Err(error) => return Err(self.trouble("reading the template", &error)),
        };
        if !self.is_this_image(&config, replica.vmid) {
            self.remembered(|memory| memory.others.insert(replica.vmid));
            self.give_back(replica.vmid);
            self.record.replicas.remove(node);
            return Ok(Outcome::Persist);
        }
        if !tags(&config).contains(&self.use_tag) {
            self.write_tags(node, replica.vmid, &config, true).await?;
            let text = format!("template {} on {node} has the same contents", replica.vmid);
            self.events.push(Event::normal("Shared", text));
        }
        Ok(self.advance(node, ReplicaStage::Clean))
    }

    /// Puts our tag on, or takes it off, unless somebody changed the template meanwhile.
    pub(super) async fn write_tags(
        &mut self,
        node: &NodeName,
        vmid: Vmid,
        config: &GuestConfig,
        with: bool,
    ) -> Flow<()> {
        let mut all = tags(config);
        if with {
            all.insert(self.use_tag.clone());
        } else {
            all.remove(&self.use_tag);
        }
        let text = all.into_iter().collect::<Vec<_>>().join(";");
        let change = ConfigChange {
            digest: config.digest().map(str::to_owned),
            ..ConfigChange::set(GuestConfig::new().with("tags", text))
        };
        let sent = self
            .cluster
            .client
            .node(node)
            .qemu(vmid)
            .configure(&change)
            .await;
        sent.map_err(|error| self.trouble("writing the template's tags", &error))
    }

    /// Waits while another image of this process makes the very same template.
    pub(super) fn nobody_else_makes_it(&mut self, view: &View, node: &NodeName) -> Flow<()> {
        let place = self.place_on(node);
        let mine = {
            let mut state = self.cluster.state();
            let maker = state
                .image_makers
                .entry(place)
                .or_insert_with(|| self.intent.owner.clone());
            *maker == self.intent.owner
        };
        if mine || !view.node_online(node) {
            return Ok(());
        }
        let text = format!("the same image is being prepared on {node} for somebody else");
        Err(self.wait(Waiting::Source, text, Duration::from_secs(5)))
    }

    /// Gives up the places where this owner makes the template, as long as it has not come far: what failed here, such as a
    /// broken address, may work for somebody else.
    pub(super) fn let_others_make_it(&self) {
        let stages = self.record.replicas.iter();
        let far = stages.filter(|(_, replica)| replica.stage >= ReplicaStage::Imported);
        let far: BTreeSet<String> = far.map(|(node, _)| self.place_on(node)).collect();
        let of_image = format!("{}@", self.tag);
        let mut state = self.cluster.state();
        state.image_makers.retain(|place, maker| {
            *maker != self.intent.owner || !place.starts_with(&of_image) || far.contains(place)
        });
    }

    fn place_on(&self, node: &NodeName) -> String {
        format!("{}@{node}", self.tag)
    }
}
