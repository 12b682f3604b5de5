//! Sending a change of the configuration, and what its refusal means.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use pve::{ConfigChange, GuestConfig, GuestKind};

use super::{Flow, Pass};
use crate::{
    NodeName, Outcome, Waiting,
    diff::{self, Changes},
    record::{Identity, Stage},
};

/// What the kernel may not let a running container have less of.
const HELD: [&str; 2] = ["memory", "swap"];

impl Pass<'_> {
    /// Writes keys in one call; what a running machine does not take waits for a restart. Returns what a running container
    /// does not take now: PVE has stored nothing of that.
    pub(super) async fn write(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        change: &ConfigChange,
    ) -> Flow<Vec<String>> {
        let guest = self.handle(node, identity.vmid);
        let (errors, held) = match guest.configure(change).await {
            Ok(()) => return Ok(Vec::new()),
            Err(pve::Error::Hotplug { errors }) => (errors, Vec::new()),
            Err(pve::Error::NotTaken { errors }) if is_held_back(&errors) => {
                let (mut rest, mut held) = (change.clone(), Vec::new());
                for key in HELD {
                    let deletes = rest.delete.iter().any(|delete| delete == key);
                    if rest.set.remove(key).is_some() || deletes {
                        rest.delete.retain(|delete| delete != key);
                        held.push(key.to_owned());
                    }
                }
                if !rest.is_empty()
                    && let Err(error) = guest.configure(&rest).await
                {
                    return Err(self.not_written(node, &error));
                }
                (errors, held)
            }
            Err(error) => return Err(self.not_written(node, &error)),
        };
        let told = |key: &String| self.record.pending.contains(key);
        if held.is_empty() || !held.iter().all(told) {
            let list: Vec<String> = errors
                .iter()
                .map(|(key, text)| format!("{key}: {}", text.trim()))
                .collect();
            let list = list.join("; ");
            self.warn("Pending", format!("waits for a restart: {list}"));
        }
        Ok(held)
    }

    pub(super) fn not_written(&mut self, node: &NodeName, error: &pve::Error) -> Outcome {
        if let pve::Error::DigestMismatch { .. } | pve::Error::LockTimeout { .. } = error {
            // Whoever is at it changes what was read.
            self.memory(|memory| {
                memory.model = None;
                memory.doubt = true;
            });
        }
        if let pve::Error::DigestMismatch { .. } = error {
            let message = "the guest was changed meanwhile, and is looked at again";
            return self.wait(Waiting::Locked, message, Duration::from_secs(2));
        }
        self.node_trouble(node, "configuring the guest", error)
    }

    /// The digest of what a change is made for that lets volumes be made. A call before it whose answer was lost may be at
    /// that: PVE compares when that is done, and does not make them once more.
    pub(super) async fn based_on(
        &mut self,
        identity: &Identity,
        changes: &Changes,
    ) -> Flow<Option<String>> {
        let digest = |model: &GuestConfig| model.digest().map(str::to_owned);
        let known = self.memory(|memory| memory.model.as_deref().and_then(digest));
        let unsure = self.memory(|memory| memory.failures > 0 || memory.made.is_none());
        if known.is_some() || !(unsure || self.record.stage >= Stage::Settled) {
            return Ok(known);
        }
        let (model, _) = self.ours(identity).await?;
        let made = |(key, value): (&String, &String)| {
            let wish = GuestConfig::new().with(key, value);
            let named = diff::volume_of(key, &wish).is_some_and(|it| diff::is_named(&it));
            key.starts_with("mp") && !named && model.get(key).is_some()
        };
        if changes.set.iter().any(made) {
            self.memory(|memory| memory.doubt = true);
            return Err(Outcome::Persist);
        }
        Ok(digest(&model))
    }

    /// Takes note of what PVE would not write while the container runs: it is written when that is off.
    pub(super) fn hold(&mut self, held: Vec<String>, before: &[String]) {
        if held.iter().any(|key| !before.contains(key)) {
            let list = held.join(", ");
            self.event("RestartRequired", format!("waiting for a restart: {list}"));
        }
        self.record.pending.extend(held);
    }

    /// Whether something waits for the container to be off that PVE knows nothing of.
    pub(super) fn holds_back(&self) -> bool {
        let mut pending = self.record.pending.iter();
        self.kind() == GuestKind::Lxc && pending.any(|key| HELD.contains(&key.as_str()))
    }

    /// Takes back that volumes are taken out by the next start which are declared: PVE shows them as gone already. Returns
    /// the configuration with them.
    pub(super) async fn keep_in(
        &mut self,
        identity: &Identity,
        model: &GuestConfig,
        lost: &BTreeMap<String, String>,
    ) -> Flow<Option<(GuestConfig, BTreeMap<String, String>)>> {
        let memory = self.memory(|memory| memory.clone());
        if lost.is_empty() || !self.power(identity.vmid, &memory).is_on() {
            return Ok(None);
        }
        let now = self.now(identity).await?;
        let is_in = |key: &str, volume: &str| diff::volume_of(key, &now).as_deref() == Some(volume);
        let there = lost.iter().filter(|(key, volume)| is_in(key, volume));
        let there = there.filter_map(|(key, _)| Some((key.clone(), now.get(key)?.to_owned())));
        let there: BTreeMap<String, String> = there.collect();
        let mut model = model.clone();
        model.extend(there.clone());
        Ok((!there.is_empty()).then_some((model, there)))
    }

    /// Gives disks that are declared again the places which they are only taken out of by the next start.
    pub(super) async fn return_to_places(
        &mut self,
        identity: &mut Identity,
        model: &GuestConfig,
    ) -> Flow<()> {
        let waits = |key: &String| diff::holds_volume(key) && model.get(key).is_none();
        let places: Vec<String> = self
            .record
            .pending
            .iter()
            .filter(|key| waits(key))
            .cloned()
            .collect();
        let mounts = self.intent.container.iter().flat_map(|it| &it.mounts);
        let disks = self.intent.disks.iter().filter(|disk| disk.slot.is_none());
        let names = mounts
            .map(|mount| &mount.name)
            .chain(disks.map(|disk| &disk.name));
        let parted =
            names.filter_map(|name| Some((name.clone(), self.record.parted.get(name)?.clone()?)));
        let parted: Vec<(String, String)> = parted.collect();
        if parted.is_empty() {
            return Ok(());
        }
        // A snapshot that the guest went back to has brought some of them with it.
        let back = model.iter().map(|(key, _)| key.to_owned());
        let mut back: Vec<String> = back
            .filter(|key| diff::holds_volume(key) && !key.starts_with("unused"))
            .collect();
        let now = if places.is_empty() {
            GuestConfig::new()
        } else {
            self.now(identity).await?
        };
        let disks = identity.disks.values().map(ToString::to_string);
        let mounts = identity.mounts.values().map(|index| format!("mp{index}"));
        let held: BTreeSet<String> = disks.chain(mounts).collect();
        back.retain(|place| !held.contains(place));
        for (name, volume) in parted {
            let has = |place: &&String, config: &GuestConfig| {
                diff::volume_of(place, config).as_ref() == Some(&volume)
            };
            let waits = places.iter().find(|place| has(place, &now));
            let there = || back.iter().find(|place| has(place, model));
            let Some(place) = waits.or_else(there) else {
                continue;
            };
            if let Some(index) = place
                .strip_prefix("mp")
                .and_then(|index| index.parse().ok())
            {
                identity.mounts.insert(name, index);
            } else if let Ok(slot) = place.parse() {
                identity.disks.insert(name, slot);
            }
        }
        Ok(())
    }

    /// The configuration the guest has until its next start.
    async fn now(&mut self, identity: &Identity) -> Flow<GuestConfig> {
        let node = self.node_of(identity);
        let guest = self.handle(&node, identity.vmid);
        let config = guest.config(pve::api::guest::ConfigView::Current).await;
        config.map_err(|error| self.node_trouble(&node, "reading the guest", &error))
    }
}

/// Whether a running container refused nothing but what it can have when it is off.
fn is_held_back(errors: &BTreeMap<String, String>) -> bool {
    errors
        .iter()
        .all(|(key, text)| HELD.contains(&key.as_str()) && text.starts_with("unable to hotplug"))
}
