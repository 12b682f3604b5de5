//! A guest that has an identity: find it, compare it, do the next steps.

use std::time::Duration;

use pve::GuestKind;
use tokio::time::Instant;

use super::{
    Flow, LAG, Pass, bare,
    look::{Sight, is_making},
    working,
};
use crate::{
    NodeName, Outcome, PowerFact, Size, Waiting,
    desired::{Desired, Want},
    intent::{Management, Readiness, Update},
    plan::{self, After, Known, Step, Wanted},
    record::{Identity, SeedState, Stage, StepKind},
    view::View,
};

/// How long a task of PVE waits for another one of the same guest.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// After so long a guest has surely read its first-boot image, whether or not its agent answers.
const SURELY_READ: u64 = 300;
/// The same with Windows, which sets itself up and starts anew before it reads anything.
const SURELY_READ_BY_WINDOWS: u64 = 30 * 60;
/// For how long a guest that is only looked at is asked for its addresses by itself.
const GIVEN_UP: Duration = Duration::from_mins(10);

impl Pass<'_> {
    pub(super) async fn exist(&mut self, view: &View, identity: Identity) -> Flow<Outcome> {
        if self.record.stage < Stage::Made {
            if self.memory(|memory| memory.fresh) {
                if !view.node_online(&identity.node) {
                    let why = format!("node {} went away before anything was sent", identity.node);
                    return Ok(self.choose_again(&why));
                }
                return self.make(view, &identity).await;
            }
            let absent = self.memory(|memory| memory.absent);
            if absent && !view.guests.contains_key(&identity.vmid) {
                // Before it is sent again it is looked for again, but not while there is nothing to make it from.
                self.originals(view).await?;
            }
            match self.look(&identity).await? {
                Sight::Ours(config, node) => {
                    if let Some(lock) = config.lock().filter(|lock| is_making(lock)) {
                        self.memory(|memory| memory.model = None);
                        // Its node may have died over it, and the lock stays then.
                        let why = self.unfinished(&identity, lock).await?;
                        return Ok(self.wait(Waiting::Locked, why, Duration::from_mins(1)));
                    }
                    let now = Instant::now();
                    self.record.stage = Stage::Made;
                    self.memory(|memory| {
                        memory.made = Some(now);
                        memory.node = Some((node, now));
                    });
                    self.event("Found", "the guest that was begun is there");
                }
                Sight::Unfinished(lock) => {
                    let why = self.unfinished(&identity, &lock).await?;
                    return Ok(self.choose_again(&why));
                }
                Sight::Begun(node) => {
                    let cleared = self.clear_bare(&identity, &node).await?;
                    return Ok(match cleared {
                        Some(outcome) => outcome,
                        None => self.choose_again(&bare::unknown(identity.vmid)),
                    });
                }
                Sight::Foreign(why) => return Ok(self.choose_again(&why)),
                Sight::Absent => {
                    self.memory(|memory| memory.absent = true);
                    if self.has_left(view, &identity.node)? {
                        let why = format!("node {} has left the cluster", identity.node);
                        return Ok(self.choose_again(&why));
                    }
                    return self.make(view, &identity).await;
                }
            }
        }
        let (node, power) = self.presence(view, &identity).await?;
        if self.is_early(view, &identity, power).await? {
            let step = match power {
                PowerFact::Paused => Step::Stop,
                _ => Step::Shutdown(self.intent.policy.shutdown_timeout),
            };
            if let Some(outcome) = self.step(view, &identity, &node, power, step).await? {
                return Ok(outcome);
            }
        }
        self.record.booted |= power == PowerFact::Running;
        if self.record.booted
            && let Some(seed) = &mut self.record.seed
            && seed.state == SeedState::Planned
        {
            // It was started while nobody remembered it: what it was told, it has read.
            seed.state = SeedState::Ejected;
        }
        self.bring_home(view, &identity, &node).await?;
        // A crash may have come between the guest and its first-boot image, or it was declared anew.
        if !self.record.booted {
            if self.name_late_seed(view, &identity)? {
                return Ok(Outcome::Persist);
            }
            self.upload_seed(&identity).await?;
            if let Some(task) = self.record.in_flight.first() {
                return Ok(working(task.step, "uploading the first-boot image"));
            }
        }
        self.keep_as_declared(view, &identity, &node, power).await
    }

    async fn keep_as_declared(
        &mut self,
        view: &View,
        identity: &Identity,
        node: &NodeName,
        power: PowerFact,
    ) -> Flow<Outcome> {
        if let Some(row) = view.guests.get(&identity.vmid).filter(|_| identity.adopted) {
            self.refuse_template(row)?;
        }
        let identity = self.extend_identity(identity).await?;
        let desired = self.desired(view, &identity)?;
        self.compare_with_view(view, &identity, &desired);
        // A new declaration is not drift: it is written whatever the policy for drift is.
        let redeclared = self.record.applied != Some(desired.digest());
        let doubt = self.memory(|memory| memory.doubt);
        let changes = self.changes(view, &identity).await?;
        if doubt {
            self.audit_firewall(&identity, node).await?;
        }
        let running = power.is_on();
        let settled = self.record.stage >= Stage::Settled;
        let waits = !self.record.pending.is_empty() || !self.record.foreign_pending.is_empty();
        let restarted = waits && !self.memory(|memory| memory.waits);
        if running
            && (restarted || redeclared && changes.is_none() && (settled || self.record.unread))
        {
            // It was written by a task, or by a call before a crash: what of it waits for a restart was not read then. Or
            // somebody has restarted the guest since.
            let held = self.holds_back();
            self.read_pending(&identity, node, &desired, &[]).await?;
            if held {
                // PVE knows nothing of that: it is written now, or held back again.
                self.memory(|memory| memory.doubt = true);
                return Ok(Outcome::Persist);
            }
        }
        let restart =
            self.intent.restarts > self.record.restarts && self.record.stage >= Stage::Started;
        let staged = running && self.intent.policy.update == Update::Staged && !restart;
        let left = redeclared && settled && (staged || power == PowerFact::Suspended);
        self.stage_changes(changes.as_ref().filter(|_| left));
        self.learn_inside();
        let memory = self.memory(|memory| memory.clone());
        let row = view.guests.get(&identity.vmid);
        let lock = row
            .filter(|_| memory.made.is_none_or(|made| view.asked > made + LAG))
            .and_then(|row| row.lock.clone());
        let needs_answer = self.needs_answer(&memory);
        // What was started or stopped a moment ago is shown some seconds later.
        let shown = memory.power.is_none_or(|(_, at)| view.asked > at + LAG);
        let uptime = row.filter(|_| shown).map_or(0, |row| row.uptime);
        let windows = self.has_windows();
        let known = Known {
            stage: self.record.stage,
            changes: changes.as_ref(),
            power,
            lock: lock.as_deref(),
            seed: self.record.seed.as_ref(),
            answered: memory.guest.answered || !needs_answer,
            read: uptime >= self.surely_read() || memory.guest.answered && !windows,
            reads_late: windows,
            pending: &self.record.pending,
            restart,
            deaf: memory.deaf,
            held: self.holds_back(),
            correct: self.intent.policy.correct_drift || redeclared,
            beside: self.record.beside != self.beside_digest()
                || !self.record.giving.is_nothing()
                || (self.intent.policy.correct_drift
                    && (memory.firewall_changed || self.is_moved(view, &identity))),
        };
        let wanted = Wanted {
            power: self.intent.power,
            update: self.intent.policy.update,
            management: self.intent.policy.management,
            grace: self.intent.policy.shutdown_timeout,
            keep_seed: self.intent.init.as_ref().is_some_and(|init| init.keep),
        };
        let (steps, after) = plan::plan(wanted, &known);
        self.compare_first_boot(&identity);
        let pending = self.record.pending.clone();
        let observed = self.intent.policy.management == Management::Observe;
        let mut steps = steps.into_iter().peekable();
        let mut held = None;
        let mut ungrown = Vec::new();
        while let Some(mut step) = steps.next() {
            if let Step::Configure(changes) = &mut step {
                changes.set.retain(|slot, _| !ungrown.contains(slot));
                if !changes.configures() {
                    continue;
                }
            }
            let growing = match &step {
                Step::Grow { slot, .. } => Some(slot.clone()),
                _ => None,
            };
            // PVE lets whatever starts a guest wait ten seconds for who holds it: where growing a disk takes less, it need not
            // be waited for here.
            let queues = matches!(
                (&step, steps.peek()),
                (Step::Grow { .. }, Some(Step::Start))
            ) && self
                .cluster
                .state()
                .tasks
                .ends_within(StepKind::Resize, LOCK_WAIT / 2);
            let is_disk = matches!(step, Step::MoveDisk { .. } | Step::Grow { .. });
            match self.step(view, &identity, node, power, step).await {
                // Who is only looked at is as it is, whether or not it says more of itself.
                Ok(Some(Outcome::Waiting { retry, .. })) if observed => {
                    let silent = self.memory(|memory| memory.guest.silent);
                    if silent < GIVEN_UP {
                        self.cluster.remind(&self.intent.owner, retry);
                    }
                }
                Ok(Some(outcome)) if !queues => return Ok(outcome),
                Ok(_) => {}
                // The rest need not wait for a disk that cannot be moved or grown now.
                Err(outcome @ Outcome::Waiting { .. }) if is_disk => {
                    held.get_or_insert(outcome);
                    ungrown.extend(growing);
                }
                Err(outcome) => return Err(outcome),
            }
        }
        if let Some(outcome) = held {
            return Err(outcome);
        }
        if self.record.pending != pending {
            // That something waits for a restart was not known when the steps were planned.
            return Ok(Outcome::Persist);
        }
        match after {
            After::Unlocked(lock) => {
                let owner = &self.intent.owner;
                let held = self.cluster.held(owner, self.kind(), identity.vmid, &lock);
                Ok(self.wait(Waiting::Locked, held.1, held.0))
            }
            After::Settled => {
                if power == PowerFact::Running {
                    self.ask_again(&identity, node).await;
                }
                self.memory(|memory| {
                    memory.locked = None;
                    // The next restart is asked for kindly again.
                    memory.deaf = false;
                });
                Ok(self.settled(&identity, node, power))
            }
        }
    }

    /// Who was not seen all the time may have been changed or replaced meanwhile, which the list of everything shows of most.
    fn compare_with_view(&mut self, view: &View, identity: &Identity, desired: &Desired) {
        let Some(row) = view.guests.get(&identity.vmid) else {
            return;
        };
        let kind = self.kind();
        self.memory(|memory| {
            let known = memory.verified.is_some()
                || memory.made.is_some_and(|made| view.asked < made + LAG)
                || row.memory == Size::ZERO;
            let as_it_was = || match &memory.shape {
                Some(shape) => shape.explains(row),
                None => desired.allows(row, kind),
            };
            memory.doubt |= !known && !as_it_was();
        });
    }

    /// First-boot data that was changed too late has no effect, and that is said.
    fn compare_first_boot(&mut self, identity: &Identity) {
        let stale = self.told_otherwise(identity);
        let before = self.memory(|memory| std::mem::replace(&mut memory.told_otherwise, stale));
        if stale && !before {
            self.warn(
                "FirstBootDataChanged",
                "the guest has read its first-boot data already and keeps what it was told: \
                 delete it and make it anew to have the new data read",
            );
        }
    }

    fn settled(&mut self, identity: &Identity, node: &NodeName, power: PowerFact) -> Outcome {
        if !self.intent.power.is_met(power)
            && self.intent.policy.management == Management::Full
            && self.record.in_flight.is_empty()
        {
            // Guests under high availability change power some seconds after they were asked to.
            return self.wait(
                Waiting::Guest,
                format!("the guest is {power:?}"),
                Duration::from_secs(10),
            );
        }
        if power != PowerFact::Running {
            // What is off promises its node nothing; what runs is held until the view shows it.
            self.cluster.state().holds.remove(&identity.vmid);
        }
        let first = self.record.stage < Stage::Settled;
        self.record.stage = self.record.stage.max(Stage::Settled);
        self.record.early = None;
        self.record.restarts = self.record.restarts.max(self.intent.restarts);
        self.memory(|memory| {
            memory.failures = 0;
            memory.given_up = None;
            // What a guest at rest looks like need not be kept: ten thousand of them add up.
            memory.model = None;
        });
        if self
            .record
            .seed
            .as_ref()
            .is_some_and(|seed| seed.state == SeedState::Uploaded)
            && !self.intent.init.as_ref().is_some_and(|init| init.keep)
        {
            // The list tells how long it has been running, some seconds late.
            let uptime = self.cluster.row(identity.vmid).map_or(0, |row| row.uptime);
            let left = Duration::from_secs(self.surely_read().saturating_sub(uptime));
            self.cluster.remind(&self.intent.owner, left + LAG);
        }
        if first {
            self.event(
                "Settled",
                format!("guest {} on {node} is as declared", identity.vmid),
            );
        }
        Outcome::Settled
    }

    /// The uptime from which on the guest has read its first-boot image, whatever it says.
    fn surely_read(&self) -> u64 {
        if self.has_windows() {
            SURELY_READ_BY_WINDOWS
        } else {
            SURELY_READ
        }
    }

    /// Whether the guest itself must be heard before it counts as ready.
    pub(super) fn needs_answer(&self, memory: &crate::cluster::Memory) -> bool {
        if self.intent.policy.readiness == Readiness::Running {
            return false;
        }
        if memory.guest.mute {
            return false;
        }
        if self.kind() == GuestKind::Lxc {
            return true;
        }
        if let Some(agent) = &self.intent.hardware.agent {
            return agent.enabled;
        }
        // The source may have brought an agent along.
        self.record.agent
    }

    async fn step(
        &mut self,
        view: &View,
        identity: &Identity,
        node: &NodeName,
        power: PowerFact,
        step: Step,
    ) -> Flow<Option<Outcome>> {
        match step {
            Step::AskGuest | Step::RemoveSeed => {}
            // Nothing is lost if these meet a guest that took ours' place, which the view would have shown: who vanished,
            // was renamed or was out of sight for a while is not believed any more.
            Step::Start | Step::Shutdown(_) | Step::Pause | Step::Resume
                if self.memory(|memory| memory.verified.is_some()) => {}
            _ => self.verify(identity).await?,
        }
        if matches!(step, Step::Start | Step::Shutdown(_) | Step::Stop) {
            self.be_heeded(identity).await?;
        }
        let guest = self.handle(node, identity.vmid);
        match step {
            Step::Configure(changes) => self.configure(view, identity, node, power, changes).await,
            Step::MoveDisk { slot, storage } => {
                self.move_disk(identity, node, power, &slot, storage).await
            }
            Step::Grow { slot, size } => self.grow(identity, node, &slot, size).await,
            Step::Beside => self.beside(view, identity, node).await.map(|()| None),
            Step::Start => self.power_step(node, StepKind::Start, guest.start()).await,
            Step::Shutdown(grace) => {
                let timeout = u32::try_from(grace.as_secs()).ok();
                let how = pve::api::guest::power::Shutdown {
                    timeout,
                    force_stop: true,
                };
                self.power_step(node, StepKind::Shutdown, guest.shutdown(how))
                    .await
            }
            Step::Stop => {
                let how = pve::api::guest::power::Stop::default();
                self.power_step(node, StepKind::Stop, guest.stop(how)).await
            }
            Step::Reboot(grace) => {
                let timeout = u32::try_from(grace.as_secs()).ok();
                self.event("Restarting", "the guest is restarted");
                self.power_step(node, StepKind::Reboot, guest.reboot(timeout))
                    .await
            }
            Step::Pause => self.pause(identity, node).await,
            Step::Resume => {
                self.power_step(node, StepKind::Resume, guest.resume())
                    .await
            }
            Step::Suspend => {
                let qemu = self.cluster.client.node(node).qemu(identity.vmid);
                self.power_step(node, StepKind::Suspend, qemu.hibernate(None))
                    .await
            }
            Step::AskGuest => self.ask_guest(identity, node).await,
            Step::EjectSeed => {
                let desired = self.desired(view, identity)?;
                let boot = match desired.keys.get("boot") {
                    Some(Want::Text(order)) => Some(order.as_str()),
                    _ => None,
                };
                self.eject_seed(identity, node, boot).await
            }
            Step::RemoveSeed => self.remove_seed(&identity.node).await,
        }
    }
}
