//! Taking a guest away.
//!
//! Before anything is removed, the guest's configuration is read and its mark compared: a VMID alone is
//! nobody's. A node that is down, a missing right, an answer that was lost all mean waiting.

use std::{sync::Arc, time::Duration};

use pve::{ConfigChange, GuestConfig, api::guest::DeleteGuest, api::guest::power};

use super::{Flow, Pass, bare, look::Sight, settle::doing, working};
use crate::{
    Failure, NodeName, Outcome, PowerFact, Vmid, Waiting,
    cluster::{HA_PATIENCE, HA_PAUSE},
    desired::SEED_SLOT,
    gate::{End, Key},
    intent::{Deletion, Power},
    mark,
    record::{Identity, SeedState, Stage, StepKind},
    tasks::Standing,
    trouble,
};

impl Pass<'_> {
    pub(super) async fn remove(&mut self) -> Flow<Outcome> {
        let Some(identity) = self.record.identity.clone() else {
            if let Some(vmid) = self.intent.adopt {
                return self.take_over_to_remove(vmid).await;
            }
            if let Some(outcome) = self.find_to_remove().await? {
                return Ok(outcome);
            }
            // Nothing is ever done before an identity is stored; what was done for an earlier one is cleaned up.
            if !self.record.leftovers.is_empty() {
                let view = self.view()?;
                self.settle_removal()?;
                self.sweep(&view, true).await?;
            }
            return Ok(Outcome::Gone);
        };
        if self.intent.policy.protected && self.deletion() == Deletion::Delete {
            let text = "deletion is protected: switch the protection off to go on";
            return Ok(self.wait(Waiting::Protected, text, Duration::from_mins(1)));
        }
        self.cluster.track(&self.intent.owner, identity.vmid);
        self.view()?;
        self.settle_removal()?;
        // No call that makes the guest was ever sent, or its removal was seen to end well.
        let unsent = self.record.stage == Stage::New && self.memory(|memory| memory.fresh);
        let destroyed =
            self.record.stage == Stage::Removing && self.memory(|memory| memory.destroyed);
        if unsent || destroyed {
            return self.clean_up(&identity).await;
        }
        let (config, node) = match self.seen_while_removing(&identity) {
            Some(seen) => seen,
            None => match self.look(&identity).await? {
                Sight::Ours(config, node) => (config, node),
                Sight::Unfinished(lock) => {
                    let why = self.unfinished(&identity, &lock).await?;
                    return Ok(self.wait(Waiting::Locked, why, Duration::from_mins(1)));
                }
                // It holds nothing that a policy could keep.
                Sight::Begun(node) => {
                    if let Some(outcome) = self.clear_bare(&identity, &node).await? {
                        return Ok(outcome);
                    }
                    self.event("Gone", bare::unknown(identity.vmid));
                    return self.clean_up(&identity).await;
                }
                // The VMID is free, or another guest's by now: ours is gone.
                Sight::Absent => return self.clean_up(&identity).await,
                Sight::Foreign(why) => {
                    self.event(
                        "Gone",
                        format!("{why}; nothing of ours is left under this VMID"),
                    );
                    return self.clean_up(&identity).await;
                }
            },
        };
        if let Some(lock) = config.lock().filter(|lock| *lock != "suspended") {
            let owner = &self.intent.owner;
            let (pause, message) = self.cluster.held(owner, self.kind(), identity.vmid, lock);
            return Ok(self.wait(Waiting::Locked, message, pause));
        }
        let declared = self.record.declared.contains("protection");
        let not_asked_for = declared || self.has_sources_protection(&identity);
        let unprotects = config.is_protected() && not_asked_for;
        if unprotects && self.deletion() == Deletion::Delete {
            self.not_suspended(&config)?;
            self.unprotect(&identity, &node).await?;
        }
        self.record.stage = Stage::Removing;
        match self.deletion() {
            Deletion::Orphan => self.release(&identity, &node, &config).await,
            Deletion::Retain => {
                if let Some(outcome) = self.power_down(&identity, &node).await? {
                    return Ok(outcome);
                }
                self.drop_seed(&identity, &node, &config).await
            }
            Deletion::Delete => {
                if config.is_protected() && !unprotects {
                    let text =
                        "PVE protects the guest from removal: switch its protection off to go on";
                    return Ok(self.wait(Waiting::Protected, text, Duration::from_mins(1)));
                }
                if let Some(outcome) = self.power_down(&identity, &node).await? {
                    return Ok(outcome);
                }
                self.destroy(&identity, &node).await
            }
        }
    }

    /// The guest of an owner whose record was lost, by its mark. Nobody waits for a cluster that has never answered: most who have
    /// nothing recorded have no guest.
    async fn find_to_remove(&mut self) -> Flow<Option<Outcome>> {
        let never_seen = {
            let state = self.cluster.state();
            state.view.is_none() && state.problem.is_some()
        };
        if never_seen {
            let text = format!(
                "no guest is recorded, and PVE does not answer: if there is one, its notes name '{}'",
                self.intent.owner
            );
            self.warn("NotLookedFor", text);
            return Ok(None);
        }
        let view = self.view()?;
        self.find_own(&view).await
    }

    /// Takes back the protection that was declared and no longer is, or that came with the source.
    async fn unprotect(&mut self, identity: &Identity, node: &NodeName) -> Flow<()> {
        let change = ConfigChange::delete(["protection"]);
        let guest = self.handle(node, identity.vmid);
        if let Err(error) = guest.configure(&change).await {
            return Err(self.node_trouble(node, "switching the protection off", &error));
        }
        self.event("Unprotected", "its protection is off: nobody else set it");
        self.memory(|memory| {
            if let Some(model) = memory.model.take() {
                let mut model = (*model).clone();
                model.remove("protection");
                memory.model = Some(Arc::new(model));
            }
        });
        Ok(())
    }

    /// PVE writes nothing of a guest whose memory it keeps: who wants something written waits for its people.
    fn not_suspended(&mut self, config: &GuestConfig) -> Flow<()> {
        if config.lock() != Some("suspended") {
            return Ok(());
        }
        // It is not believed to be so when it is looked at again.
        self.memory(|memory| memory.model = None);
        let text = "suspended: resume it or switch it off";
        Err(self.wait(Waiting::Locked, text, Duration::from_mins(1)))
    }

    fn deletion(&self) -> Deletion {
        self.intent.policy.at_end()
    }

    /// A guest that is named and not recorded goes only if it says itself that it was taken over: by our mark, or by a proof. Who
    /// was refused it, or never came to have it, leaves it to whom it belongs.
    async fn take_over_to_remove(&mut self, vmid: Vmid) -> Flow<Outcome> {
        if self.deletion() == Deletion::Orphan {
            // It was never touched, and shall not be.
            return Ok(Outcome::Gone);
        }
        let view = self.view()?;
        if !view.guests.contains_key(&vmid) {
            // What a list does not show may be hidden from us: only a VMID that is free has no guest.
            return match self.cluster.client.cluster().is_free(vmid).await {
                Ok(true) => Ok(Outcome::Gone),
                Ok(false) => {
                    self.cluster.refresh();
                    let message = format!("guest {vmid} is not to be seen, but its VMID is taken");
                    Err(self.wait(Waiting::Error, message, Duration::from_secs(15)))
                }
                Err(error) => Err(self.trouble("asking whether the VMID is free", &error)),
            };
        }
        match self.take_over(&view, vmid, true).await {
            Err(
                Outcome::Failed {
                    why: Failure::Foreign | Failure::Invalid,
                    message,
                }
                | Outcome::Waiting {
                    what: Waiting::InUse,
                    message,
                    ..
                },
            ) => {
                self.event("Gone", message);
                Ok(Outcome::Gone)
            }
            other => other,
        }
    }

    /// The guest as it was read a moment ago, when its removal began and it was shut down.
    fn seen_while_removing(&self, identity: &Identity) -> Option<(Arc<GuestConfig>, NodeName)> {
        if self.record.stage != Stage::Removing {
            return None;
        }
        let window = self.intent.policy.shutdown_timeout + Duration::from_secs(30);
        let memory = self.memory(|memory| memory.clone());
        let recent = memory.verified.is_some_and(|at| at.elapsed() < window);
        let model = memory.model.filter(|_| recent && memory.failures == 0)?;
        Some((model, self.node_of(identity)))
    }

    /// Ends of tasks, seen by somebody who wants the guest gone.
    fn settle_removal(&mut self) -> Flow<()> {
        let mut flying = Vec::new();
        let mut trouble = None;
        for task in std::mem::take(&mut self.record.in_flight) {
            match self.cluster.standing(&self.intent.owner, &task) {
                Standing::Flying => flying.push(task),
                Standing::Ended(end) => {
                    self.cluster.state().tasks.settle(&task.upid);
                    if let Some(outcome) = self.removal_ended(task.step, &task.upid, *end) {
                        trouble.get_or_insert(outcome);
                    }
                }
            }
        }
        self.record.in_flight = flying;
        self.reaches_tasks()?;
        match self.record.in_flight.first() {
            Some(task) => Err(working(task.step, doing(task.step))),
            None => trouble.map_or(Ok(()), Err),
        }
    }

    /// Takes note of an end. Comes back with what to wait for when the same would only fail again.
    fn removal_ended(
        &mut self,
        step: StepKind,
        upid: &crate::Upid,
        end: crate::tasks::Ended,
    ) -> Option<Outcome> {
        let now = tokio::time::Instant::now();
        match (step, end) {
            (StepKind::Destroy, Ok(_)) => {
                self.memory(|memory| memory.destroyed = true);
                self.event("Removed", "the guest and its disks are gone");
            }
            // High availability stops it some time after the task has ended.
            (StepKind::Shutdown | StepKind::Stop, Ok(_)) if upid.kind().starts_with("ha") => {
                self.memory(|memory| memory.asked_ha = Some(now));
            }
            // Somebody else may have been faster: what was wanted is so.
            (StepKind::Shutdown | StepKind::Stop, Ok(_) | Err(pve::Error::NotRunning { .. })) => {
                self.record.paused = false;
                self.memory(|memory| memory.power = Some((PowerFact::Stopped, now)));
            }
            (StepKind::UploadSeed, Ok(_)) => self.seed_state(SeedState::Uploaded),
            (StepKind::RemoveSeed, Ok(_)) => self.seed_state(SeedState::Removed),
            (StepKind::Resume, Ok(_)) => self.record.paused = false,
            (_, Ok(_)) => {}
            (StepKind::RemoveSeed, Err(error)) if error.is_not_found() => {
                self.seed_state(SeedState::Removed);
            }
            (StepKind::RemoveVolume, Err(error)) if error.is_not_found() => {}
            (
                StepKind::Shutdown
                | StepKind::Stop
                | StepKind::Destroy
                | StepKind::RemoveSeed
                | StepKind::RemoveVolume,
                Err(error),
            ) => {
                self.memory(|memory| memory.power = None);
                return Some(self.removal_failed(doing(step), &error));
            }
            // What was begun before it was to go is not begun again.
            (step, Err(error)) => {
                self.memory(|memory| {
                    memory.power = None;
                    memory.failures += 1;
                });
                self.warn("Retrying", format!("{}: {error}", doing(step)));
            }
        }
        None
    }

    /// Waits before the same is tried again, ever longer, whatever the error: who is to be deleted is not given up.
    fn removal_failed(&mut self, doing: &str, error: &pve::Error) -> Outcome {
        match self.trouble(doing, error) {
            Outcome::Failed { message, .. } => {
                let failures = self.memory(|memory| memory.failures);
                self.wait(Waiting::Error, message, trouble::backoff(failures))
            }
            outcome => outcome,
        }
    }

    /// Shuts the guest down; comes back with nothing when it is off.
    async fn power_down(&mut self, identity: &Identity, node: &NodeName) -> Flow<Option<Outcome>> {
        let memory = self.memory(|memory| memory.clone());
        let mut state = self.power(identity.vmid, &memory);
        if state == PowerFact::Unknown {
            state = match self.handle(node, identity.vmid).status().await {
                Ok(status) => self.told_power(&status),
                Err(error) => {
                    return Err(self.node_trouble(node, "asking for the power state", &error));
                }
            };
        }
        if !matches!(state, PowerFact::Stopped | PowerFact::Suspended) {
            self.be_heeded(identity).await?;
        }
        let guest = self.handle(node, identity.vmid);
        match state {
            PowerFact::Stopped | PowerFact::Suspended => Ok(None),
            _ if memory.asked_ha.is_some_and(|at| at.elapsed() < HA_PATIENCE) => {
                let message = "high availability is stopping the guest";
                let outcome = self.wait(Waiting::Locked, message, HA_PAUSE);
                Ok(Some(outcome))
            }
            PowerFact::Paused => {
                self.power_step(node, StepKind::Stop, guest.stop(power::Stop::default()))
                    .await
            }
            _ if self.intent.power == Power::HardOff
                || self.intent.policy.shutdown_timeout.is_zero() =>
            {
                self.power_step(node, StepKind::Stop, guest.stop(power::Stop::default()))
                    .await
            }
            _ => {
                let timeout = u32::try_from(self.intent.policy.shutdown_timeout.as_secs()).ok();
                let how = power::Shutdown {
                    timeout,
                    force_stop: true,
                };
                self.power_step(node, StepKind::Shutdown, guest.shutdown(how))
                    .await
            }
        }
    }

    pub(super) async fn destroy(&mut self, identity: &Identity, node: &NodeName) -> Flow<Outcome> {
        let keys = vec![Key::Node(node.clone())];
        if !self.cluster.enter(&self.intent.owner, keys) {
            let retry = Duration::from_mins(1);
            let message = "in line for removal".to_owned();
            return Ok(Outcome::Waiting {
                what: Waiting::Turn,
                message,
                retry,
            });
        }
        let also = DeleteGuest {
            purge: true,
            ..DeleteGuest::default()
        };
        match self.handle(node, identity.vmid).delete(also).await {
            Ok(upid) => {
                self.event(
                    "Removing",
                    format!("removing guest {} from {node}", identity.vmid),
                );
                let task = self
                    .cluster
                    .started(&self.intent.owner, StepKind::Destroy, &upid);
                self.record.in_flight.push(task);
                // Nothing comes after it that would have to wait.
                self.cluster.state().tasks.no_hurry(&upid);
                Ok(working(StepKind::Destroy, doing(StepKind::Destroy)))
            }
            Err(error) => {
                self.cluster.exit(&self.intent.owner, End::Other);
                if matches!(error, pve::Error::Running { .. }) {
                    // PVE sees the end of a guest a moment after its task has ended.
                    let started = self.memory(|memory| {
                        memory.failures += 1;
                        if memory.failures > 5 {
                            memory.power = None;
                        }
                        memory.failures
                    });
                    let retry = Duration::from_millis(500 * u64::from(started.min(10)));
                    return Ok(self.wait(Waiting::Error, error.to_string(), retry));
                }
                Err(self.node_trouble(node, "removing the guest", &error))
            }
        }
    }

    /// Takes the mark off: the guest is nobody's from now on.
    async fn release(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        config: &GuestConfig,
    ) -> Flow<Outcome> {
        let found = config.description().unwrap_or_default();
        let text = mark::strip(found);
        let change = if text.is_empty() {
            ConfigChange::delete(["description"])
        } else {
            ConfigChange::set(GuestConfig::new().with("description", text))
        };
        // A guest that was only looked at was never marked.
        if mark::is_marked(found) {
            self.not_suspended(config)?;
            if let Err(error) = self.handle(node, identity.vmid).configure(&change).await {
                return Err(self.node_trouble(node, "releasing the guest", &error));
            }
        }
        self.event(
            "Released",
            format!("guest {} stays and belongs to nobody", identity.vmid),
        );
        self.drop_seed(identity, node, config).await
    }

    /// Ejects the first-boot image of a guest that stays, then removes it.
    async fn drop_seed(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        config: &GuestConfig,
    ) -> Flow<Outcome> {
        if let Some(seed) = &self.record.seed
            && config
                .get(SEED_SLOT)
                .is_some_and(|text| text.starts_with(&seed.volume))
        {
            self.not_suspended(config)?;
            self.eject_seed(identity, node, config.get("boot")).await?;
        }
        self.clean_up(identity).await
    }

    /// Removes what is left beside the guest.
    async fn clean_up(&mut self, identity: &Identity) -> Flow<Outcome> {
        let view = self.view()?;
        self.sweep(&view, true).await?;
        if self
            .record
            .seed
            .as_ref()
            .is_some_and(|seed| seed.state != SeedState::Removed)
            && let Some(outcome) = self.remove_seed(&identity.node).await?
        {
            return Ok(outcome);
        }
        Ok(Outcome::Gone)
    }
}
