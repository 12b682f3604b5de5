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
        if !self.is_this_image(&config) {
            self.record.replicas.remove(node);
            self.cluster.refresh();
            let text = "the template that was there is another one now";
            return Err(self.wait(Waiting::Source, text, Duration::from_secs(10)));
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
        let place = format!("{}@{node}", self.tag);
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
}
