//! Choosing a node: a pure function that explains itself.
//!
//! Every node is asked the same questions in the same order: is it there, is it allowed, does the
//! guest fit. The first "no" is the reason that is shown. Among those that fit, the one where the
//! source can be copied most directly wins, then the one that keeps the cluster most even.
//!
//! What is in flight counts: a guest that was placed a moment ago is not yet in PVE's view, so its
//! share is held as a [`Hold`] until it is. A guest that moves has a share of the node it leaves and of the
//! one it goes to.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    NodeName, Size, StorageId, Vmid,
    cluster::Whereabouts,
    facts::PowerFact,
    intent::Placement,
    view::{GuestRow, NodeRow, View},
};

/// What a guest needs of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask {
    /// Processors.
    pub(crate) cpus: u32,
    /// Memory.
    pub(crate) memory: Size,
    /// Room on storages, for disks that are allocated in full at once.
    pub(crate) space: BTreeMap<StorageId, Size>,
    /// The largest disk on each storage, whether or not it is allocated at once.
    pub(crate) largest: BTreeMap<StorageId, Size>,
    /// Disks that name no storage: each goes to the one that its node keeps them on.
    pub(crate) anywhere: Vec<(Size, bool)>,
    /// What such a storage must hold, as PVE calls it.
    pub(crate) content: &'static str,
    /// Where the source can be copied from; empty if there is no guest to copy.
    pub(crate) sources: Vec<Site>,
    /// Its disks shall be linked to those of the source, and so stay with them.
    pub(crate) linked: bool,
    /// The file it is made from, if not all nodes have it.
    pub(crate) file: Option<File>,
    /// Bridges and VNets its interfaces are on.
    pub(crate) bridges: Vec<String>,
    /// Devices of the node that it is given.
    pub(crate) devices: Vec<Device>,
    /// The guest itself, when it is to be moved: it does not stand in its own way.
    pub(crate) ignore: Option<Vmid>,
}

impl Ask {
    /// Counts a disk: room for all of it, if it is allocated at once.
    pub(crate) fn disk(&mut self, view: &View, storage: &StorageId, size: Size, thick: bool) {
        let thick_only = view
            .storages
            .iter()
            .any(|((id, _), row)| id == storage && matches!(row.kind.as_str(), "lvm" | "iscsi"));
        let need = if thick || thick_only {
            size
        } else {
            Size::ZERO
        };
        let space = self.space.entry(storage.clone()).or_default();
        *space = *space + need;
        let largest = self.largest.entry(storage.clone()).or_default();
        *largest = size.max(*largest);
    }

    /// The same on one node, where every disk has a storage.
    pub(crate) fn on(&self, view: &View, node: &NodeName) -> Result<Self, String> {
        let mut here = self.clone();
        for (size, thick) in std::mem::take(&mut here.anywhere) {
            let storage = view.default_storage(self.content, node);
            let storage = storage.ok_or_else(|| "has no storage for disks".to_owned())?;
            here.disk(view, storage, size, thick);
        }
        Ok(here)
    }
}

/// A file on storages that nodes have for themselves, and the nodes where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) volume: String,
    pub(crate) on: Whereabouts,
}

/// Devices under one name of the cluster that a guest is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// What they are: PCI or USB.
    pub(crate) kind: &'static str,
    /// The name.
    pub(crate) mapping: String,
    /// How many of them.
    pub(crate) count: usize,
    /// Where there are any.
    pub(crate) on: BTreeMap<NodeName, Stock>,
}

/// Devices of one name on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stock {
    /// All of them.
    pub(crate) all: usize,
    /// Those that other guests have.
    pub(crate) given: usize,
}

/// A guest to copy, and how far its copies reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) vmid: Vmid,
    pub(crate) node: NodeName,
    /// All its drives, discs included, are on storage that several nodes see: it can be copied onto another node.
    pub(crate) shared: bool,
    /// Its disks are: its copies can move.
    pub(crate) disks_shared: bool,
    /// The storages that its copies stay on.
    pub(crate) storages: BTreeSet<StorageId>,
}

/// A share of a node that is promised and not yet to be seen there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Hold {
    pub(crate) node: Option<NodeName>,
    pub(crate) cpus: u32,
    pub(crate) memory: Size,
    pub(crate) space: BTreeMap<StorageId, Size>,
    pub(crate) tags: Vec<String>,
    /// For a guest that moves: where it still is, and when its move was last asked for.
    pub(crate) moving: Option<Moving>,
}

/// A guest on its way to another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) from: NodeName,
    pub(crate) asked: Instant,
}

/// How long a move that nobody asks for any more keeps its place.
const FORGOTTEN: Duration = Duration::from_mins(3);

impl Hold {
    /// Whether a look at everything shows what is held, or nobody wants it any more.
    pub(crate) fn is_over(&self, row: Option<&GuestRow>, now: Instant) -> bool {
        match &self.moving {
            Some(Moving { from, asked }) => {
                row.is_some_and(|row| row.node != *from) || now - *asked > FORGOTTEN
            }
            None => {
                row.is_some_and(|row| row.memory > Size::ZERO && row.power == PowerFact::Running)
            }
        }
    }

    /// Whether the guest counts where it is seen: not if its share is held instead. One that moves has a share of both nodes.
    fn replaces(&self, row: &GuestRow) -> bool {
        let moving = self.moving.as_ref();
        moving.is_none_or(|moving| moving.from != row.node)
    }
}

/// How the source reaches the chosen node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// It is there, or there is none.
    Here,
    /// It is elsewhere, on shared storage: the copy can be made on the chosen node.
    Shared,
    /// It is elsewhere, on local storage: the copy is made there and moved.
    Move,
}

/// A chosen node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) node: NodeName,
    pub(crate) source: Option<Site>,
    pub(crate) reach: Reach,
    pub(crate) why: String,
}

/// Why there is no node, node by node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoNode(pub(crate) Vec<(NodeName, String)>);

impl std::fmt::Display for NoNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the cluster shows no nodes");
        }
        f.write_str("no node fits: ")?;
        for (i, (node, why)) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{node}: {why}")?;
        }
        Ok(())
    }
}

/// What a node has already promised.
#[derive(Debug, Default, Clone)]
struct Load {
    cpus: f64,
    memory: Size,
    guests: u32,
}

/// Chooses a node.
///
/// `sockets` is how many sockets each node has, where that is known; only NUMA fit asks for it.
pub(crate) fn place(
    view: &View,
    holds: &BTreeMap<Vmid, Hold>,
    sockets: &BTreeMap<NodeName, u32>,
    wishes: &Placement,
    ask: &Ask,
) -> Result<Choice, NoNode> {
    let mut refused = Vec::new();
    let mut fits: Vec<(Choice, Score)> = Vec::new();
    for (name, node) in &view.nodes {
        let load = load(view, holds, name, ask.ignore);
        match check(view, holds, sockets, wishes, ask, name, node, &load) {
            Ok((soft, source, reach)) => {
                let score = score(node, &load, ask, reach, soft);
                let why = explain(node, &load, ask, reach, source.as_ref());
                fits.push((
                    Choice {
                        node: name.clone(),
                        source,
                        reach,
                        why,
                    },
                    score,
                ));
            }
            Err(why) => refused.push((name.clone(), why)),
        }
    }
    fits.into_iter()
        .min_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.node.cmp(&b.0.node)))
        .map(|(choice, _)| choice)
        .ok_or(NoNode(refused))
}

fn load(view: &View, holds: &BTreeMap<Vmid, Hold>, node: &NodeName, ignore: Option<Vmid>) -> Load {
    let mut load = Load::default();
    for (vmid, row) in &view.guests {
        let held = || holds.get(vmid).is_some_and(|hold| hold.replaces(row));
        if &row.node != node || row.template || Some(*vmid) == ignore || held() {
            continue;
        }
        load.guests += 1;
        // A guest that is off has promised nothing yet; one PVE cannot see may be running.
        if matches!(row.power, PowerFact::Stopped | PowerFact::Suspended) {
            continue;
        }
        load.cpus += row.cpus;
        load.memory = load.memory + row.memory;
    }
    for (vmid, hold) in holds {
        if hold.node.as_ref() == Some(node) && Some(*vmid) != ignore {
            load.guests += 1;
            load.cpus += f64::from(hold.cpus);
            load.memory = load.memory + hold.memory;
        }
    }
    load
}

#[expect(
    clippy::too_many_arguments,
    reason = "the questions a node is asked need all there is"
)]
fn check(
    view: &View,
    holds: &BTreeMap<Vmid, Hold>,
    sockets: &BTreeMap<NodeName, u32>,
    wishes: &Placement,
    ask: &Ask,
    name: &NodeName,
    node: &NodeRow,
    load: &Load,
) -> Result<(u32, Option<Site>, Reach), String> {
    if !node.online {
        return Err("is offline".to_owned());
    }
    if let Some(state) = node.maintenance() {
        return Err(format!("is in {state}"));
    }
    if !wishes.nodes.is_empty() && !wishes.nodes.contains(name) {
        return Err("is not among the selected nodes".to_owned());
    }
    if wishes.avoid.contains(name) {
        return Err("is to be avoided".to_owned());
    }
    if let Some(max) = wishes.max_guests.filter(|max| load.guests >= *max) {
        return Err(format!("has {} guests of at most {max}", load.guests));
    }
    let soft = affinity(view, holds, wishes, ask, name)?;
    capacity(wishes, ask, node, load)?;
    if wishes.fit_numa {
        numa(sockets.get(name).copied(), ask, node)?;
    }
    storages(view, holds, &ask.on(view, name)?, name)?;
    if let Some(file) = ask.file.as_ref().filter(|file| !file.on.contains(name)) {
        return Err(format!("does not have '{}'", file.volume));
    }
    if let Some(there) = view.bridges.get(name)
        && let Some(missing) = ask.bridges.iter().find(|bridge| !there.contains(bridge))
    {
        return Err(format!(
            "has no bridge '{missing}', or these credentials may not use it"
        ));
    }
    for device in &ask.devices {
        devices(device, name)?;
    }
    let (source, reach) = reach(ask, name, view)?;
    Ok((soft, source, reach))
}

fn storages(
    view: &View,
    holds: &BTreeMap<Vmid, Hold>,
    ask: &Ask,
    name: &NodeName,
) -> Result<(), String> {
    for (storage, need) in &ask.space {
        let row = view
            .storage(storage, name)
            .filter(|row| row.available)
            .ok_or_else(|| format!("has no storage '{storage}'"))?;
        let others = holds.iter().filter(|(vmid, _)| Some(**vmid) != ask.ignore);
        let held: Size = others
            .filter(|(_, hold)| row.shared || hold.node.as_ref() == Some(name))
            .filter_map(|(_, hold)| hold.space.get(storage).copied())
            .sum();
        let free = row.space.free() - held;
        if free < *need {
            return Err(format!(
                "storage '{storage}' has {free} free, {need} needed"
            ));
        }
        // What is thin may be promised many times over, but a disk that could never be filled is a mistake.
        let (all, largest) = (row.space.total, ask.largest.get(storage).copied());
        if let Some(disk) = largest.filter(|disk| all > Size::ZERO && *disk > all) {
            return Err(format!(
                "storage '{storage}' has {all} in all, too little for a disk of {disk}"
            ));
        }
    }
    Ok(())
}

fn devices(device: &Device, name: &NodeName) -> Result<(), String> {
    let Device {
        kind,
        mapping,
        count,
        on,
    } = device;
    if on.is_empty() {
        return Err(format!(
            "there is no {kind} mapping '{mapping}', or these credentials lack Mapping.Use on it"
        ));
    }
    let Some(Stock { all, given }) = on.get(name) else {
        return Err(format!("has no device of the {kind} mapping '{mapping}'"));
    };
    if given + count > *all {
        return Err(format!(
            "other guests have {given} of its {all} devices of the {kind} mapping '{mapping}', {count} needed"
        ));
    }
    Ok(())
}

fn affinity(
    view: &View,
    holds: &BTreeMap<Vmid, Hold>,
    wishes: &Placement,
    ask: &Ask,
    name: &NodeName,
) -> Result<u32, String> {
    let mut soft = 0;
    for rule in &wishes.anti_affinity {
        let shares = |tags: &[String]| tags.iter().any(|tag| rule.tags.contains(tag));
        let seen = view.guests.iter().find(|(vmid, row)| {
            &row.node == name && Some(**vmid) != ask.ignore && !row.template && shares(&row.tags)
        });
        let held = holds.iter().find(|(vmid, hold)| {
            hold.node.as_ref() == Some(name) && Some(**vmid) != ask.ignore && shares(&hold.tags)
        });
        let Some(vmid) = seen.map(|(vmid, _)| vmid).or(held.map(|(vmid, _)| vmid)) else {
            continue;
        };
        if rule.preferred {
            soft += 1;
        } else {
            return Err(format!(
                "guest {vmid} there has one of the tags {}",
                rule.tags.join(", ")
            ));
        }
    }
    Ok(soft)
}

fn capacity(wishes: &Placement, ask: &Ask, node: &NodeRow, load: &Load) -> Result<(), String> {
    if f64::from(ask.cpus) > node.cpus {
        return Err(format!("has {} processors, {} needed", node.cpus, ask.cpus));
    }
    if let Some(percent) = wishes.cpu_percent {
        let may = node.cpus * f64::from(percent) / 100.0;
        if load.cpus + f64::from(ask.cpus) > may {
            return Err(format!(
                "{} of {may} processors are promised, {} needed",
                load.cpus, ask.cpus
            ));
        }
    }
    let percent = u64::from(wishes.memory_percent.unwrap_or(100));
    let may = Size::bytes(node.memory.as_bytes() / 100 * percent);
    if load.memory + ask.memory > may {
        return Err(format!(
            "{} of {may} memory are promised, {} needed",
            load.memory, ask.memory
        ));
    }
    if let Some(min) = wishes.min_free_memory {
        let promised = node.memory - load.memory;
        let unused = node.memory - node.memory_used;
        let left = promised.min(unused) - ask.memory;
        if left < min {
            return Err(format!("{left} memory would stay free, {min} must"));
        }
    }
    Ok(())
}

fn numa(sockets: Option<u32>, ask: &Ask, node: &NodeRow) -> Result<(), String> {
    let Some(sockets) = sockets.filter(|n| *n > 0) else {
        return Err("its sockets are not known".to_owned());
    };
    let cpus = node.cpus / f64::from(sockets);
    let memory = Size::bytes(node.memory.as_bytes() / u64::from(sockets));
    if f64::from(ask.cpus) > cpus || ask.memory > memory {
        return Err(format!(
            "one socket has {cpus} processors and {memory}, {} and {} needed",
            ask.cpus, ask.memory
        ));
    }
    Ok(())
}

/// The nearest copy of the source.
fn reach(ask: &Ask, name: &NodeName, view: &View) -> Result<(Option<Site>, Reach), String> {
    if ask.sources.is_empty() {
        return Ok((None, Reach::Here));
    }
    let online = || {
        let sources = ask.sources.iter();
        sources.filter(|site| view.node_online(&site.node))
    };
    let missing = |site: &Site| {
        let seen = |storage: &&StorageId| {
            let row = view.storage(storage, name);
            row.is_some_and(|row| row.available)
        };
        site.storages.iter().find(|storage| !seen(storage)).cloned()
    };
    let tied = |site: &Site| ask.linked && &site.node != name && !site.shared && !site.disks_shared;
    online()
        .filter(|site| missing(site).is_none() && !tied(site))
        .map(|site| {
            let reach = match (&site.node == name, site.shared) {
                (true, _) => Reach::Here,
                (false, true) => Reach::Shared,
                (false, false) => Reach::Move,
            };
            (Some(site.clone()), reach)
        })
        .min_by_key(|(site, reach)| (*reach, site.as_ref().map(|site| site.vmid)))
        .ok_or_else(|| match online().find_map(missing) {
            Some(storage) => format!("it does not have storage '{storage}' of the source"),
            None if let Some(site) = online().find(|site| tied(site)) => {
                let node = &site.node;
                format!("the source's disks are on {node} alone, where a linked copy must stay")
            }
            None => "the source's node is offline".to_owned(),
        })
}

#[derive(Debug, PartialEq)]
struct Score {
    soft: u32,
    moves: bool,
    memory: f64,
    reach: Reach,
    cpu: f64,
    guests: u32,
}

impl Score {
    fn cmp(&self, other: &Score) -> Ordering {
        self.soft
            .cmp(&other.soft)
            .then(self.moves.cmp(&other.moves))
            .then(self.memory.total_cmp(&other.memory))
            .then(self.cpu.total_cmp(&other.cpu))
            .then(self.reach.cmp(&other.reach))
            .then(self.guests.cmp(&other.guests))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shares need no more than a double holds"
)]
fn share(part: Size, whole: Size) -> f64 {
    if whole == Size::ZERO {
        1.0
    } else {
        part.as_bytes() as f64 / whole.as_bytes() as f64
    }
}

fn score(node: &NodeRow, load: &Load, ask: &Ask, reach: Reach, soft: u32) -> Score {
    let memory = share(load.memory + ask.memory, node.memory);
    let cpu = if node.cpus > 0.0 {
        (load.cpus + f64::from(ask.cpus)) / node.cpus
    } else {
        1.0
    };
    // Five percent more or less promised memory is no reason to copy across the network.
    let step = (memory * 20.0).floor();
    Score {
        soft,
        moves: reach == Reach::Move,
        memory: step,
        reach,
        cpu,
        guests: load.guests,
    }
}

fn explain(node: &NodeRow, load: &Load, ask: &Ask, reach: Reach, source: Option<&Site>) -> String {
    let memory = share(load.memory + ask.memory, node.memory) * 100.0;
    let from = match (reach, source) {
        (_, None) => String::new(),
        (Reach::Here, Some(_)) => ", the source is there".to_owned(),
        (Reach::Shared, Some(site)) => format!(", the source on {} is shared", site.node),
        (Reach::Move, Some(site)) => format!(", copied on {} and moved", site.node),
    };
    let others = match load.guests {
        0 => "no others".to_owned(),
        1 => "1 other".to_owned(),
        others => format!("{others} others"),
    };
    format!("{memory:.0} % of its memory promised with this guest and {others}{from}")
}

#[cfg(test)]
mod tests;
