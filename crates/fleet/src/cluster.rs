//! One PVE cluster as the fleet knows it: the client, the last view, and what is remembered of each
//! guest between two calls.
//!
//! Everything here can be lost: it makes calls cheap, never possible. What must survive is in the
//! caller's record and in PVE.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, Shared};
use pve::{
    GuestConfig, GuestKind, Release,
    task::{Source, TaskEntry, TaskFilter},
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    NodeName, Outcome, Owner, Size, Upid, Vmid, Waiting,
    facts::{ClusterFacts, NicFacts, PowerFact},
    fleet::Options,
    gate::{End, Gate, Key},
    guest::{
        LATE,
        ready::{Again, Boots},
        seed::UPLOAD,
        source::{default_cpus, default_memory},
    },
    intent::Placement,
    place::Hold,
    record::{InFlight, StepKind},
    tasks::{Standing, Tasks},
    trouble::{self, Trouble},
    view::{GuestRow, View},
    wakes::Wakes,
};

/// A connected cluster.
pub(crate) struct Cluster {
    pub(crate) client: pve::Client,
    pub(crate) options: Options,
    pub(crate) wakes: Wakes,
    /// Tells the watcher that there is something new to wait for.
    pub(crate) poke: Notify,
    /// Asks for what is seldom asked for.
    pub(crate) survey: Notify,
    pub(crate) stop: CancellationToken,
    pub(crate) published: tokio::sync::watch::Sender<Arc<ClusterFacts>>,
    /// When the facts about devices were read last, and what came of it; held while they are.
    pub(crate) devices: tokio::sync::Mutex<Option<(Instant, pve::Result<()>)>>,
    /// Which nodes have a file that guests are made from, and when that was asked; held while it is.
    pub(crate) files: tokio::sync::Mutex<BTreeMap<String, (Whereabouts, Instant)>>,
    /// When it was asked last whether a file is being uploaded, and what came of it; held while it is.
    uploads: tokio::sync::Mutex<Option<(Instant, bool)>>,
    state: Mutex<State>,
}

/// The nodes that have something.
pub(crate) type Whereabouts = Arc<BTreeSet<NodeName>>;

/// What is known and remembered.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) view: Option<Arc<View>>,
    /// Why the cluster does not answer, while it does not.
    pub(crate) problem: Option<pve::Error>,
    /// What is said while another cluster answers in its place.
    pub(crate) stranger: Option<String>,
    pub(crate) release: Option<Release>,
    pub(crate) facts: ClusterFacts,
    pub(crate) tasks: Tasks,
    pub(crate) gate: Gate,
    pub(crate) guests: BTreeMap<Owner, Memory>,
    pub(crate) owners: BTreeMap<Vmid, Owner>,
    pub(crate) holds: BTreeMap<Vmid, Hold>,
    /// VMIDs that turned out to be somebody else's although no view shows them.
    pub(crate) taken: BTreeMap<Vmid, Instant>,
    /// Who of this process is making the template of an image, by the image's tag and node.
    pub(crate) image_makers: BTreeMap<String, Owner>,
    /// What is remembered of an image between two calls, by its owner and its tag: an owner may have several on a cluster.
    pub(crate) images: BTreeMap<(Owner, String), ImageMemory>,
    pub(crate) sources: BTreeMap<Vmid, (Arc<GuestConfig>, Instant)>,
    /// Sources that are being read just now.
    pub(crate) reading: BTreeMap<Vmid, Reading>,
    pub(crate) sockets: BTreeMap<NodeName, u32>,
    pub(crate) timers: BTreeMap<Owner, Instant>,
    /// When a backup of a guest was begun last, and by whom.
    pub(crate) backups: BTreeMap<Vmid, (Instant, Owner)>,
    /// How long guests take until they answer.
    pub(crate) boots: Boots,
    pub(crate) refresh: bool,
    /// Whose configuration was read last to look for drift.
    pub(crate) audited: Option<Owner>,
    /// Owners that wait for the cluster itself.
    pub(crate) stranded: BTreeSet<Owner>,
}

/// A configuration that is being read, for everybody who waits for it.
pub(crate) type Reading = Shared<BoxFuture<'static, pve::Result<Arc<GuestConfig>>>>;

/// How long high availability is left to do what it was asked for before it is asked again.
pub(crate) const HA_PATIENCE: Duration = Duration::from_mins(1);

/// How often it is looked whether an upload has ended.
pub(crate) const UPLOAD_PAUSE: Duration = Duration::from_secs(2);

/// How long is waited at first for what may be over in a moment.
const SHORT: Duration = Duration::from_secs(2);

/// How often it is looked for meanwhile.
pub(crate) const HA_PAUSE: Duration = Duration::from_secs(10);

/// What is remembered of one guest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) vmid: Option<Vmid>,
    /// Its configuration, as read or as we left it.
    pub(crate) model: Option<Arc<GuestConfig>>,
    /// What a look at it must show after that.
    pub(crate) shape: Option<Shape>,
    /// What the end of a task told about its power, and when.
    pub(crate) power: Option<(PowerFact, Instant)>,
    /// Where the end of a task left it, and when.
    pub(crate) node: Option<(NodeName, Instant)>,
    /// Until when its identity need not be read again.
    pub(crate) verified: Option<Instant>,
    /// The identity was chosen by this process, which has sent nothing for it yet. That a look found nothing does not make it
    /// so: a call whose answer was lost may still take effect.
    pub(crate) fresh: bool,
    /// A look has found nothing since anything was last sent for it.
    pub(crate) absent: bool,
    /// Since when a call that makes it may be under way of which nothing was heard.
    pub(crate) unheard: Option<Instant>,
    /// This process knows what it has sent for it.
    pub(crate) known: bool,
    /// Since when the node it was to be on has not been part of the cluster.
    pub(crate) left: Option<Instant>,
    /// Something about it changed that the view cannot explain.
    pub(crate) doubt: bool,
    pub(crate) guest: GuestMemory,
    pub(crate) failures: u32,
    pub(crate) why: Option<String>,
    pub(crate) drift: Vec<crate::facts::Drift>,
    /// Keys whose change is left for the next start.
    pub(crate) staged: Vec<String>,
    /// It did not shut down in time when it was to restart.
    pub(crate) deaf: bool,
    /// It has run ever since it was read what waits for a restart.
    pub(crate) waits: bool,
    /// It was seen off or started anew, and that was not us.
    pub(crate) restarted: bool,
    /// What high availability was asked to do last, and when.
    pub(crate) wish: Option<(StepKind, Instant)>,
    pub(crate) made: Option<Instant>,
    /// When pool, high availability and firewall were written last.
    pub(crate) beside: Option<Instant>,
    /// Somebody has changed its firewall since.
    pub(crate) firewall_changed: bool,
    /// Where it is being made, by a call of this process.
    pub(crate) making_on: Option<NodeName>,
    /// It was configured here, and its first start is still ours to send: when it runs all the same, somebody else was faster.
    pub(crate) unstarted: bool,
    /// The disk that is being grown, and to what size.
    pub(crate) growing: Option<(String, crate::Size)>,
    /// To what size disks were grown since their drives were written last.
    pub(crate) grown: BTreeMap<String, crate::Size>,
    /// Its removal was seen to end well.
    pub(crate) destroyed: bool,
    /// Until when nothing is tried again, what it waits for, and why.
    pub(crate) rests: Option<(Instant, Waiting, String)>,
    /// Since when it waits for who holds the guest.
    pub(crate) locked: Option<Instant>,
    /// Why it cannot go back to a snapshot as long as there are just these.
    pub(crate) in_the_way: Option<(BTreeSet<String>, String)>,
    /// When high availability was asked to move or stop it, which it does in its own time.
    pub(crate) asked_ha: Option<Instant>,
    /// How often high availability had given it up and was told to begin anew, and when last.
    pub(crate) given_up: Option<(u32, Instant)>,
    /// How often it was seen unfinished with nobody making it.
    pub(crate) abandoned: u8,
    /// It has read other first-boot data than what is declared now.
    pub(crate) told_otherwise: bool,
    /// The mappings of the PCI devices it has to itself, one for each.
    pub(crate) devices: Vec<String>,
}

/// What is remembered of one image.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageMemory {
    /// Since when its template is not listed though its VMID is, or when that guest was looked at last.
    pub(crate) unlisted: Option<Instant>,
    /// Templates that carry its tag and are not it: copies that somebody has made.
    pub(crate) others: BTreeSet<Vmid>,
    pub(crate) failures: u32,
    /// Until when nothing large is tried again, and what is said meanwhile.
    pub(crate) rest: Option<(Instant, Outcome)>,
    /// Why its template cannot go as long as all these guests are there, and when that was found.
    pub(crate) linked: Option<(BTreeSet<Vmid>, Instant, String)>,
    /// Disks of a half-made template that were asked for one by one and are base volumes now, if their storage has such.
    pub(crate) based: BTreeSet<String>,
    /// Since when every node has been down that has a template of it, or on which one was begun.
    pub(crate) down: Option<Instant>,
}

/// The part of a guest's configuration that a look at everything shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    kind: GuestKind,
    name: String,
    cpus: u32,
    memory: Size,
    tags: BTreeSet<String>,
}

impl Shape {
    /// What a configuration comes to.
    pub(crate) fn of(config: &GuestConfig, kind: GuestKind) -> Self {
        let tags = config.get("tags").unwrap_or_default();
        let tags = tags.split([';', ',', ' ']).filter(|tag| !tag.is_empty());
        let name = config.get("name").or_else(|| config.get("hostname"));
        let plugged = config.get("vcpus").and_then(|text| text.parse().ok());
        Self {
            kind,
            name: name.unwrap_or_default().to_owned(),
            cpus: plugged.unwrap_or_else(|| default_cpus(config, kind)),
            memory: default_memory(config),
            tags: tags.map(str::to_lowercase).collect(),
        }
    }

    /// Whether a look at everything shows just that.
    pub(crate) fn explains(&self, row: &GuestRow) -> bool {
        let tags: BTreeSet<String> = row.tags.iter().map(|tag| tag.to_lowercase()).collect();
        (self.kind, &self.name) == (row.kind, &row.name)
            && (self.cpus, self.memory) == (row.processors(), row.memory)
            && self.tags == tags
            && !row.template
    }
}

/// What the guest itself has told.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestMemory {
    /// When it was started, as far as we know.
    pub(crate) booted: Option<Instant>,
    /// The age at which it was last asked in vain since then.
    pub(crate) silent: Duration,
    pub(crate) answered: bool,
    /// It ran before it was seen: when it answers says nothing about how long it boots.
    pub(crate) found: bool,
    /// It has no agent to answer with.
    pub(crate) mute: bool,
    pub(crate) nics: Vec<NicFacts>,
    /// When it is asked once more, since it may have addresses by then that it had not when it answered.
    pub(crate) again: Option<Again>,
}

impl GuestMemory {
    /// Its power has changed to this: it has yet to say that it is up. One that is off has no addresses; others may have them.
    pub(crate) fn powered(&mut self, power: PowerFact) {
        self.restarted();
        self.booted = None;
        self.silent = Duration::ZERO;
        if matches!(power, PowerFact::Stopped | PowerFact::Suspended) {
            self.nics.clear();
        }
    }

    /// It was started anew: it has yet to answer, and may by now have the agent for it.
    pub(crate) fn restarted(&mut self) {
        self.answered = false;
        self.mute = false;
        self.again = None;
    }
}

impl State {
    /// Ties a VMID to its owner, so that changes of the guest wake it.
    pub(crate) fn track(&mut self, owner: &Owner, vmid: Vmid) {
        let memory = self.guests.entry(owner.clone()).or_default();
        let old = memory.vmid.replace(vmid).filter(|old| *old != vmid);
        if let Some(old) = old {
            self.untrack(owner, old);
        }
        self.owners.insert(vmid, owner.clone());
    }

    /// Unties a VMID from its owner. Whose guest has it by now is woken by it from then on.
    pub(crate) fn untrack(&mut self, owner: &Owner, vmid: Vmid) {
        if self.owners.get(&vmid) != Some(owner) {
            return;
        }
        let mut others = self.guests.iter();
        let next = others.find(|(other, memory)| *other != owner && memory.vmid == Some(vmid));
        if let Some((next, _)) = next {
            self.owners.insert(vmid, next.clone());
        } else {
            self.owners.remove(&vmid);
            self.holds.remove(&vmid);
        }
    }
}

impl Cluster {
    pub(crate) fn new(client: pve::Client, options: Options, wakes: Wakes) -> Arc<Self> {
        Arc::new(Self {
            client,
            options,
            wakes,
            poke: Notify::new(),
            survey: Notify::new(),
            stop: CancellationToken::new(),
            published: tokio::sync::watch::Sender::new(Arc::new(ClusterFacts::default())),
            devices: tokio::sync::Mutex::default(),
            files: tokio::sync::Mutex::default(),
            uploads: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// The state. Never held across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After what time to look again at a guest that an owner has found incomplete, if it may still be being made. A task that copies
    /// tells what it copies and not what it makes, so any of those counts.
    pub(crate) async fn is_being_made(
        &self,
        owner: &Owner,
        vmid: Vmid,
    ) -> pve::Result<Option<Duration>> {
        let made = self.any_runs(|task| match task.upid.kind() {
            "qmclone" | "vzclone" => true,
            "qmcreate" | "qmrestore" | "vzcreate" | "vzrestore" => {
                task.upid.id() == vmid.to_string()
            }
            _ => false,
        });
        let made = made.await?;
        let vain = self.memory(owner, |memory| {
            memory.abandoned = if made { 0 } else { memory.abandoned + 1 };
            memory.abandoned
        });
        if made {
            return Ok(Some(self.longer(owner)));
        }
        // The end of a task and what it wrote are not seen in the same moment.
        self.memory(owner, |memory| memory.locked = None);
        Ok((vain < 3).then_some(SHORT))
    }

    /// Whether a task runs on any node that is up. Each is asked itself: of the tasks of a token PVE's common list shows none
    /// unless it may see everybody's.
    pub(crate) async fn any_runs(&self, is: impl Fn(&TaskEntry) -> bool) -> pve::Result<bool> {
        let view = self.view();
        let nodes = view.iter().flat_map(|view| &view.nodes);
        let nodes: Vec<_> = nodes.filter(|(_, node)| node.online).collect();
        let active = TaskFilter {
            source: Source::Active,
            // Of more than fifty PVE shows the newest.
            limit: Some(1_000),
            ..TaskFilter::default()
        };
        let asked = nodes.iter().map(|(name, _)| {
            let node = self.client.node(name);
            let active = &active;
            async move { node.tasks(active).await }
        });
        for list in futures::future::join_all(asked).await {
            if list?.iter().any(|task| task.is_running() && is(task)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a file is being uploaded anywhere. Who asks while it is asked is told the next answer, and that one is, for a moment.
    pub(crate) async fn any_upload_runs(&self) -> pve::Result<bool> {
        let asked = Instant::now();
        let mut last = self.uploads.lock().await;
        if let Some((at, runs)) = *last
            && (at > asked || (runs && at.elapsed() < UPLOAD_PAUSE))
        {
            return Ok(runs);
        }
        let now = Instant::now();
        let runs = self.any_runs(|task| task.upid.kind() == UPLOAD).await?;
        *last = Some((now, runs));
        Ok(runs)
    }

    /// A process before this one may have sent something for an owner a moment ago, if anything was `open` when it was left.
    pub(crate) fn suspect_calls(&self, owner: &Owner, open: bool) {
        let now = Instant::now();
        self.memory(owner, |memory| {
            if !std::mem::replace(&mut memory.known, true) && open {
                memory.unheard.get_or_insert(now);
            }
        });
    }

    /// How long a call for an owner that was not answered may still take effect.
    pub(crate) fn unheard(&self, owner: &Owner) -> Option<Duration> {
        let unheard = self.memory(owner, |memory| memory.unheard);
        let left = LATE.checked_sub(unheard?.elapsed());
        left.filter(|left| !left.is_zero())
    }

    /// The last view.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.state().view.clone()
    }

    /// The last view, or why nothing can be done now. The owner is woken when something can.
    pub(crate) fn ready(&self, owner: &Owner) -> Result<Arc<View>, Outcome> {
        let mut state = self.state();
        let (what, message) = match (&state.view, &state.problem) {
            (_, None) if state.stranger.is_some() => {
                let message = state.stranger.clone().unwrap_or_default();
                (Waiting::Cluster, message)
            }
            (Some(view), None) if state.facts.quorate != Some(false) => return Ok(view.clone()),
            (Some(_), None) => {
                let message = "the cluster has no quorum: nothing can be changed until it has";
                (Waiting::Quorum, message.to_owned())
            }
            (_, Some(error)) => {
                let what = match trouble::judge(error) {
                    Trouble::Wait(what) => what,
                    _ => Waiting::Unreachable,
                };
                let line = trouble::line(error);
                let message = match what {
                    Waiting::Credentials => format!("PVE refuses the credentials: {line}"),
                    _ => format!("PVE does not answer: {line}"),
                };
                (what, message)
            }
            (None, None) => {
                let message = "the cluster has not been looked at yet";
                (Waiting::Cluster, message.to_owned())
            }
        };
        state.stranded.insert(owner.clone());
        Err(Outcome::Waiting {
            what,
            message,
            retry: Duration::from_secs(10),
        })
    }

    /// A guest's row in the last view.
    pub(crate) fn row(&self, vmid: Vmid) -> Option<GuestRow> {
        self.state().view.as_ref()?.guests.get(&vmid).cloned()
    }

    /// Reads and changes what is remembered of a guest.
    pub(crate) fn memory<T>(&self, owner: &Owner, change: impl FnOnce(&mut Memory) -> T) -> T {
        change(self.state().guests.entry(owner.clone()).or_default())
    }

    /// Ties a VMID to its owner, so that changes of the guest wake it.
    pub(crate) fn track(&self, owner: &Owner, vmid: Vmid) {
        self.state().track(owner, vmid);
    }

    /// What placement has to heed: the caller's wishes, and the nodes that are preferred for all guests.
    pub(crate) fn wishes(&self, own: &Placement) -> Placement {
        let mut wishes = own.clone();
        if wishes.nodes.is_empty() {
            wishes.nodes.clone_from(&self.options.nodes);
        }
        wishes
    }

    /// Reads how many sockets the nodes have. One that cannot be read is left out; it is an error if that is all of them.
    pub(crate) async fn learn_sockets(&self, view: &View) -> pve::Result<()> {
        let mut problem = None;
        for (name, _) in view.nodes.iter().filter(|(_, row)| row.online) {
            if self.state().sockets.contains_key(name) {
                continue;
            }
            match self.client.node(name).status().await {
                Ok(status) => {
                    let sockets = status.cpuinfo.sockets.unwrap_or(1);
                    self.state().sockets.insert(name.clone(), sockets);
                }
                Err(error) => problem = Some(error),
            }
        }
        match problem {
            Some(error) if self.state().sockets.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Forgets everything about an owner.
    pub(crate) fn forget(&self, owner: &Owner) {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(memory) = state.guests.remove(owner)
            && let Some(vmid) = memory.vmid
        {
            state.untrack(owner, vmid);
        }
        state.tasks.forget(owner);
        state.boots.forget(owner);
        state.timers.remove(owner);
        state.stranded.remove(owner);
        state.image_makers.retain(|_, maker| maker != owner);
        let next = state.gate.forget(owner, now);
        drop(state);
        self.wake(&next);
    }

    pub(crate) fn wake(&self, owners: &[Owner]) {
        for owner in owners {
            self.wakes.wake(owner);
        }
    }

    /// Wakes the owner at a time, at the latest.
    pub(crate) fn remind(&self, owner: &Owner, after: Duration) {
        let at = Instant::now() + after;
        let mut state = self.state();
        let timer = state.timers.entry(owner.clone()).or_insert(at);
        *timer = (*timer).min(at);
        drop(state);
        self.poke.notify_one();
    }

    /// How long to wait for what may be over in a moment, and takes the longer the longer it has taken.
    fn longer(&self, owner: &Owner) -> Duration {
        let now = Instant::now();
        let since = self.memory(owner, |memory| *memory.locked.get_or_insert(now));
        ((now - since) / 4).clamp(SHORT, Duration::from_mins(1))
    }

    /// How long to wait for who holds the guest, a moment at first and longer the longer it is held; and what to say.
    pub(crate) fn held(
        &self,
        owner: &Owner,
        kind: GuestKind,
        vmid: Vmid,
        lock: &str,
    ) -> (Duration, String) {
        let pause = self.longer(owner);
        let mut message = format!("the guest is locked ({lock})");
        if pause < crate::watcher::RHYTHM {
            self.refresh();
        } else {
            let tool = match kind {
                GuestKind::Qemu => "qm",
                GuestKind::Lxc => "pct",
            };
            message = format!(
                "{message}; if no task of Proxmox VE holds it any more, free it on its node: {tool} unlock {vmid}"
            );
        }
        (pause, message)
    }

    /// Takes note of a task that was started just now.
    pub(crate) fn started(&self, owner: &Owner, step: StepKind, upid: &Upid) -> InFlight {
        self.state()
            .tasks
            .note(upid, owner, step, Instant::now(), true);
        self.poke.notify_one();
        InFlight {
            step,
            upid: upid.clone(),
        }
    }

    /// Where a task stands; one that was never heard of is taken note of.
    pub(crate) fn standing(&self, owner: &Owner, task: &InFlight) -> Standing {
        let mut state = self.state();
        if let Some(standing) = state.tasks.standing(&task.upid) {
            return standing;
        }
        state
            .tasks
            .note(&task.upid, owner, task.step, Instant::now(), false);
        if state.tasks.reaches(&task.upid) {
            state
                .gate
                .count(owner, vec![Key::of(task.step, task.upid.node())]);
        }
        drop(state);
        self.poke.notify_one();
        Standing::Flying
    }

    /// The node that is down of the first of these tasks that cannot be asked for because of that. The owner is woken when nodes
    /// come or go.
    pub(crate) fn cut_off<'a>(&self, owner: &Owner, tasks: &'a [InFlight]) -> Option<&'a InFlight> {
        let mut state = self.state();
        let task = tasks.iter().find(|task| !state.tasks.reaches(&task.upid))?;
        state.stranded.insert(owner.clone());
        Some(task)
    }

    /// Asks for room for work.
    pub(crate) fn enter(&self, owner: &Owner, keys: Vec<Key>) -> bool {
        self.state().gate.enter(owner, keys, Instant::now())
    }

    /// Gives the room back.
    pub(crate) fn exit(&self, owner: &Owner, end: End) {
        let next = self.state().gate.exit(owner, end, Instant::now());
        self.wake(&next);
    }

    /// Asks the watcher to look now rather than at its next round.
    pub(crate) fn refresh(&self) {
        self.state().refresh = true;
        self.poke.notify_one();
    }
}
