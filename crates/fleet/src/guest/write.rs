//! Sending a change of the configuration, and what its refusal means.

use std::{collections::BTreeMap, time::Duration};

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

    fn not_written(&mut self, node: &NodeName, error: &pve::Error) -> Outcome {
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
}

/// Whether a running container refused nothing but what it can have when it is off.
fn is_held_back(errors: &BTreeMap<String, String>) -> bool {
    errors
        .iter()
        .all(|(key, text)| HELD.contains(&key.as_str()) && text.starts_with("unable to hotplug"))
}
