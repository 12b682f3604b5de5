//! Whether a guest is there and ours, and what it means when it is not.

use std::{sync::Arc, time::Duration};

use pve::{GuestConfig, GuestKind};
use tokio::time::Instant;

use super::{Flow, LAG, Pass, failed, look::Sight};
use crate::{
    Failure, NodeName, Outcome, PowerFact, Waiting,
    desired::SEED_SLOT,
    diff,
    intent::{Loss, Management, Power},
    record::{Early, GuestRecord, Identity, Stage},
    view::View,
};

/// How long an identity that was read is believed while the guest is seen all the time.
const TRUSTED: Duration = Duration::from_mins(10);

impl Pass<'_> {
    /// Whether somebody else started the guest before it was as declared. It has booted as something else, without its
    /// first-boot data and perhaps with its source's addresses, and is not left so.
    pub(super) async fn is_early(
        &mut self,
        view: &View,
        identity: &Identity,
        power: PowerFact,
    ) -> Flow<bool> {
        let running = power.is_on();
        let ours_to_power = self.intent.policy.management == Management::Full
            && self.intent.power != Power::Unmanaged { started: false }
            && !identity.adopted;
        if !ours_to_power || self.record.stage >= Stage::Started {
            return Ok(false);
        }
        if !running {
            self.record.early = self.record.early.and(Some(Early::Stopped));
            return Ok(false);
        }
        if self.record.stage < Stage::Configured && self.record.early != Some(Early::Runs) {
            let want = self.desired(view, identity)?;
            let (config, _) = self.ours(identity).await?;
            let mut changes = diff::diff(&want, &self.intent.owner, &config);
            // What is in the first-boot drive changes after our own start, too, which a crash may have made us forget.
            changes.set.remove(SEED_SLOT);
            if changes.configures() {
                self.started_early();
            }
        }
        Ok(self.record.early == Some(Early::Runs))
    }

    /// The guest runs although its first start was ours to send. Returns whether that was before it was configured.
    pub(super) fn started_by_another(&mut self) -> bool {
        let now = Instant::now();
        let early = self.record.stage < Stage::Started && self.memory(|memory| memory.unstarted);
        if early {
            self.memory(|memory| memory.power = Some((PowerFact::Running, now)));
            self.started_early();
        }
        early
    }

    fn started_early(&mut self) {
        self.record.early = Some(Early::Runs);
        self.warn(
            "StartedTooEarly",
            "somebody started the guest before it was configured: it is shut down, and started as declared",
        );
    }

    /// Where the guest is and whether it runs; or what its absence means.
    pub(super) async fn presence(
        &mut self,
        view: &View,
        identity: &Identity,
    ) -> Flow<(NodeName, PowerFact)> {
        let memory = self.memory(|memory| memory.clone());
        let recent = memory.made.is_some_and(|made| view.asked < made + LAG);
        let mut node = self.node_of(identity);
        let seen = recent || view.guests.contains_key(&identity.vmid);
        if self.record.lost || !seen {
            match self.look(identity).await? {
                Sight::Ours(_, on) => {
                    self.record.lost = false;
                    node = on;
                }
                Sight::Absent | Sight::Begun(_) => {
                    return Err(self.lost(identity, "was removed behind our back"));
                }
                Sight::Unfinished(lock) => return Err(self.replaced(identity, &lock).await),
                Sight::Foreign(why) => {
                    return Err(self.lost(
                        identity,
                        &format!("was removed and its VMID given away: {why}"),
                    ));
                }
            }
        }
        if view.nodes.contains_key(&node) && !view.node_online(&node) {
            self.cluster
                .state()
                .stranded
                .insert(self.intent.owner.clone());
            let message = format!("node {node} is down");
            return Err(self.wait(Waiting::NodeDown, message, Duration::from_secs(30)));
        }
        self.notice_end_of_pause(self.power(identity.vmid, &memory));
        let mut power = self.power(identity.vmid, &memory);
        // Somebody may have resumed it, which the list does not show. Containers say nothing of it.
        let resumed = memory.doubt && self.record.paused && self.kind() == GuestKind::Qemu;
        if power == PowerFact::Unknown || resumed {
            // PVE has not looked at it yet, or we have not looked at PVE; ask at the source rather than guess.
            power = match self.handle(&node, identity.vmid).status().await {
                Ok(status) => self.told_power(&status),
                Err(error) => {
                    return Err(self.node_trouble(&node, "asking for the power state", &error));
                }
            };
            let now = Instant::now();
            self.memory(|memory| memory.power = Some((power, now)));
        }
        Ok((node, power))
    }

    /// Somebody makes another guest under our VMID: when it is complete, it will be seen whose it is. When nobody makes it
    /// any more, ours is gone all the same.
    async fn replaced(&mut self, identity: &Identity, lock: &str) -> Outcome {
        match self.unfinished(identity, lock).await {
            Ok(why) => self.lost(identity, &format!("was removed: {why}")),
            Err(outcome) => outcome,
        }
    }

    fn lost(&mut self, identity: &Identity, how: &str) -> Outcome {
        let text = format!("guest {} {how}", identity.vmid);
        self.cluster
            .state()
            .untrack(&self.intent.owner, identity.vmid);
        self.memory(|memory| *memory = crate::cluster::Memory::default());
        if self.intent.policy.loss == Loss::Recreate && !identity.adopted {
            self.warn("GuestLost", format!("{text}; making it anew"));
            self.abandon_seed(&identity.node);
            let lost = std::mem::take(&mut self.record);
            // Only what is not about the guest that is lost is true of the next one.
            self.record = GuestRecord {
                attempts: lost.attempts + 1,
                in_flight: lost.in_flight,
                restarts: lost.restarts,
                full: lost.full,
                leftovers: lost.leftovers,
                ..GuestRecord::default()
            };
            return Outcome::Persist;
        }
        self.record.lost = true;
        if self.abandon_seed(&identity.node) {
            return Outcome::Persist;
        }
        self.warn("GuestLost", text.clone());
        failed(Failure::Lost, text)
    }

    /// Reads the guest; anything but our own ends the pass.
    pub(super) async fn ours(&mut self, identity: &Identity) -> Flow<(Arc<GuestConfig>, NodeName)> {
        match self.look(identity).await? {
            Sight::Ours(config, node) => Ok((config, node)),
            Sight::Absent | Sight::Begun(_) => {
                Err(self.lost(identity, "was removed behind our back"))
            }
            Sight::Unfinished(lock) => Err(self.replaced(identity, &lock).await),
            Sight::Foreign(why) => Err(self.lost(identity, &format!("is no longer ours: {why}"))),
        }
    }

    /// Makes sure that the guest is ours before it is touched.
    pub(super) async fn verify(&mut self, identity: &Identity) -> Flow<()> {
        let now = Instant::now();
        let fresh = self.memory(|memory| memory.verified.is_some_and(|at| now - at < TRUSTED));
        if !fresh {
            self.ours(identity).await?;
        }
        Ok(())
    }
}
