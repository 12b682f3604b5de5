//! Taking over a guest that is there: it is read, and nothing is changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pve::{GuestConfig, api::guest::ConfigView};

use super::{Flow, Pass, failed, source::root_disk};
use crate::{
    Failure, NodeName, Outcome, Vmid, Waiting,
    intent::{DiskRole, DiskSlot, Management, Nic},
    mark,
    record::{Identity, NicIdentity, Origin, Stage, mac_of, uuid_of},
    view::{GuestRow, View},
};

impl Pass<'_> {
    /// Takes over an existing guest: reads it, changes nothing. One that is to be `removed` must say that it was taken over before.
    pub(super) async fn take_over(
        &mut self,
        view: &View,
        vmid: Vmid,
        removed: bool,
    ) -> Flow<Outcome> {
        let Some(row) = view.guests.get(&vmid) else {
            let message = format!("guest {vmid} to take over is not there");
            return Err(self.wait(Waiting::Source, message, Duration::from_secs(15)));
        };
        self.refuse_template(row)?;
        if row.kind != self.kind() {
            return Err(failed(
                Failure::Invalid,
                format!("guest {vmid} is of the other kind ({})", row.kind),
            ));
        }
        // Who only looks at a guest leaves no mark on it.
        let keeper = self.cluster.state().owners.get(&vmid).cloned();
        if let Some(keeper) = keeper.filter(|keeper| *keeper != self.intent.owner) {
            let message = format!(
                "guest {vmid} is kept by '{keeper}': remove that owner first, with the policy Orphan"
            );
            return Err(self.wait(Waiting::InUse, message, Duration::from_secs(30)));
        }
        let node = row.node.clone();
        let config = match self.handle(&node, vmid).config(ConfigView::Next).await {
            Ok(config) => config,
            Err(error) => {
                return Err(self.node_trouble(&node, "reading the guest to take over", &error));
            }
        };
        let meant = match &self.intent.proof {
            None => Ok(()),
            Some(proof) => match proof.uuid {
                Some(uuid) if uuid_of(&config) != Some(uuid) => Err(format!("UUID {uuid}")),
                None if row.name != self.intent.name => Err(format!("name {:?}", self.intent.name)),
                _ => Ok(()),
            },
        };
        if let Err(what) = meant {
            let text = format!("guest {vmid} is not the one that is meant: it has not {what}");
            return Err(failed(Failure::Foreign, text));
        }
        let description = config.description().unwrap_or_default();
        match mark::owner_of(description) {
            Some(owner) if owner == self.intent.owner || self.is_former_self(&owner) => {}
            Some(owner) => {
                let text = format!(
                    "guest {vmid} belongs to '{owner}': remove that owner first, with the policy Orphan"
                );
                return Err(failed(Failure::Foreign, text));
            }
            None if mark::is_marked(description) => {
                let text = format!(
                    "guest {vmid} carries marks of several owners: remove them from its notes"
                );
                return Err(failed(Failure::Foreign, text));
            }
            None if removed && self.intent.proof.is_none() => {
                let text = format!("guest {vmid} was never taken over, and stays as it is");
                return Err(failed(Failure::Foreign, text));
            }
            None => {}
        }
        let identity = adopted(self, vmid, node.clone(), &config);
        self.event(
            "Adopted",
            format!("guest {vmid} on {node} is taken over as it is"),
        );
        self.cluster.track(&self.intent.owner, vmid);
        self.record.identity = Some(identity);
        self.record.stage = Stage::Settled;
        self.record.restarts = self.intent.restarts;
        Ok(Outcome::Persist)
    }

    /// A template can be looked at, and copied; there is nothing to keep of it.
    pub(super) fn refuse_template(&self, row: &GuestRow) -> Flow<()> {
        if !row.template || self.intent.policy.management == Management::Observe {
            return Ok(());
        }
        let text = "the guest is a template, which never runs: look at it only (managementPolicy Observe), or make machines \
                    from it with a VMImage";
        Err(failed(Failure::Invalid, text))
    }
}

/// Which card each interface is: the one whose address it names, else the next that nobody names.
fn named(nics: &[Nic], cards: Vec<NicIdentity>) -> BTreeMap<String, NicIdentity> {
    let has = |nic: &Nic, card: &NicIdentity| nic.mac == Some(card.mac);
    let (meant, rest): (Vec<_>, Vec<_>) = cards
        .into_iter()
        .partition(|card| nics.iter().any(|nic| has(nic, card)));
    let mut rest = rest.into_iter();
    let card = |nic: &Nic| {
        let meant = meant.iter().find(|card| has(nic, card)).copied();
        Some((nic.name.clone(), meant.or_else(|| rest.next())?))
    };
    nics.iter().filter_map(card).collect()
}

/// The identity of a guest that is taken over: what it has.
fn adopted(pass: &Pass<'_>, vmid: Vmid, node: NodeName, config: &GuestConfig) -> Identity {
    let cards = config.indexed("net").into_iter();
    let cards = cards.filter_map(|(index, text)| {
        let index = u8::try_from(index).ok()?;
        Some(NicIdentity {
            index,
            mac: mac_of(text)?,
        })
    });
    let nics = named(&pass.intent.nics, cards.collect());
    let mut disks = BTreeMap::new();
    let root = root_disk(config).map(|root| root.slot);
    let mut data: Vec<DiskSlot> = config
        .iter()
        .filter(|(_, value)| !value.contains("media=cdrom"))
        .filter_map(|(key, _)| key.parse().ok())
        .filter(|slot| Some(*slot) != root)
        .collect();
    data.sort();
    let mut data = data.into_iter();
    for disk in &pass.intent.disks {
        let slot = disk.slot.or_else(|| {
            if disk.role == DiskRole::Root {
                root
            } else {
                data.next()
            }
        });
        if let Some(slot) = slot {
            disks.insert(disk.name.clone(), slot);
        }
    }
    Identity {
        cluster: pass.intent.cluster.clone(),
        node,
        vmid,
        uuid: uuid_of(config).unwrap_or_default(),
        nics,
        disks,
        mounts: BTreeMap::new(),
        brought: BTreeSet::new(),
        origin: Some(Origin::New),
        adopted: true,
    }
}
