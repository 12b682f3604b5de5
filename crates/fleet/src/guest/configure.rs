//! Changing a guest's configuration and power.

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

use pve::{
    ConfigChange, GuestConfig, GuestKind,
    api::{guest::PendingValue, lxc::MoveVolume, qemu::MoveTo},
    task::{Source, TaskEntry, TaskFilter},
};

use super::{Flow, Pass, failed, ready::Again, settle::doing, working};
use crate::{
    NodeName, Outcome, PowerFact, Size, StorageId, Upid, Waiting,
    cluster::Shape,
    desired::Desired,
    diff::{self, Changes},
    gate::{End, Key},
    intent::{self, InitMode, Management},
    record::{Identity, NicIdentity, Stage, StepKind},
    view::View,
};

/// How often it is looked whether high availability has done what it was asked for.
const WISH: Duration = Duration::from_secs(10);
/// After so long it is asked again.
const SLOWEST_WISH: Duration = Duration::from_mins(1);

impl Pass<'_> {
    /// Writes configuration. On a running guest, learns what stays pending.
    pub(super) async fn configure(
        &mut self,
        view: &View,
        identity: &Identity,
        node: &NodeName,
        power: PowerFact,
        mut changes: Changes,
    ) -> Flow<Option<Outcome>> {
        let running = power.is_on();
        let unstarted = self.record.stage < Stage::Started && !running;
        self.memory(|memory| memory.unstarted |= unstarted);
        let want = self.desired(view, identity)?;
        self.wrote_over_source(&want, &changes);
        self.memory(|memory| {
            memory
                .grown
                .retain(|slot, _| !changes.set.contains_key(slot));
        });
        let mut keys: Vec<String> = changes.keys().cloned().collect();
        if running && keys.iter().any(|key| key.starts_with("net")) {
            self.memory(|memory| memory.guest.again = Some(Again::for_a_while()));
        }
        let mut change = ConfigChange {
            set: changes.set.clone().into_iter().collect::<GuestConfig>(),
            delete: changes.delete.iter().cloned().collect(),
            revert: changes.revert.keys().cloned().collect(),
            ..ConfigChange::default()
        };
        // After a task everything is read, and an order that was left out is found missing.
        let order = change.set.get("boot").map(str::to_owned);
        let order = order.filter(|_| self.loses_order(&changes));
        if order.is_some() {
            change.set.remove("boot");
        }
        let unprotects = changes.delete.contains("protection");
        if unprotects && changes.delete.iter().any(|key| diff::holds_volume(key)) {
            // PVE asks for the protection that there was when the call came.
            let first = ConfigChange::delete(["protection"]);
            self.write(identity, node, &first).await?;
            change.delete.retain(|key| key != "protection");
            if changes.allocates {
                // What was read before it has another digest.
                self.memory(|memory| memory.model = None);
            }
        }
        if self.kind() == GuestKind::Qemu
            && self.record.stage >= Stage::Started
            && changes.names_volumes()
            && !unprotects
        {
            let model = self.memory(|memory| memory.model.clone());
            change.digest = model.and_then(|model| model.digest().map(str::to_owned));
        }
        if changes.allocates && self.kind() == GuestKind::Qemu {
            // A call before this one may be at it, whose answer was lost: it would make the same once more.
            let unsure = self.memory(|memory| memory.failures > 0 || memory.made.is_none());
            if unsure || self.record.stage >= Stage::Settled {
                self.no_task_runs(identity, node).await?;
            }
            let qemu = self.cluster.client.node(node).qemu(identity.vmid);
            return match qemu.configure_in_task(&change, None).await {
                Ok(Some(upid)) => {
                    let task = self
                        .cluster
                        .started(&self.intent.owner, StepKind::Configure, &upid);
                    self.record.in_flight.push(task);
                    self.record.unread = running;
                    Ok(Some(working(
                        StepKind::Configure,
                        format!("writing {}", keys.join(", ")),
                    )))
                }
                Ok(None) => {
                    self.memory(|memory| memory.model = None);
                    Ok(None)
                }
                Err(error) => Err(self.not_written(node, &error)),
            };
        }
        if changes.allocates {
            change.digest = self.based_on(identity, &changes).await?;
        }
        let held = self.write(identity, node, &change).await?;
        changes.hold(&held);
        keys.retain(|key| !held.contains(key));
        if let Some(order) = order {
            let change = ConfigChange::set(GuestConfig::new().with("boot", order));
            self.write(identity, node, &change).await?;
        }
        if self.record.stage >= Stage::Settled && !keys.is_empty() {
            self.event("Configured", format!("changed {}", keys.join(", ")));
        }
        self.wrote(view, identity, &changes)?;
        if running {
            let before = self.record.pending.clone();
            self.read_pending(identity, node, &want, &keys).await?;
            self.hold(held, &before);
        }
        Ok(None)
    }

    /// Whether a boot order among the changes could be lost: PVE handles what it is sent in no order, and where it appends a CD
    /// drive it writes the order from before over one that was sent.
    fn loses_order(&self, changes: &Changes) -> bool {
        if self.kind() != GuestKind::Qemu || !changes.set.contains_key("boot") {
            return false;
        }
        // It appends to the order that a running guest has, which is not known while another one waits.
        let mut model = self.memory(|memory| memory.model.as_deref().cloned());
        if self.order_waits() {
            model = None;
        }
        let model = model.unwrap_or_else(|| GuestConfig::new().with("boot", "order=?"));
        diff::appended(&model, &changes.set).is_some()
    }

    /// Whether another boot order waits for a restart.
    pub(super) fn order_waits(&self) -> bool {
        let (ours, others) = (&self.record.pending, &self.record.foreign_pending);
        ours.iter().chain(others).any(|key| key == "boot")
    }

    /// Changes that are left for the next start wait for it, and are nobody's drift.
    pub(super) fn stage_changes(&mut self, changes: Option<&Changes>) {
        let held = changes.filter(|_| self.intent.policy.management == Management::Full);
        let mut keys: Vec<String> = Vec::new();
        if let Some(held) = held {
            keys.extend(held.keys().cloned());
            keys.extend(held.moves.keys().chain(held.grow.keys()).cloned());
        }
        keys.sort();
        keys.dedup();
        let before = self.memory(|memory| {
            if !keys.is_empty() {
                memory.drift.clear();
            }
            std::mem::replace(&mut memory.staged, keys.clone())
        });
        if !keys.is_empty() && keys != before {
            self.event(
                "RestartRequired",
                format!("left for the next start: {}", keys.join(", ")),
            );
        }
    }

    /// Comes back when nothing is being done to the guest: a call that makes a volume may have been sent before and its
    /// answer lost, and a second one would leave two.
    async fn no_task_runs(&mut self, identity: &Identity, node: &NodeName) -> Flow<()> {
        let filter = TaskFilter {
            vmid: Some(identity.vmid),
            source: Source::Active,
            ..TaskFilter::default()
        };
        match self.cluster.client.node(node).tasks(&filter).await {
            Ok(list) if list.iter().any(TaskEntry::is_running) => {
                self.memory(|memory| memory.model = None);
                let message = "another task of the guest has not ended yet";
                Err(self.wait(Waiting::Locked, message, Duration::from_secs(2)))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(self.node_trouble(node, "looking for tasks of the guest", &error)),
        }
    }

    /// Remembers what was written, so that it need not be read.
    fn wrote(&mut self, view: &View, identity: &Identity, changes: &Changes) -> Flow<()> {
        let kind = self.kind();
        self.memory(|memory| {
            let Some(model) = memory.model.take() else {
                return;
            };
            let mut model = (*model).clone();
            if let Some(order) = diff::appended(&model, &changes.set) {
                model.set("boot", order);
            }
            model.extend(changes.set.clone());
            model.extend(changes.revert.clone());
            for key in &changes.delete {
                model.remove(key);
            }
            memory.shape = Some(Shape::of(&model, kind));
            memory.model = Some(Arc::new(model));
            memory.drift = changes.lasting();
        });
        self.record.stage = self.record.stage.max(Stage::Configured);
        if changes.moves.is_empty() && changes.grow.is_empty() {
            self.applied(view, identity)?;
        }
        Ok(())
    }

    /// Learns what waits for a restart, after these keys were written. A restart may follow only for what is declared: when others'
    /// changes may take effect is for them to say.
    pub(super) async fn read_pending(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        want: &Desired,
        written: &[String],
    ) -> Flow<()> {
        match self.handle(node, identity.vmid).pending().await {
            Ok(values) => {
                let waits = |value: &&PendingValue| {
                    value.is_pending() && !only_a_drive_more(value, &values)
                };
                let keys = values.iter().filter(waits).map(|value| value.key.clone());
                let mut pending: Vec<String> = keys.collect();
                let untold = self.untold(identity, node, written).await?;
                let known: BTreeSet<String> = pending.iter().cloned().collect();
                pending.extend(untold.difference(&known).cloned());
                let before = &self.record.pending;
                let is_ours =
                    |key: &String| written.contains(key) || before.contains(key) || want.owns(key);
                let all = pending.join(", ");
                let (ours, others): (Vec<_>, Vec<_>) = pending.into_iter().partition(is_ours);
                // What others left is not read to be told of, and is no news when it is found again.
                let new = !written.is_empty() && others != self.record.foreign_pending;
                if !all.is_empty() && (new || ours != self.record.pending) {
                    self.event("RestartRequired", format!("waiting for a restart: {all}"));
                }
                self.record.pending = ours;
                self.record.foreign_pending = others;
                self.record.unread = false;
                self.memory(|memory| memory.waits = true);
                Ok(())
            }
            Err(error) => Err(self.node_trouble(node, "reading what is pending", &error)),
        }
    }

    /// What PVE's own cloud-init drive does not have yet: PVE takes such keys at once, and writes the drive when the guest
    /// is started.
    async fn untold(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        written: &[String],
    ) -> Flow<BTreeSet<String>> {
        let init = self.intent.init.as_ref();
        if init.is_none_or(|init| init.mode != InitMode::Native) {
            return Ok(BTreeSet::new());
        }
        let qemu = self.cluster.client.node(node).qemu(identity.vmid);
        let values = match qemu.cloudinit_pending().await {
            Ok(values) => values.into_iter(),
            Err(error) => return Err(self.node_trouble(node, "reading what is pending", &error)),
        };
        let waits = values.filter(|value| value.pending.is_some() || value.delete);
        let waits = waits.map(|value| value.key);
        // Of addresses it shows those that are others now, and not those that came or went.
        let same_run = self.memory(|memory| memory.waits);
        let before = self.record.pending.iter().filter(|_| same_run);
        let addresses = written.iter().chain(before);
        let addresses = addresses.filter(|key| key.starts_with("ipconfig")).cloned();
        Ok(waits.filter(|key| is_told(key)).chain(addresses).collect())
    }

    /// Moves a disk to another storage; what it leaves there is removed.
    pub(super) async fn move_disk(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        power: PowerFact,
        slot: &str,
        storage: StorageId,
    ) -> Flow<Option<Outcome>> {
        let (handle, vmid) = (self.cluster.client.node(node), identity.vmid);
        let message = format!("moving {slot} to {storage}");
        // A volume that was begun and not heard of again would be made twice.
        self.no_task_runs(identity, node).await?;
        // Whatever comes of it, names of volumes change.
        self.memory(|memory| memory.model = None);
        let moved = match self.kind() {
            GuestKind::Qemu => {
                let (qemu, to) = (handle.qemu(vmid), MoveTo::Storage(storage, None));
                let call = qemu.move_disk(slot, &to, true, None);
                self.power_step(node, StepKind::MoveDisk, call).await?
            }
            GuestKind::Lxc if power == PowerFact::Running => {
                let message = format!(
                    "{slot} moves to {storage} when the container is off: PVE moves no volume of one that runs"
                );
                return Err(self.wait(Waiting::Guest, message, Duration::from_mins(1)));
            }
            GuestKind::Lxc => {
                let (lxc, to) = (handle.lxc(vmid), MoveVolume::Storage(storage));
                let call = lxc.move_volume(slot, &to, true, None);
                self.power_step(node, StepKind::MoveDisk, call).await?
            }
        };
        self.event("MovingDisk", message);
        Ok(moved)
    }

    pub(super) async fn grow(
        &mut self,
        identity: &Identity,
        node: &NodeName,
        slot: &str,
        size: Size,
    ) -> Flow<Option<Outcome>> {
        let to = size.to_pve();
        let node_handle = self.cluster.client.node(node);
        let sent = match self.kind() {
            GuestKind::Qemu => {
                node_handle
                    .qemu(identity.vmid)
                    .resize(slot, &to, None)
                    .await
            }
            GuestKind::Lxc => node_handle
                .lxc(identity.vmid)
                .resize(slot, &to, None)
                .await
                .map(Some),
        };
        match sent {
            Ok(Some(upid)) => {
                self.event("Growing", format!("growing {slot} to {size}"));
                let task = self
                    .cluster
                    .started(&self.intent.owner, StepKind::Resize, &upid);
                self.record.in_flight.push(task);
                self.memory(|memory| memory.growing = Some((slot.to_owned(), size)));
                Ok(Some(working(
                    StepKind::Resize,
                    format!("growing {slot} to {size}"),
                )))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(self.node_trouble(node, "growing a disk", &error)),
        }
    }

    /// Sends a change of power and lets its task be watched.
    pub(super) async fn power_step(
        &mut self,
        node: &NodeName,
        step: StepKind,
        call: impl Future<Output = pve::Result<Upid>>,
    ) -> Flow<Option<Outcome>> {
        let asked = self.memory(|memory| memory.wish);
        if asked.is_some_and(|(what, at)| what == step && at.elapsed() < SLOWEST_WISH) {
            let message = format!("high availability was asked for {}", doing(step));
            return Ok(Some(self.wait(Waiting::Guest, message, WISH)));
        }
        let keys = vec![Key::of(step, node)];
        if !self.cluster.enter(&self.intent.owner, keys) {
            let message = format!("in line for {}", doing(step));
            let retry = Duration::from_mins(1);
            return Ok(Some(Outcome::Waiting {
                what: Waiting::Turn,
                message,
                retry,
            }));
        }
        match call.await {
            Ok(upid) => {
                let task = self.cluster.started(&self.intent.owner, step, &upid);
                self.record.in_flight.push(task);
                let memory = self.memory(|memory| memory.clone());
                // It counts as ready only when it answers, which takes far longer than its start; and what is being
                // removed is waited for by nobody.
                let answers = step == StepKind::Start && self.needs_answer(&memory);
                if answers || self.record.stage == Stage::Removing {
                    self.cluster.state().tasks.no_hurry(&upid);
                }
                Ok(Some(working(step, doing(step))))
            }
            Err(error) => {
                self.cluster.exit(&self.intent.owner, End::Other);
                if step == StepKind::Start && error.is_unknown() {
                    self.memory(|memory| memory.unstarted = false);
                }
                if step == StepKind::Start
                    && matches!(error, pve::Error::Running { .. })
                    && self.started_by_another()
                {
                    return Ok(Some(Outcome::Persist));
                }
                // Somebody else was faster: look again rather than complain.
                if matches!(
                    error,
                    pve::Error::NotRunning { .. } | pve::Error::Running { .. }
                ) {
                    self.memory(|memory| memory.power = None);
                    self.cluster.refresh();
                }
                Err(self.node_trouble(node, doing(step), &error))
            }
        }
    }

    /// Gives disks and interfaces that are new in the intent their places, to be stored first.
    pub(super) async fn extend_identity(&mut self, identity: &Identity) -> Flow<Identity> {
        let container = self.kind() == GuestKind::Lxc;
        let new_nics = self.intent.nics.iter().any(|nic| {
            let known = identity.nics.get(&nic.name);
            // An address that is said later on is the interface's from then on.
            known.is_none_or(|known| nic.mac.is_some_and(|mac| mac != known.mac))
        });
        let new_disks = !container
            && self
                .intent
                .disks
                .iter()
                .any(|disk| !identity.disks.contains_key(&disk.name));
        let mounts = self.intent.container.iter().flat_map(|it| &it.mounts);
        let new_mounts = mounts
            .map(|mount| &mount.name)
            .any(|name| !identity.mounts.contains_key(name));
        if !new_nics && !new_disks && !new_mounts {
            return Ok(identity.clone());
        }
        let (model, _) = self.ours(identity).await?;
        let mut identity = identity.clone();
        let known = identity.clone();
        self.return_to_places(&mut identity, &model).await?;
        self.new_mounts(&mut identity, Some(&model));
        for nic in &self.intent.nics {
            if let Some(known) = identity.nics.get_mut(&nic.name) {
                known.mac = nic.mac.unwrap_or(known.mac);
                continue;
            }
            let used = |index: u8| {
                identity.nics.values().any(|nic| nic.index == index)
                    || model.get(&format!("net{index}")).is_some()
            };
            let Some(index) = (0..32).find(|index| !used(*index)) else {
                return Err(failed(
                    crate::Failure::Invalid,
                    "networks: a guest has at most 32",
                ));
            };
            let seed = format!("{}/{}", self.intent.owner, identity.uuid);
            let mac = nic
                .mac
                .unwrap_or_else(|| super::choose::derive_mac(&seed, &nic.name));
            identity
                .nics
                .insert(nic.name.clone(), NicIdentity { index, mac });
        }
        // What was restored has its disks where they were when it was backed up.
        let restored = matches!(self.intent.source, intent::Source::Backup { .. });
        if restored && identity.disks.is_empty() && self.record.stage < Stage::Configured {
            self.slots(&mut identity, &model)?;
        } else {
            self.new_slots(&mut identity, Some(&model))?;
        }
        for (name, slot) in &identity.disks {
            if !known.disks.contains_key(name) {
                self.rejoin(name, slot.to_string());
            }
        }
        for (name, index) in &identity.mounts {
            if !known.mounts.contains_key(name) {
                self.rejoin(name, format!("mp{index}"));
            }
        }
        self.record.identity = Some(identity);
        Err(Outcome::Persist)
    }
}

/// Whether PVE's own cloud-init tells the guest this, and nothing else does.
fn is_told(key: &str) -> bool {
    let plain = ["nameserver", "searchdomain", "sshkeys"].contains(&key);
    plain || key.starts_with("ci") || key.starts_with("ipconfig")
}

/// Whether the boot order has only a CD drive more at its end, or less, which no restart is worth.
fn only_a_drive_more(value: &PendingValue, all: &[PendingValue]) -> bool {
    let (Some(now), Some(next)) = (&value.value, &value.pending) else {
        return false;
    };
    let values = all.iter().filter_map(|it| {
        let text = it.pending.as_ref().or(it.value.as_ref())?;
        Some((it.key.clone(), text.clone()))
    });
    let drives: GuestConfig = values.collect();
    let alike = |one: &str, other: &str| diff::boots_alike(one, other, &drives);
    value.key == "boot" && (alike(now, next) || alike(next, now))
}
