//! Moving guests.

use std::time::Duration;

use pve::{
    GuestKind,
    api::guest::migrate::{MigrateLxc, MigrateQemu},
};

use super::{Act, Flow, failed};
use crate::{
    Failure, Outcome, PowerFact, Waiting,
    intent::{MigrationIntent, Placement},
    place::{self, Ask},
    record::StepKind,
    view::{GuestRow, View},
};

impl Act<'_> {
    pub(super) async fn migrate(&mut self, intent: &MigrationIntent) -> Flow<Outcome> {
        if self.record.done {
            return Ok(Outcome::Settled);
        }
        let view = self.view()?;
        match self.settle()? {
            Some((_, upid, Ok(_))) => {
                let target = self.record.target.clone();
                // A guest under high availability moves some time after the task has ended.
                if !upid.kind().starts_with("ha") {
                    self.unsettle_guest(|memory, now| {
                        memory.node = target.map(|node| (node, now));
                    });
                    return Ok(self.arrived());
                }
            }
            Some((_, _, Err(error))) => return Err(self.trouble("moving the guest", &error)),
            None => {}
        }
        let Some(row) = self.row(&view).await? else {
            let text = format!("guest {} does not exist", intent.guest);
            return Err(failed(Failure::Lost, text));
        };
        let Some(target) = self.record.target.clone() else {
            return self.choose_target(intent, &view, &row);
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
        if !view.node_online(&target) {
            let text = format!("node {target} is down");
            return Err(self.wait(Waiting::NodeDown, text, Duration::from_secs(30)));
        }
        if self.checked(&row).await?.is_none() {
            let text = format!("guest {} is not the one that was meant", intent.guest);
            return Err(failed(Failure::Foreign, text));
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

    fn choose_target(
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
            None => {
                let wishes = Placement {
                    avoid: vec![row.node.clone()],
                    ..Placement::default()
                };
                let ask = Ask {
                    cpus: row.processors(),
                    memory: row.memory,
                    ignore: Some(intent.guest),
                    ..Ask::default()
                };
                let placed = {
                    let state = self.cluster.state();
                    place::place(view, &state.holds, &state.sockets, &wishes, &ask)
                };
                match placed {
                    Ok(choice) => choice.node,
                    Err(none) => {
                        return Err(self.wait(
                            Waiting::Capacity,
                            none.to_string(),
                            Duration::from_secs(15),
                        ));
                    }
                }
            }
        };
        self.event(
            "Placed",
            format!("guest {} goes from {} to {target}", intent.guest, row.node),
        );
        self.record.target = Some(target);
        Ok(Outcome::Persist)
    }
}
