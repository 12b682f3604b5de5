//! Moving guests.

use std::time::Duration;

use pve::{
    GuestConfig, GuestKind,
    api::guest::migrate::{MigrateLxc, MigrateQemu},
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
    view::{GuestRow, View},
};

/// How much of a log is read; what stands in the way comes before anything is copied.
const LOG_LINES: u64 = 200;

/// How the log of a move begins to say what cannot go along.
const OBSTACLES: [&str; 5] = [
    "can't migrate local",
    "can't migrate '",
    "can't migrate to '",
    "can't live migrate",
    "VMs with 'clipboard'",
];

/// What the log of a move says about what cannot go along; nothing if it failed otherwise.
fn obstacles(log: &[String]) -> String {
    let said = log.iter().filter_map(|line| {
        let at = OBSTACLES.iter().find_map(|words| line.find(words))?;
        Some(line[at..].trim_end())
    });
    let mut all: Vec<&str> = said.collect();
    all.dedup();
    all.join("; ")
}

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
        self.enter(&row.node)?;
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
        let log = self.cluster.client.task_log(upid, 0, LOG_LINES).await;
        let obstacles = obstacles(&log.unwrap_or_default());
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

#[cfg(test)]
mod tests {
    use super::obstacles;

    #[test]
    fn a_log_says_what_stands_in_the_way_of_a_move() {
        let lines = [
            "2026-01-01 00:00:01 starting migration of VM 101 to node 'pve3' (192.0.2.3)",
            "2026-01-01 00:00:01 can't migrate local disk 'local-lvm:vm-101-disk-0': non-migratable snapshot exists",
            "2026-01-01 00:00:01 ERROR: Problem found while scanning volumes - can't migrate VM - check log",
        ];
        assert_eq!(
            obstacles(&lines.map(str::to_owned)),
            "can't migrate local disk 'local-lvm:vm-101-disk-0': non-migratable snapshot exists"
        );
        assert_eq!(obstacles(&["ERROR: no route to host".to_owned()]), "");
        let mapped = "2026-01-01 00:00:01 ERROR: migration aborted (duration 00:00:00): can't live migrate running VM which uses \
                      following mapped devices: hostpci0:gpu";
        let told = obstacles(&[mapped.to_owned()]);
        assert!(
            told.ends_with("hostpci0:gpu") && told.starts_with("can't"),
            "{told}"
        );
    }
}
