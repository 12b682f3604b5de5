//! Moving guests.

mod log;

use std::time::Duration;

use pve::{
    GuestConfig, GuestKind,
    api::guest::{
        ConfigView,
        migrate::{MigrateLxc, MigrateQemu},
    },
};
use tokio::time::Instant;

use super::{Act, Flow, failed};
use crate::{
    Event, Failure, NodeName, Outcome, PowerFact, Size, StorageId, Upid, Waiting,
    cluster::{HA_PATIENCE, HA_PAUSE},
    diff::is_seed,
    guest::{
        devices,
        source::{storage_of, volumes},
    },
    intent::MigrationIntent,
    place::{self, Ask, Hold, Moving},
    prop::Prop,
    record::StepKind,
    trouble,
    view::{GuestRow, View},
};

/// Storages of one node that carry snapshots along.
const CARRY_SNAPSHOTS: [&str; 2] = ["zfspool", "btrfs"];

impl Act<'_> {
    pub(super) async fn migrate(&mut self, intent: &MigrationIntent) -> Flow<Outcome> {
        if self.record.done {
            return Ok(Outcome::Settled);
        }
        let view = self.view()?;
        // Whoever starts anew holds again what was promised.
        if let Some(row) = view.guests.get(&self.guest) {
            self.hold(row);
        }
        match self.settle()? {
            Some((_, upid, Ok(_))) => {
                let target = self.record.target.clone();
                // A guest under high availability moves some time after the task has ended.
                if upid.kind().starts_with("ha") {
                    let now = Instant::now();
                    self.cluster
                        .memory(self.owner, |memory| memory.asked_ha = Some(now));
                    self.cluster.refresh();
                } else {
                    self.unsettle_guest(|memory, now| {
                        memory.node = target.map(|node| (node, now));
                    });
                    return Ok(self.arrived());
                }
            }
            Some((_, upid, Err(error))) => return Err(self.aborted(&upid, &error).await),
            None => {}
        }
        let Some(row) = self.row(&view).await? else {
            let text = format!("guest {} does not exist", intent.guest);
            return Err(failed(Failure::Lost, text));
        };
        if !self.record.begun {
            self.may_map_storage(intent, &row)?;
        }
        let Some(target) = self.record.target.clone() else {
            self.would_stay(intent, &view, &row).await?;
            return self.choose_target(intent, &view, &row).await;
        };
        if row.node == target {
            return Ok(self.arrived());
        }
        if self.record.begun && row.lock.as_deref() == Some("migrate") {
            return Ok(self.wait(
                Waiting::Locked,
                "the guest is moving",
                Duration::from_secs(5),
            ));
        }
        let asked = self.cluster.memory(self.owner, |memory| memory.asked_ha);
        if asked.is_some_and(|at| at.elapsed() < HA_PATIENCE) {
            let text = "high availability is moving the guest";
            return Ok(self.wait(Waiting::Locked, text, HA_PAUSE));
        }
        if !view.node_online(&target) {
            if intent.target.is_none() && !self.record.begun {
                // It was only chosen: another one will do as well.
                self.cluster.state().holds.remove(&self.guest);
                self.record.target = None;
                return Ok(Outcome::Persist);
            }
            let text = format!("node {target} is down");
            return Err(self.wait(Waiting::NodeDown, text, Duration::from_secs(30)));
        }
        let Some(config) = self.checked(&row).await? else {
            return Err(not_meant(intent));
        };
        self.may_go(intent, &config, &view, &row.node)?;
        if has_local_seed(&config, &view, &row.node) {
            let text = "its first-boot image is on a storage of this node alone, and in its drive until the guest has read it";
            return Err(self.wait(Waiting::Guest, text, Duration::from_secs(15)));
        }
        self.free(&row)?;
        self.may_leave_with_snapshots(&view, &row).await?;
        self.enter_for(StepKind::Migrate, &row.node)?;
        let running = row.power == PowerFact::Running;
        let message = format!(
            "moving guest {} from {} to {target}",
            intent.guest, row.node
        );
        let node = self.cluster.client.node(&row.node);
        let storage = intent.target_storage.as_ref().map(ToString::to_string);
        let sent = match row.kind {
            GuestKind::Qemu => {
                let mut how = MigrateQemu::online(target);
                how.online = intent.online && running;
                how.with_local_disks = intent.with_local_disks;
                how.targetstorage = storage;
                node.qemu(intent.guest).migrate(&how).await
            }
            GuestKind::Lxc => {
                let mut how = MigrateLxc::restart(target);
                how.restart = running;
                how.target_storage = storage;
                node.lxc(intent.guest).migrate(&how).await
            }
        };
        self.sent(StepKind::Migrate, &message, sent)
    }

    /// A move that failed. Proxmox VE says only that it was aborted; the log of the task says why.
    async fn aborted(&mut self, upid: &Upid, error: &pve::Error) -> Outcome {
        let lines = self.cluster.client.task_log(upid, 0, log::LINES).await;
        let lines = lines.unwrap_or_default();
        let obstacles = log::obstacles(&lines);
        if log::has_stopped(&lines) && !log::is_interrupted(error, &lines) {
            return self.stopped_in_vain(&lines, &obstacles, error);
        }
        if obstacles.is_empty() {
            return self.trouble("moving the guest", error);
        }
        let text = format!(
            "the guest cannot be moved: {obstacles}; put it right and ask for another move"
        );
        self.events.push(Event::warning("CannotMove", text.clone()));
        self.let_go();
        failed(Failure::Unsupported, text)
    }

    /// A container that was stopped for a move that failed. Whatever it failed of, another try would stop it once more.
    fn stopped_in_vain(
        &mut self,
        lines: &[String],
        obstacles: &str,
        error: &pve::Error,
    ) -> Outcome {
        let why = match (obstacles, log::complaint(lines)) {
            ("", Some(why)) => why.to_owned(),
            ("", None) => trouble::line(error),
            (obstacles, _) => obstacles.to_owned(),
        };
        let mut text = format!(
            "container {} was shut down to be moved, and the move failed: {why}; it is not tried again by itself, because that \
             would stop the container once more: see to what failed and ask for another move",
            self.guest
        );
        if log::has_left_copies(lines) {
            text.push_str("; the log of the move names copies of volumes that it left behind");
        }
        self.events.push(Event::warning("CannotMove", text.clone()));
        self.let_go();
        failed(Failure::GaveUp, text)
    }

    fn arrived(&mut self) -> Outcome {
        self.record.done = true;
        self.record.facts.node.clone_from(&self.record.target);
        let node = self
            .record
            .target
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        self.event("Moved", format!("guest {} is on {node}", self.guest));
        Outcome::Settled
    }

    async fn choose_target(
        &mut self,
        intent: &MigrationIntent,
        view: &View,
        row: &GuestRow,
    ) -> Flow<Outcome> {
        let target = match &intent.target {
            Some(target) if view.nodes.contains_key(target) => target.clone(),
            Some(target) => {
                return Err(failed(
                    Failure::Invalid,
                    format!("target: the cluster has no node '{target}'"),
                ));
            }
            None => self.find_target(intent, view, row).await?,
        };
        self.event(
            "Placed",
            format!("guest {} goes from {} to {target}", intent.guest, row.node),
        );
        self.record.target = Some(target);
        self.hold(row);
        Ok(Outcome::Persist)
    }

    /// The node that fits best, with its share held at once: whoever leaves the same node together sees where the others go.
    async fn find_target(
        &mut self,
        intent: &MigrationIntent,
        view: &View,
        row: &GuestRow,
    ) -> Flow<NodeName> {
        if intent.placement.fit_numa {
            let learned = self.cluster.learn_sockets(view).await;
            learned.map_err(|error| self.trouble("reading the sockets of nodes", &error))?;
        }
        let Some(config) = self.checked(row).await? else {
            return Err(not_meant(intent));
        };
        self.may_go(intent, &config, view, &row.node)?;
        let mut wishes = self.cluster.wishes(&intent.placement);
        wishes.avoid.push(row.node.clone());
        let named = devices::named(&config);
        if !named.is_empty() {
            let learned = devices::learn(self.cluster).await;
            learned.map_err(|error| self.trouble("reading the mappings of devices", &error))?;
        }
        let mut ask = Ask {
            cpus: row.processors(),
            memory: row.memory,
            devices: devices::places(&self.cluster.state(), &named),
            bridges: intent.bridges.clone(),
            ignore: Some(intent.guest),
            ..Ask::default()
        };
        for (storage, size) in disks(&config) {
            let local = view.storage(&storage, &row.node);
            match local.filter(|there| !there.shared) {
                Some(_) => {
                    let to = intent.target_storage.as_ref().unwrap_or(&storage);
                    ask.disk(view, to, size, false);
                }
                // What is shared stays where it is, and has only to be seen from there.
                None => drop(ask.space.entry(storage).or_default()),
            }
        }
        let placed = {
            let mut state = self.cluster.state();
            let placed = place::place(view, &state.holds, &state.sockets, &wishes, &ask);
            if let Ok(choice) = &placed {
                let mut hold = moving(row, choice.node.clone());
                hold.space.clone_from(&ask.space);
                state.holds.insert(intent.guest, hold);
            }
            placed
        };
        match placed {
            Ok(choice) => Ok(choice.node),
            Err(none) => {
                Err(self.wait(Waiting::Capacity, none.to_string(), Duration::from_secs(15)))
            }
        }
    }

    /// Refuses to let high availability move disks to another storage: PVE hands it the node alone and drops the rest.
    fn may_map_storage(&mut self, intent: &MigrationIntent, row: &GuestRow) -> Flow<()> {
        let managed = row.ha.as_deref().is_some_and(|state| state != "ignored");
        if intent.target_storage.is_none() || !managed {
            return Ok(());
        }
        let text = format!(
            "targetStorage: guest {} is under high availability, which moves it and leaves its disks where they are; ask for \
             another move without it, or take the guest out of high availability first",
            intent.guest
        );
        self.events.push(Event::warning("CannotMove", text.clone()));
        self.let_go();
        Err(failed(Failure::Unsupported, text))
    }

    /// Refuses to move disks away from where they are declared, since they would be moved back.
    async fn would_stay(
        &mut self,
        intent: &MigrationIntent,
        view: &View,
        row: &GuestRow,
    ) -> Flow<()> {
        let Some(to) = &intent.target_storage else {
            return Ok(());
        };
        if intent.declared.iter().all(|declared| declared == to) {
            return Ok(());
        }
        let Some(config) = self.checked(row).await? else {
            return Err(not_meant(intent));
        };
        let all = volumes(&config).into_iter();
        let back = all.filter_map(|(key, volume)| {
            let on = storage_of(&volume)?;
            let local = view.storage(&on, &row.node).is_some_and(|row| !row.shared);
            (local && on != *to && intent.declared.contains(&on)).then_some((key, on))
        });
        let Some((key, on)) = back.into_iter().next() else {
            return Ok(());
        };
        let text = format!(
            "targetStorage: {key} is declared to be on {on}, and would be moved back there from {to}: declare {to} where {on} is \
             declared, which moves it, or ask for a move without targetStorage"
        );
        self.events.push(Event::warning("CannotMove", text.clone()));
        self.let_go();
        Err(failed(Failure::Unsupported, text))
    }

    /// Refuses to copy disks that nobody said shall be copied. PVE asks that of running machines only.
    fn may_go(
        &mut self,
        intent: &MigrationIntent,
        config: &GuestConfig,
        view: &View,
        node: &NodeName,
    ) -> Flow<()> {
        let local = |volume: &str| {
            let row = storage_of(volume).and_then(|storage| view.storage(&storage, node));
            row.is_some_and(|row| !row.shared)
        };
        let all = volumes(config).into_iter();
        let local: Vec<String> = all
            .filter(|(_, volume)| local(volume))
            .map(|(key, volume)| format!("{key} ({volume})"))
            .collect();
        if intent.with_local_disks || local.is_empty() {
            return Ok(());
        }
        let text = format!(
            "withLocalDisks: is off, and {node} alone has {}; ask for another move with it on, or move these to shared \
             storage first",
            local.join(", ")
        );
        self.events.push(Event::warning("CannotMove", text.clone()));
        self.let_go();
        Err(failed(Failure::Unsupported, text))
    }

    /// Refuses to move a running container whose snapshots cannot go along: PVE stops it before it looks at them.
    async fn may_leave_with_snapshots(&mut self, view: &View, row: &GuestRow) -> Flow<()> {
        if row.kind != GuestKind::Lxc || row.power == PowerFact::Stopped {
            return Ok(());
        }
        let stays = |volume: &str| {
            let row = storage_of(volume).and_then(|storage| view.storage(&storage, &row.node));
            row.is_some_and(|row| !row.shared && !CARRY_SNAPSHOTS.contains(&row.kind.as_str()))
        };
        let handle = self.handle(row);
        let list = match handle.snapshots().await {
            Ok(list) => list,
            Err(error) => return Err(self.trouble("listing snapshots", &error)),
        };
        for snapshot in list.iter().filter(|snapshot| !snapshot.is_current()) {
            let config = match handle.config(ConfigView::Snapshot(&snapshot.name)).await {
                Ok(config) => config,
                Err(error) => return Err(self.trouble("reading a snapshot", &error)),
            };
            let all = volumes(&config);
            let Some((key, volume)) = all.iter().find(|(_, volume)| stays(volume)) else {
                continue;
            };
            let text = format!(
                "the container cannot be moved with snapshot '{}' of {key} ({volume}), which storage of {} alone does not let go \
                 along: remove the snapshot, or move that to shared storage, and ask for another move",
                snapshot.name, row.node
            );
            self.events.push(Event::warning("CannotMove", text.clone()));
            self.let_go();
            return Err(failed(Failure::Unsupported, text));
        }
        Ok(())
    }

    /// Holds the share of the node the guest goes to, for as long as the move is asked for and not to be seen.
    fn hold(&self, row: &GuestRow) {
        let Some(target) = self.record.target.clone().filter(|node| *node != row.node) else {
            return;
        };
        let fresh = moving(row, target);
        let mut state = self.cluster.state();
        let hold = state
            .holds
            .entry(self.guest)
            .or_insert_with(|| fresh.clone());
        if hold.node == fresh.node {
            hold.moving = fresh.moving;
        } else {
            *hold = fresh;
        }
    }

    /// The guest does not go there after all.
    fn let_go(&self) {
        let mut state = self.cluster.state();
        if state
            .holds
            .get(&self.guest)
            .is_some_and(|hold| hold.moving.is_some())
        {
            state.holds.remove(&self.guest);
        }
    }
}

fn not_meant(intent: &MigrationIntent) -> Outcome {
    let text = format!("guest {} is not the one that was meant", intent.guest);
    failed(Failure::Foreign, text)
}

/// Whether a first-boot image of ours holds the guest where it is: PVE moves no disc of a local storage.
pub(super) fn has_local_seed(config: &GuestConfig, view: &View, node: &NodeName) -> bool {
    let seeds = config.iter().filter(|(_, value)| is_seed(value));
    let mut storages = seeds.filter_map(|(_, value)| storage_of(value));
    storages.any(|storage| {
        let row = view.storage(&storage, node);
        row.is_none_or(|row| !row.shared)
    })
}

/// The share of a node that a guest on its way there will have.
fn moving(row: &GuestRow, to: NodeName) -> Hold {
    let running = row.power != PowerFact::Stopped;
    Hold {
        node: Some(to),
        cpus: if running { row.processors() } else { 0 },
        memory: if running { row.memory } else { Size::ZERO },
        tags: row.tags.clone(),
        moving: Some(Moving {
            from: row.node.clone(),
            asked: Instant::now(),
        }),
        ..Hold::default()
    }
}

/// The storages of a guest's disks, and how large these are.
fn disks(config: &GuestConfig) -> Vec<(StorageId, Size)> {
    let all = volumes(config).into_iter();
    all.filter_map(|(key, volume)| {
        let storage = storage_of(&volume)?;
        let size = Prop::parse(&key, config.get(&key)?)
            .get("size")
            .and_then(Size::from_pve);
        Some((storage, size.unwrap_or_default()))
    })
    .collect()
}
