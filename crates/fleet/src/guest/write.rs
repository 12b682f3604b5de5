//! Sending a change of the configuration, and what its refusal means.

use std::collections::BTreeMap;

use pve::{ConfigChange, GuestKind};

use super::{Flow, Pass};
use crate::{NodeName, record::Identity};

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
                    return Err(self.node_trouble(node, "configuring the guest", &error));
                }
                (errors, held)
            }
            Err(error) => return Err(self.node_trouble(node, "configuring the guest", &error)),
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
