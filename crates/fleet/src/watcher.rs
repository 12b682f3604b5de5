//! Looking at one cluster.
//!
//! One list of everything at PVE's own rhythm, whatever the number of guests; one list of tasks while
//! any of ours is under way. What changed wakes its owner. At rest this is a fifth of a request per
//! second, and now and then one guest's configuration is read again and itself asked for its addresses, in
//! turn, to find changes the list does not show.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use pve::{
    GuestKind,
    api::cluster::{Member, Resource},
    task::{Source, TaskFilter},
};
use tokio::time::Instant;

use crate::{
    NodeName, Owner, Size, StorageId, Upid, Vmid,
    cluster::{Cluster, State},
    facts::{PowerFact, Space},
    gate::End,
    guest::{LAG, ready::Again, seed::UPLOAD},
    tasks::{Ended, Question},
    trouble,
    view::{GuestRow, NodeRow, StorageRow, View},
};

/// PVE gathers its numbers this often, each node at a moment of its own.
pub(crate) const RHYTHM: Duration = Duration::from_secs(10);

/// What PVE calls the task that shuts a machine down.
const SHUTDOWN: &str = "qmshutdown";

/// After so long without a look nothing is known of who the guests are.
const BLIND: Duration = Duration::from_mins(1);

/// How long is waited for what a node says of its tasks. Nothing else is looked at meanwhile, and it is asked again anyway.
const PROMPT: Duration = Duration::from_secs(5);

/// Watches until the cluster is disconnected.
pub(crate) async fn watch(cluster: Arc<Cluster>) {
    let mut looked = None;
    let mut audit = Instant::now() + cluster.options.audit_interval;
    loop {
        let due = looked.is_none_or(|at: Instant| at.elapsed() >= pause(&cluster));
        if due || take_refresh(&cluster) {
            look(&cluster).await;
            looked = Some(Instant::now());
        }
        if cluster
            .state()
            .tasks
            .due()
            .is_some_and(|due| due <= Instant::now())
        {
            ask_for_tasks(&cluster).await;
        }
        fire_timers(&cluster);
        if Instant::now() >= audit {
            doubt_one(&cluster);
            audit = Instant::now() + cluster.options.audit_interval;
        }
        // What a look has set off may have begun since.
        let round = looked.unwrap_or_else(Instant::now) + pause(&cluster);
        let next = {
            let state = cluster.state();
            let timers = state.timers.values().min().copied();
            [Some(round), Some(audit), state.tasks.due(), timers]
                .into_iter()
                .flatten()
                .min()
        };
        tokio::select! {
            biased;
            () = cluster.stop.cancelled() => return,
            () = cluster.poke.notified() => {}
            () = tokio::time::sleep_until(next.unwrap_or(round)) => {}
        }
    }
}

/// How long until everything is looked at again. What people change shows the sooner the more often that is; while something of
/// ours is under way it is asked for anyway, and every look would be a part of what it costs.
fn pause(cluster: &Cluster) -> Duration {
    let state = cluster.state();
    let busy = !state.timers.is_empty() || state.boots.are_waited_for();
    if busy || state.tasks.due().is_some() {
        RHYTHM
    } else {
        RHYTHM / 2
    }
}

fn take_refresh(cluster: &Cluster) -> bool {
    std::mem::take(&mut cluster.state().refresh)
}

fn fire_timers(cluster: &Cluster) {
    let now = Instant::now();
    let mut due: Vec<Owner> = Vec::new();
    cluster.state().timers.retain(|owner, at| {
        let fires = *at <= now;
        if fires {
            due.push(owner.clone());
        }
        !fires
    });
    cluster.wake(&due);
}

/// Picks the next guest in turn to have its configuration read again.
fn doubt_one(cluster: &Cluster) {
    let next = {
        let mut state = cluster.state();
        let after = state.audited.clone();
        let settled = |state: &State, owner: &Owner| {
            state
                .guests
                .get(owner)
                .is_some_and(|memory| memory.vmid.is_some())
        };
        let mut owners = state.guests.keys().cloned().collect::<Vec<_>>();
        owners.retain(|owner| settled(&state, owner));
        let next = owners
            .iter()
            .find(|owner| after.as_ref().is_none_or(|after| *owner > after))
            .or(owners.first())
            .cloned();
        if let Some(owner) = &next
            && let Some(memory) = state.guests.get_mut(owner)
        {
            memory.doubt = true;
            if memory.guest.answered {
                // Addresses come and go, and nobody tells.
                memory.guest.again.get_or_insert_with(Again::once);
            }
        }
        state.audited.clone_from(&next);
        next
    };
    cluster.wake(&next.into_iter().collect::<Vec<_>>());
}

/// One look at everything.
async fn look(cluster: &Arc<Cluster>) {
    let asked = Instant::now();
    let known = cluster.state().release;
    if known.is_none() {
        match cluster.client.version().await {
            Ok(version) => {
                let mut state = cluster.state();
                state.release = Some(version.numbers());
                state.facts.version = Some(version.version);
            }
            Err(error) => return unreachable(cluster, error),
        }
    }
    match cluster.client.cluster().gather::<Rows>().await {
        Ok(rows) => {
            let mut view = View {
                asked,
                guests: rows.guests,
                nodes: rows.nodes,
                storages: rows.storages,
                bridges: BTreeMap::new(),
            };
            if let Some(text) = stranger(cluster, &view) {
                return turned_away(cluster, text);
            }
            match is_cut_off(cluster, &view).await {
                Ok(false) => {}
                Ok(true) => keep_members(cluster, &mut view),
                Err(error) => return unreachable(cluster, error),
            }
            seen(cluster, view);
            give_up_left_behind(cluster);
        }
        Err(error) => unreachable(cluster, error),
    }
}

/// What to say if the view is not one of the cluster that was known: nodes come and go one by one, so some of those that were
/// there are. Nothing that is missing from another cluster is gone.
fn stranger(cluster: &Cluster, view: &View) -> Option<String> {
    let before = cluster.view();
    let known: BTreeSet<&NodeName> = match &before {
        Some(before) => before.nodes.keys().collect(),
        None => cluster.options.known.iter().collect(),
    };
    let nothing = known.is_empty() || view.nodes.is_empty();
    if nothing || view.nodes.keys().any(|node| known.contains(node)) {
        return None;
    }
    let list = |nodes: &mut dyn Iterator<Item = &NodeName>| {
        let nodes: Vec<&str> = nodes.map(NodeName::as_str).collect();
        nodes.join(", ")
    };
    Some(format!(
        "another cluster answers, with {} for nodes and none of {}: nothing is done on it",
        list(&mut view.nodes.keys()),
        list(&mut known.into_iter())
    ))
}

fn turned_away(cluster: &Cluster, text: String) {
    let mut state = cluster.state();
    state.problem = None;
    state.facts.reachable = false;
    state.facts.refused = false;
    state.facts.stranger = true;
    state.facts.problem = Some(text.clone());
    state.stranger = Some(text);
    let facts = Arc::new(state.facts.clone());
    drop(state);
    publish(cluster, facts);
}

/// Whether a node that shows itself alone may have lost sight of its cluster: then it does not know that it is part of one, and
/// nothing has left that it does not show.
async fn is_cut_off(cluster: &Cluster, view: &View) -> pve::Result<bool> {
    let before = cluster.view();
    let had_others = before.is_some_and(|before| before.nodes.len() > 1);
    let shows_others = || {
        view.guests
            .values()
            .any(|row| !view.nodes.contains_key(&row.node))
    };
    if view.nodes.len() > 1 || !(had_others || shows_others()) {
        return Ok(false);
    }
    match cluster.client.cluster().status().await {
        Ok(members) => {
            let mut members = members.iter();
            Ok(!members.any(|it| matches!(it, Member::Cluster { .. })))
        }
        // Who may not ask does not know.
        Err(pve::Error::Denied { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Takes the nodes that were there, or that guests are said to be on, for down, and not for gone.
fn keep_members(cluster: &Cluster, view: &mut View) {
    let before = cluster.view();
    let before = before.iter().flat_map(|before| before.nodes.keys());
    let named = view.guests.values().map(|row| &row.node);
    let missing: BTreeSet<NodeName> = before.chain(named).cloned().collect();
    for node in missing {
        view.nodes.entry(node).or_insert(NodeRow::DOWN);
    }
}

fn unreachable(cluster: &Cluster, error: pve::Error) {
    let mut state = cluster.state();
    state.facts.reachable = false;
    state.facts.problem = Some(trouble::line(&error));
    state.facts.stranger = false;
    state.facts.refused = matches!(error, pve::Error::Unauthenticated { .. });
    state.problem = Some(error);
    let facts = Arc::new(state.facts.clone());
    drop(state);
    publish(cluster, facts);
}

pub(crate) fn publish(cluster: &Cluster, facts: Arc<crate::ClusterFacts>) {
    cluster.published.send_if_modified(|old| {
        let changed = **old != *facts;
        *old = facts;
        changed
    });
}

fn seen(cluster: &Cluster, view: View) {
    let mut state = cluster.state();
    let mut wake: Vec<Owner> = Vec::new();
    let stranger = state.stranger.take();
    if state.problem.take().is_some() || stranger.is_some() {
        wake.extend(std::mem::take(&mut state.stranded));
    }
    let before = state.view.take();
    if before
        .as_ref()
        .is_some_and(|before| view.asked - before.asked > BLIND)
    {
        // Whoever was not looked at for so long may be somebody else by now.
        for memory in state.guests.values_mut() {
            memory.verified = None;
        }
    }
    let online = |v: &View| {
        let online = v.nodes.iter().filter(|(_, node)| node.online);
        online.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let nodes_changed = before
        .as_ref()
        .is_none_or(|before| online(before) != online(&view));
    if let Some(before) = &before {
        // What was read of a guest to be copied is not that of whoever has its VMID next.
        let as_it_was = |vmid: &Vmid| match (before.guests.get(vmid), view.guests.get(vmid)) {
            (Some(old), Some(new)) => old.name == new.name && old.kind == new.kind,
            _ => false,
        };
        state.sources.retain(|vmid, _| as_it_was(vmid));
        for (vmid, owner) in &state.owners {
            let (old, new) = (before.guests.get(vmid), view.guests.get(vmid));
            let changed = match (old, new) {
                (Some(old), Some(new)) => {
                    new.differs(old) || before.is_left(&new.node) != view.is_left(&new.node)
                }
                (None, None) => false,
                _ => true,
            };
            if changed {
                wake.push(owner.clone());
            }
        }
        let owners: Vec<_> = state.owners.iter().map(|(v, o)| (*v, o.clone())).collect();
        for (vmid, owner) in owners {
            suspect(
                &mut state,
                &owner,
                view.asked,
                before.guests.get(&vmid),
                view.guests.get(&vmid),
            );
        }
    }
    for owner in state.tasks.reach(online(&view).into_iter().collect()) {
        // What it began ends with its node, and others need the room.
        wake.extend(state.gate.exit(&owner, End::Other, Instant::now()));
        wake.push(owner);
    }
    if nodes_changed {
        // A node came or went: whoever waits for one may go on.
        wake.extend(std::mem::take(&mut state.stranded));
    }
    // What the view shows need not be held any more.
    let now = Instant::now();
    state
        .holds
        .retain(|vmid, hold| !hold.is_over(view.guests.get(vmid), now));
    let fresh = view.facts();
    let old = std::mem::take(&mut state.facts);
    state.facts = crate::ClusterFacts {
        version: old.version,
        quorate: old.quorate,
        bridges: old.bridges,
        devices: old.devices,
        missing_privileges: old.missing_privileges,
        ..fresh
    };
    let facts = Arc::new(state.facts.clone());
    let bridges = state.facts.bridges.clone();
    state.view = Some(Arc::new(View { bridges, ..view }));
    drop(state);
    publish(cluster, facts);
    if nodes_changed {
        cluster.survey.notify_one();
    }
    cluster.wake(&wake);
}

/// A guest that vanished, was renamed or restarted may not be the one we knew.
fn suspect(
    state: &mut State,
    owner: &Owner,
    asked: Instant,
    old: Option<&GuestRow>,
    new: Option<&GuestRow>,
) {
    let Some(memory) = state.guests.get_mut(owner) else {
        return;
    };
    let (Some(old), Some(new)) = (old, new) else {
        if old.is_some() {
            memory.verified = None;
        }
        return;
    };
    // What we wrote ourselves shows some seconds later.
    let shape = memory.shape.as_ref();
    let ours = shape.is_some_and(|shape| shape.explains(new));
    let other = old.name != new.name || old.kind != new.kind || old.template != new.template;
    if other && !ours {
        memory.verified = None;
        memory.doubt = true;
    }
    let settled = old.memory > Size::ZERO && new.memory > Size::ZERO;
    if settled
        && !ours
        && (old.tags != new.tags
            || old.memory != new.memory
            || (old.cpus - new.cpus).abs() > f64::EPSILON)
    {
        memory.doubt = true;
    }
    if new.uptime < old.uptime || new.power == PowerFact::Stopped {
        memory.waits = false;
        // What we did ourselves a moment ago is known already.
        let theirs = memory.power.is_none_or(|(_, at)| asked > at + LAG);
        memory.restarted |= theirs;
    }
    if new.power != PowerFact::Running {
        memory.guest.powered(new.power);
        state.boots.forget(owner);
    } else if new.uptime < old.uptime {
        memory.guest.restarted();
    }
}

/// Asks how the tasks under way stand.
async fn ask_for_tasks(cluster: &Arc<Cluster>) {
    let asked = Instant::now();
    let question = cluster.state().tasks.question(asked);
    let answer = match &question {
        Question::Each(each) => statuses(cluster, each).await,
        Question::All(named) => list(cluster, named).await,
    };
    let now = Instant::now();
    let mut state = cluster.state();
    state.tasks.asked(&question, &answer.running, asked, now);
    drop(state);
    note_ends(cluster, answer, now);
}

/// Gives up tasks whose end nobody will ever say.
fn give_up_left_behind(cluster: &Cluster) {
    let mut answer = Answer::default();
    let lost = cluster.state().tasks.out_of_reach();
    for upid in lost {
        if is_left_behind(cluster, &upid) {
            answer.add_unknown(upid);
        }
    }
    note_ends(cluster, answer, Instant::now());
}

/// Takes note of the tasks that have ended, and wakes their owners.
fn note_ends(cluster: &Cluster, answer: Answer, now: Instant) {
    let mut wake = Vec::new();
    let mut state = cluster.state();
    for (upid, end) in answer.ended {
        let mut verdict = match &end {
            Ok(_) => End::Well,
            Err(error) if trouble::congested(error) => End::Congested,
            Err(_) => End::Other,
        };
        let seconds = answer.seconds.get(&upid).copied();
        if let Some((owner, slow)) = state.tasks.end(&upid, end, seconds, now) {
            if slow {
                verdict = End::Slow;
            }
            if !state.tasks.any_of(&owner) {
                wake.extend(state.gate.exit(&owner, verdict, now));
            }
            wake.push(owner);
        }
    }
    drop(state);
    cluster.wake(&wake);
}

/// What is known of tasks after a question. Who is in neither was not answered for.
#[derive(Default)]
struct Answer {
    ended: BTreeMap<Upid, Ended>,
    running: BTreeSet<Upid>,
    /// How many seconds those took that have ended, where PVE says so.
    seconds: BTreeMap<Upid, u64>,
}

impl Answer {
    fn add(&mut self, upid: Upid, end: Option<Ended>, seconds: Option<u64>) {
        let Some(end) = end else {
            self.running.insert(upid);
            return;
        };
        if let Some(seconds) = seconds {
            self.seconds.insert(upid.clone(), seconds);
        }
        self.ended.insert(upid, end);
    }

    /// The task is no longer known to anybody: its owner must look at what it left.
    fn add_unknown(&mut self, upid: Upid) {
        let text = format!("task {upid} is no longer known");
        let unknown = Err(pve::Error::OutcomeUnknown { text, cause: None });
        self.add(upid, Some(unknown), None);
    }
}

/// How all tasks stand by one list.
async fn list(cluster: &Cluster, named: &BTreeSet<Upid>) -> Answer {
    let Ok(list) = cluster.client.cluster().tasks().await else {
        return Answer::default();
    };
    let listed: BTreeMap<&Upid, _> = list.iter().map(|entry| (&entry.upid, entry)).collect();
    let mut answer = Answer::default();
    let mut by_name = BTreeSet::new();
    let flying = cluster.state().tasks.names();
    for upid in flying {
        match listed.get(&upid) {
            Some(entry) => {
                if entry.is_running() {
                    by_name.extend(named.get(&upid).cloned());
                }
                answer.add(upid, entry.end(), entry.seconds());
            }
            // The list keeps few ended tasks of each node; older ones are asked for by name.
            None => by_name.extend([upid]),
        }
    }
    by_node(cluster, &mut by_name, &mut answer).await;
    let by_name = statuses(cluster, &by_name).await;
    answer.ended.extend(by_name.ended);
    answer.running.extend(by_name.running);
    answer.seconds.extend(by_name.seconds);
    answer
}

/// How the tasks of a node stand that several are asked for of, by its own list: of a token's tasks the common one shows none
/// unless it may see everybody's.
async fn by_node(cluster: &Cluster, tasks: &mut BTreeSet<Upid>, answer: &mut Answer) {
    let mut nodes: BTreeMap<NodeName, u64> = BTreeMap::new();
    for upid in tasks.iter() {
        let earliest = nodes.entry(upid.node().clone()).or_insert(u64::MAX);
        *earliest = upid.starttime().min(*earliest);
    }
    nodes.retain(|node, _| tasks.iter().filter(|upid| upid.node() == node).count() > 1);
    let asked = nodes.iter().map(|(node, since)| {
        let node = cluster.client.node(node);
        let filter = TaskFilter {
            source: Source::All,
            since: Some(*since),
            limit: Some(1_000),
            ..TaskFilter::default()
        };
        tokio::time::timeout(PROMPT, async move { node.tasks(&filter).await })
    });
    let lists = futures::future::join_all(asked).await;
    for entry in lists.into_iter().flatten().flatten().flatten() {
        if tasks.remove(&entry.upid) {
            let (end, seconds) = (entry.end(), entry.seconds());
            answer.add(entry.upid, end, seconds);
        }
    }
}

/// How these tasks stand, asked for by name and side by side.
async fn statuses(cluster: &Cluster, tasks: &BTreeSet<Upid>) -> Answer {
    let asked = tasks
        .iter()
        .map(|upid| tokio::time::timeout(PROMPT, status(&cluster.client, upid)));
    let answers = futures::future::join_all(asked).await;
    let mut answer = Answer::default();
    for (upid, status) in tasks.iter().zip(answers) {
        match status {
            Ok(Ok((end, seconds))) => answer.add(upid.clone(), end, seconds),
            Ok(Err(error)) if error.is_not_found() => answer.add_unknown(upid.clone()),
            Ok(Err(_)) | Err(_) => {}
        }
    }
    answer
}

/// Whether nobody will ever say how a task ended: its node has left the cluster, or is down while its guest is up on another.
fn is_left_behind(cluster: &Cluster, upid: &Upid) -> bool {
    let Some(view) = cluster.view() else {
        return false;
    };
    let Some(node) = view.nodes.get(upid.node()) else {
        return true;
    };
    let guest = upid.id().parse().ok();
    let row = guest.and_then(|vmid| view.guests.get(&vmid));
    let elsewhere = row.is_some_and(|row| row.node != *upid.node() && view.node_online(&row.node));
    // A file is sent by the node that was asked, and can be sent again by any other.
    !node.online && (elsewhere || upid.kind() == UPLOAD)
}

/// How a task stands. A shutdown is looked up in its node's list, which says for the same price how long it took: guests have
/// their habits.
async fn status(client: &pve::Client, upid: &Upid) -> pve::Result<(Option<Ended>, Option<u64>)> {
    if upid.kind() == SHUTDOWN {
        let filter = TaskFilter {
            vmid: upid.id().parse().ok(),
            kind: Some(SHUTDOWN.to_owned()),
            source: Source::All,
            limit: Some(1),
            ..TaskFilter::default()
        };
        let list = client.node(upid.node()).tasks(&filter).await?;
        if let Some(entry) = list.iter().find(|entry| entry.upid == *upid) {
            return Ok((entry.end(), entry.seconds()));
        }
    }
    Ok((client.task_status(upid).await?.end(), None))
}

/// What the rows come to, each forgotten as soon as it was read.
#[derive(Default)]
struct Rows {
    guests: BTreeMap<Vmid, GuestRow>,
    nodes: BTreeMap<NodeName, NodeRow>,
    storages: BTreeMap<(StorageId, NodeName), StorageRow>,
}

impl Extend<Resource> for Rows {
    fn extend<I: IntoIterator<Item = Resource>>(&mut self, rows: I) {
        rows.into_iter().for_each(|row| self.add(row));
    }
}

impl Rows {
    fn add(&mut self, row: Resource) {
        match row.kind.as_str() {
            "qemu" | "lxc" => {
                if let (Some(vmid), Some(node)) = (row.vmid, row.node.clone()) {
                    let kind = if row.kind == "lxc" {
                        GuestKind::Lxc
                    } else {
                        GuestKind::Qemu
                    };
                    self.guests.insert(vmid, guest(row, node, kind));
                }
            }
            "node" => {
                if let Some(name) = row.node {
                    self.nodes.insert(
                        name,
                        NodeRow {
                            online: row.status.as_deref() == Some("online"),
                            cpus: row.maxcpu.unwrap_or(0.0),
                            cpu_used: row.cpu.unwrap_or(0.0),
                            memory: Size::bytes(row.maxmem.unwrap_or(0)),
                            memory_used: Size::bytes(row.mem.unwrap_or(0)),
                            ha: row.hastate,
                        },
                    );
                }
            }
            "storage" => {
                if let (Some(id), Some(node)) = (row.storage, row.node) {
                    let space = Space {
                        total: Size::bytes(row.maxdisk.unwrap_or(0)),
                        used: Size::bytes(row.disk.unwrap_or(0)),
                    };
                    let storage = StorageRow {
                        available: row.status.as_deref() == Some("available"),
                        shared: row.shared,
                        kind: row.plugintype.unwrap_or_default(),
                        content: row.content,
                        space,
                    };
                    self.storages.insert((id, node), storage);
                }
            }
            _ => {}
        }
    }
}

fn guest(row: Resource, node: NodeName, kind: GuestKind) -> GuestRow {
    let power = match (row.status.as_deref(), row.lock.as_deref()) {
        (Some("stopped"), Some("suspended")) => PowerFact::Suspended,
        (Some("running"), _) => PowerFact::Running,
        (Some("paused"), _) => PowerFact::Paused,
        (Some("stopped"), _) => PowerFact::Stopped,
        _ => PowerFact::Unknown,
    };
    GuestRow {
        node,
        kind,
        power,
        name: row.name.unwrap_or_default(),
        template: row.template,
        uptime: row.uptime.unwrap_or(0),
        cpus: row.maxcpu.unwrap_or(0.0),
        memory: Size::bytes(row.maxmem.unwrap_or(0)),
        memory_used: Size::bytes(row.mem.unwrap_or(0)),
        lock: row.lock,
        tags: row.tags.iter().map(|tag| tag.to_lowercase()).collect(),
        pool: row.pool.map(|pool| pool.to_string()),
        ha: row.hastate,
    }
}
