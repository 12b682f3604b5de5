//! Tasks that have ended since the last call.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Flow, Pass, working};
use crate::{
    Outcome, PowerFact, Waiting,
    intent::Power,
    prop::Prop,
    record::{InFlight, SeedState, Stage, StepKind},
    tasks::{Ended, Standing},
};

impl Pass<'_> {
    /// Takes note of every end. Comes back only when nothing is under way any more.
    pub(super) fn settle_tasks(&mut self) -> Flow<()> {
        let mut ended = Vec::new();
        for task in std::mem::take(&mut self.record.in_flight) {
            match self.cluster.standing(&self.intent.owner, &task) {
                Standing::Flying => self.record.in_flight.push(task),
                Standing::Ended(end) => ended.push((task, *end)),
            }
        }
        let mut trouble = None;
        for (task, end) in ended {
            self.cluster.state().tasks.settle(&task.upid);
            if let Some(outcome) = self.ended(&task, end) {
                trouble.get_or_insert(outcome);
            }
        }
        self.reaches_tasks()?;
        if let Some(task) = self.record.in_flight.first() {
            return Err(working(
                task.step,
                format!("{} ({})", doing(task.step), task.upid),
            ));
        }
        trouble.map_or(Ok(()), Err)
    }

    /// Comes back when no node is down on which something of ours was under way.
    pub(super) fn reaches_tasks(&mut self) -> Flow<()> {
        let tasks = self.record.in_flight.clone();
        let Some(task) = self.cluster.cut_off(&self.intent.owner, &tasks) else {
            return Ok(());
        };
        let message = format!(
            "node {} is down, in the middle of {} ({})",
            task.upid.node(),
            doing(task.step),
            task.upid
        );
        Err(self.wait(Waiting::NodeDown, message, Duration::from_secs(30)))
    }

    fn ended(&mut self, task: &InFlight, end: Ended) -> Option<Outcome> {
        let now = Instant::now();
        // Tasks of guests under high availability only write a wish down.
        let wish = task.upid.kind().starts_with("ha");
        let error = match end {
            Ok(_) => None,
            // Somebody else was faster; what was wanted is so, unless it was too early for that.
            Err(pve::Error::Running { .. }) if task.step == StepKind::Start => {
                if self.started_by_another() {
                    return None;
                }
                None
            }
            Err(pve::Error::NotRunning { .. })
                if matches!(task.step, StepKind::Stop | StepKind::Shutdown) =>
            {
                None
            }
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            return Some(self.task_failed(task, &error));
        }
        self.memory(|memory| {
            // That what a failed try left is gone does not make the next one better.
            if task.step != StepKind::Destroy {
                memory.failures = 0;
            }
            memory.wish = wish.then_some((task.step, now));
        });
        self.paused_or_not(task.step, wish);
        match task.step {
            StepKind::Clone | StepKind::Create | StepKind::Restore => self.made(now),
            StepKind::UploadSeed => {
                if let Some(seed) = &mut self.record.seed {
                    seed.state = seed.state.max(SeedState::Uploaded);
                }
            }
            StepKind::RemoveSeed => {
                if let Some(seed) = &mut self.record.seed {
                    seed.state = SeedState::Removed;
                }
            }
            StepKind::Start | StepKind::Reboot => {
                self.record.stage = self.record.stage.max(Stage::Started);
                self.record.booted = true;
                self.record.restarts = self.intent.restarts;
                self.record.foreign_pending.clear();
                if task.step == StepKind::Reboot || !self.record.pending.is_empty() {
                    // A start takes what was pending; what it did not take, reading will show.
                    self.record.pending.clear();
                    self.memory(|memory| memory.doubt = true);
                }
                self.memory(|memory| {
                    if !wish {
                        memory.power = Some((PowerFact::Running, now));
                        memory.guest.booted = Some(now);
                        memory.guest.found = false;
                    }
                    memory.deaf = false;
                    memory.guest.restarted();
                    memory.guest.silent = Duration::ZERO;
                });
                self.event("Started", "the guest runs");
            }
            StepKind::Shutdown | StepKind::Stop => {
                self.powered(PowerFact::Stopped, wish, now);
                self.record.foreign_pending.clear();
                if !self.record.pending.is_empty() {
                    self.record.pending.clear();
                    self.memory(|memory| memory.doubt = true);
                }
                self.event("Stopped", "the guest is off");
            }
            StepKind::Pause | StepKind::Resume => {
                let power = match task.step {
                    StepKind::Pause => PowerFact::Paused,
                    _ => PowerFact::Running,
                };
                self.memory(|memory| memory.power = Some((power, now)));
            }
            StepKind::Suspend => self.powered(PowerFact::Suspended, wish, now),
            StepKind::Resize => self.grown(),
            // The names of new volumes are PVE's to say, and of a running guest what waits for a restart.
            StepKind::Configure => {
                self.record.applied = None;
                self.memory(|memory| memory.model = None);
            }
            StepKind::MoveDisk => self.memory(|memory| memory.model = None),
            StepKind::Migrate => {
                let node = self
                    .record
                    .identity
                    .as_ref()
                    .map(|identity| identity.node.clone());
                self.memory(|memory| {
                    memory.node = node.map(|node| (node, now));
                    memory.model = None;
                });
            }
            _ => {}
        }
        None
    }

    fn grown(&mut self) {
        let pending = &self.record.pending;
        self.memory(|memory| {
            let model = memory.model.take();
            let Some((slot, size)) = memory.growing.take() else {
                return;
            };
            memory.grown.insert(slot.clone(), size);
            // What waits for a restart still has the size from before: that is read, and written anew.
            let Some(model) = model.filter(|_| !pending.contains(&slot)) else {
                return;
            };
            let mut prop = Prop::parse(&slot, model.get(&slot).unwrap_or_default());
            prop.set("size", size.to_pve());
            let mut model = (*model).clone();
            model.set(&slot, prop.print(&slot));
            memory.model = Some(Arc::new(model));
        });
    }

    fn powered(&mut self, power: PowerFact, wish: bool, now: Instant) {
        self.memory(|memory| {
            if !wish {
                memory.power = Some((power, now));
            }
            memory.guest.powered(power);
        });
        self.cluster.state().boots.forget(&self.intent.owner);
    }

    fn made(&mut self, now: Instant) {
        self.record.stage = self.record.stage.max(Stage::Made);
        let chosen = self.record.identity.as_ref().map(|id| id.node.clone());
        self.memory(|memory| {
            memory.made = Some(now);
            memory.verified = Some(now);
            // What a process before this one began may have ended long ago, and been started since.
            let begun_here = memory.making_on.take();
            memory.power = begun_here.is_some().then_some((PowerFact::Stopped, now));
            let node = begun_here.or(chosen);
            memory.node = node.map(|node| (node, now));
        });
        self.event("Created", "the guest exists");
    }

    fn task_failed(&mut self, task: &InFlight, error: &pve::Error) -> Outcome {
        let making = matches!(
            task.step,
            StepKind::Clone | StepKind::Create | StepKind::Restore
        );
        if making {
            self.memory(|memory| {
                memory.fresh = false;
                memory.model = None;
            });
            if matches!(error, pve::Error::FeatureMissing { .. })
                && !self.record.full
                && self.may_be_full()
            {
                self.record.full = true;
                self.warn(
                    "LinkedCloneImpossible",
                    format!("{error}; making a full copy instead"),
                );
                return Outcome::Persist;
            }
            if error.is_vmid_taken() {
                return Outcome::Persist;
            }
        }
        if task.step == StepKind::RemoveSeed && error.is_not_found() {
            if let Some(seed) = &mut self.record.seed {
                seed.state = SeedState::Removed;
            }
            return Outcome::Persist;
        }
        if task.step == StepKind::Reboot
            && matches!(error, pve::Error::GuestTimeout { .. })
            && self.intent.power == Power::On
        {
            let grace = self.intent.policy.shutdown_timeout.as_secs();
            self.warn(
                "RestartForced",
                format!("the guest did not shut down within {grace} s: it is switched off and started again"),
            );
            self.memory(|memory| memory.deaf = true);
            return Outcome::Persist;
        }
        // What was believed of its configuration may be why: it is read and compared again.
        self.memory(|memory| {
            memory.model = None;
            memory.doubt = true;
        });
        self.trouble(doing(task.step), error)
    }
}

/// A step in words.
pub(super) fn doing(step: StepKind) -> &'static str {
    match step {
        StepKind::UploadSeed => "uploading the first-boot image",
        StepKind::Clone => "copying the template",
        StepKind::Create => "creating the guest",
        StepKind::Restore => "restoring the backup",
        StepKind::Configure => "configuring the guest",
        StepKind::MoveDisk => "moving a disk",
        StepKind::Resize => "growing a disk",
        StepKind::Start => "starting the guest",
        StepKind::Shutdown => "shutting the guest down",
        StepKind::Stop => "switching the guest off",
        StepKind::Reboot => "restarting the guest",
        StepKind::Pause => "pausing the guest",
        StepKind::Resume => "resuming the guest",
        StepKind::Suspend => "suspending the guest",
        StepKind::Migrate => "moving the guest",
        StepKind::RemoveSeed => "removing the first-boot image",
        StepKind::Destroy => "removing the guest",
        StepKind::Snapshot => "making the snapshot",
        StepKind::DeleteSnapshot => "removing the snapshot",
        StepKind::Rollback => "going back to the snapshot",
        StepKind::Backup => "making the backup",
        StepKind::Download => "downloading the image",
        StepKind::MakeTemplate => "making the template",
        StepKind::RemoveVolume => "removing a volume",
    }
}
