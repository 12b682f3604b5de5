//! Going back to a snapshot.
//!
//! What was written since is lost by it, so it is done once for each time it is asked for: an answer that was lost, a task that PVE
//! has forgotten and somebody else's revert are told apart by the guest itself.

use std::{collections::BTreeSet, time::Duration};

use pve::{
    GuestConfig, GuestKind, SnapshotName,
    api::guest::snapshot::Snapshot,
    task::{Source, TaskEntry, TaskFilter},
};

use super::{Act, Flow, failed};
use crate::{
    Event, Failure, NodeName, Outcome, Owner, Upid, Waiting,
    cluster::GuestMemory,
    intent::{SnapshotIntent, SnapshotWish},
    record::{InFlight, Reverting, StepKind},
    view::{GuestRow, View},
};

/// What was seen of a guest that is to go back.
pub(super) struct Seen<'a> {
    pub(super) view: &'a View,
    pub(super) row: &'a GuestRow,
    pub(super) config: Option<&'a GuestConfig>,
    pub(super) list: &'a [Snapshot],
}

impl Act<'_> {
    /// Takes the guest back, unless it was.
    pub(super) async fn revert(
        &mut self,
        intent: &SnapshotIntent,
        name: &SnapshotName,
        (generation, start): (u64, bool),
        seen: &Seen<'_>,
    ) -> Flow<Outcome> {
        let &Seen {
            view,
            row,
            config,
            list,
        } = seen;
        let known = self
            .cluster
            .memory(self.owner, |memory| memory.in_the_way.clone());
        if let Some((_, text)) = known.filter(|(known, _)| *known == names(list)) {
            return Err(self.wait(Waiting::InUse, text, Duration::from_mins(2)));
        }
        // A guest that is being moved is asked for on the wrong node.
        self.free(row)?;
        let begun = self.record.reverting.clone();
        let Some(begun) = begun.filter(|begun| begun.is_for(self.kept_by(), generation)) else {
            return self.begin_revert(generation, row, config).await;
        };
        let there = begun.node.as_ref().unwrap_or(&row.node);
        let tells = view.node_online(there);
        let newest = if tells {
            self.newest_rollback(there, row.kind).await?
        } else {
            None
        };
        let news = newest.filter(|it| Some(&it.upid) != begun.before.as_ref());
        let since = news.as_ref().map_or(u64::MAX, |it| it.upid.starttime());
        let taken = config.and_then(|config| {
            let from = config.get("parent");
            let from = went_on_from(list, from, since, &intent.name);
            was_taken_back(Some(&begun), config, (from, &intent.name), list)
        });
        match (news, taken) {
            (Some(task), _) if task.is_running() => {
                let text = format!("guest {} is being taken back", intent.guest);
                return Err(self.wait(Waiting::Locked, text, Duration::from_secs(2)));
            }
            // However its task ended, which may be another one's.
            (_, Some(true)) => {
                let keeper = self.kept_by().cloned();
                return Ok(self.reverted(intent, view, (generation, keeper)).await);
            }
            (Some(task), None) => return Ok(self.found_rollback(&task.upid)),
            // Somebody else's, to another snapshot, or one that failed. The guest may have been read before its end.
            (Some(task), Some(false)) => {
                self.record.reverting = Some(Reverting {
                    before: Some(task.upid),
                    ..begun
                });
                return Ok(Outcome::Persist);
            }
            (None, None) if !tells => {
                let text = format!(
                    "node {there} is down, and nothing else tells whether guest {} was taken back to '{}' before it came to \
                     {}; look at it, and ask again if it was not",
                    intent.guest, intent.name, row.node
                );
                return Err(failed(Failure::Uncertain, text));
            }
            (None, _) if *there != row.node => {
                return self.begin_revert(generation, row, config).await;
            }
            (None, _) => {}
        }
        self.heard()?;
        self.enter(&row.node)?;
        let message = format!("taking guest {} back to '{}'", intent.guest, intent.name);
        // Who keeps the guest starts it, after what the snapshot brought back was put right.
        let start = start && self.guest_owner.is_none();
        let sent = self.handle(row).rollback(name, start).await;
        self.sent(StepKind::Rollback, &message, sent)
    }

    /// Notes what stands in the way: nothing is tried again before that has changed.
    pub(super) fn note_hindrance(
        &mut self,
        intent: &SnapshotIntent,
        list: &[Snapshot],
        error: &pve::Error,
    ) {
        let text = in_the_way(list, &intent.name, error);
        let known = Some((names(list), text));
        self.cluster
            .memory(self.owner, |memory| memory.in_the_way = known);
    }

    /// Takes note of how the guest is before it is taken back, to know afterwards whether it was.
    async fn begin_revert(
        &mut self,
        generation: u64,
        row: &GuestRow,
        config: Option<&GuestConfig>,
    ) -> Flow<Outcome> {
        let newest = self.newest_rollback(&row.node, row.kind).await?;
        let parent = config.and_then(|config| config.get("parent"));
        self.record.reverting = Some(Reverting {
            generation,
            keeper: self.kept_by().cloned(),
            before: newest.map(|it| it.upid),
            node: Some(row.node.clone()),
            parent: parent.map(str::to_owned),
            genid: config.and_then(genid).map(str::to_owned),
        });
        Ok(Outcome::Persist)
    }

    /// The guest was taken back.
    pub(super) async fn reverted(
        &mut self,
        intent: &SnapshotIntent,
        view: &View,
        (generation, keeper): (u64, Option<Owner>),
    ) -> Outcome {
        self.record.reverting = None;
        self.record.reverted = generation;
        self.record.reverted_for = keeper;
        self.event(
            "Reverted",
            format!("guest {} is back at '{}'", intent.guest, intent.name),
        );
        let power = self.power_now(view).await;
        self.unsettle_guest(|memory, now| {
            memory.power = power.map(|power| (power, now));
            memory.guest = GuestMemory::default();
        });
        Outcome::Settled
    }

    /// The newest task that took the guest back to a snapshot, running or not.
    async fn newest_rollback(
        &mut self,
        node: &NodeName,
        kind: GuestKind,
    ) -> Flow<Option<TaskEntry>> {
        let kind = match kind {
            GuestKind::Qemu => "qmrollback",
            GuestKind::Lxc => "vzrollback",
        };
        let filter = TaskFilter {
            vmid: Some(self.guest),
            kind: Some(kind.to_owned()),
            source: Source::All,
            limit: Some(1),
            ..TaskFilter::default()
        };
        match self.cluster.client.node(node).tasks(&filter).await {
            Ok(list) => Ok(list.into_iter().next()),
            Err(error) => Err(self.trouble("looking for reverts", &error)),
        }
    }

    /// A revert was carried out, and only its answer was lost.
    fn found_rollback(&mut self, upid: &Upid) -> Outcome {
        let step = StepKind::Rollback;
        let message = format!("{} ({upid})", super::reason(step));
        let task = self.cluster.started(self.owner, step, upid);
        self.record.in_flight.push(task);
        Outcome::Working { step, message }
    }

    /// PVE does not know any more how the task ended that took the guest back, or knows that it failed, which it may have done
    /// afterwards. To do it again would throw away what was written since, so the guest itself is asked. What it cannot tell of a
    /// task that nobody saw end is not guessed.
    pub(super) async fn doubtful_rollback(
        &mut self,
        intent: &SnapshotIntent,
        view: &View,
        upid: &Upid,
        error: &pve::Error,
    ) -> Flow<bool> {
        // Until that is known, it is not forgotten here as well.
        self.record.in_flight = vec![InFlight {
            step: StepKind::Rollback,
            upid: upid.clone(),
        }];
        let begun = self.record.reverting.clone();
        let wanted = match (intent.wish, &begun) {
            (SnapshotWish::Reverted { generation, .. }, Some(begun)) => {
                begun.is_for(self.kept_by(), generation)
            }
            (SnapshotWish::Reverted { .. }, None) => true,
            _ => false,
        };
        let mut done = Some(false);
        if wanted
            && let Some(row) = self.row(view).await?
            && let Some(config) = self.checked(&row).await?
        {
            if matches!(error, pve::Error::OutcomeUnknown { .. }) {
                // A task that died leaves its lock.
                self.free(&row)?;
            }
            let list = match self.handle(&row).snapshots().await {
                Ok(list) => list,
                Err(error) => return Err(self.trouble("listing snapshots", &error)),
            };
            let from = config.get("parent");
            let from = went_on_from(&list, from, upid.starttime(), &intent.name);
            done = was_taken_back(begun.as_ref(), &config, (from, &intent.name), &list);
        }
        let unseen = matches!(
            error,
            pve::Error::OutcomeUnknown { .. } | pve::Error::Interrupted { .. }
        );
        if done.is_none() && unseen {
            let text = format!(
                "{error}, and nothing about guest {} tells whether it was taken back to '{}'; look at it, and ask again if it \
                 was not",
                intent.guest, intent.name
            );
            return Err(failed(Failure::Uncertain, text));
        }
        self.record.in_flight.clear();
        let done = done == Some(true);
        if done {
            self.events.push(Event::warning(
                "RevertDoubtful",
                format!(
                    "{error}; but guest {} shows that it was taken back to '{}'",
                    intent.guest, intent.name
                ),
            ));
        }
        Ok(done)
    }
}

fn names(list: &[Snapshot]) -> BTreeSet<String> {
    let kept = list.iter().filter(|snapshot| !snapshot.is_current());
    kept.map(|snapshot| snapshot.name.clone()).collect()
}

/// Why a guest cannot go back to a snapshot: some storages cannot go back past a newer one.
fn in_the_way(list: &[Snapshot], to: &str, error: &pve::Error) -> String {
    let taken = |snapshot: &&Snapshot| snapshot.snaptime.unwrap_or_default();
    let at = list.iter().find(|snapshot| snapshot.name == to);
    let at = at.as_ref().map_or(0, taken);
    let newer = list
        .iter()
        .filter(|snapshot| !snapshot.is_current() && taken(snapshot) > at);
    let newer: Vec<&str> = newer.map(|snapshot| snapshot.name.as_str()).collect();
    let newer = newer.join(", ");
    format!("{error}: delete the newer ones first ({newer}), whose state is lost by going back")
}

/// The snapshot that a guest went on from at a moment: those that were taken of it since are passed over, but not the one that
/// is asked for.
fn went_on_from<'a>(
    list: &'a [Snapshot],
    mut from: Option<&'a str>,
    since: u64,
    wanted: &str,
) -> Option<&'a str> {
    while let Some(name) = from.filter(|name| *name != wanted) {
        let snapshot = list.iter().find(|it| it.name == name)?;
        if snapshot.snaptime.is_none_or(|taken| taken < since) {
            break;
        }
        from = snapshot.parent.as_deref();
    }
    from
}

/// The generation of a guest that is given a new one whenever it is taken back.
fn genid(config: &GuestConfig) -> Option<&str> {
    // Zero switches that off.
    config.get("vmgenid").filter(|genid| *genid != "0")
}

/// Whether a guest was taken back to a snapshot since the revert was begun. PVE gives it a new generation whenever it does; one
/// without generations says only what snapshot it goes on from, which may have been the same one before, or has become it because
/// the one between them was removed.
fn was_taken_back(
    begun: Option<&Reverting>,
    now: &GuestConfig,
    (from, to): (Option<&str>, &str),
    list: &[Snapshot],
) -> Option<bool> {
    let from_it = from == Some(to);
    let Some(begun) = begun else {
        return Some(from_it);
    };
    if let (Some(then), Some(now)) = (begun.genid.as_deref(), genid(now)) {
        return Some(from_it && then != now);
    }
    let parent = begun.parent.as_deref();
    let removed = parent.is_some_and(|parent| !list.iter().any(|it| it.name == parent));
    let before = parent == Some(to) || removed;
    (!before || !from_it).then_some(from_it)
}
