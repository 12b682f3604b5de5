//! How much may go on at once.
//!
//! PVE has no queue: whoever sends a hundred clones gets a hundred, and most of them fail on a lock.
//! So work is let in by node, by storage, by template and for the cluster as a whole. The limits start
//! low and feel their way: a lock timeout halves the limits concerned, work that takes several times as
//! long as it does on a quiet host lowers them by a tenth, work that ends well raises them by a little.
//!
//! Whoever finds no room stands in one line, in the order of turns: parties ([`Owner::party`]) take turns, so that
//! one machine of a small team need not wait for a thousand of a large one, and within a party who came first is first.
//! Nobody waits for a place somebody else needs elsewhere.
//!
//! What takes long without keeping a host from other work has places of its own, and counts nowhere else: backups, of which PVE
//! makes one at a time on each node, moves, and shutdowns, which the guests' own systems decide about.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::{NodeName, Owner, StorageId, Vmid, record::StepKind};

/// A part of a cluster that can be busy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Node(NodeName),
    /// Backups of a node's guests.
    Backups(NodeName),
    /// Moves away from a node.
    Moves(NodeName),
    /// Guests of a node that were asked to go down.
    Shutdowns(NodeName),
    Storage(StorageId),
    Template(Vmid),
    /// A source that PVE lets only one copy at a time: a container, or a machine that runs.
    Alone(Vmid),
}

impl Key {
    /// What a step done on a node takes a place of there.
    pub(crate) fn of(step: StepKind, node: &NodeName) -> Self {
        let node = node.clone();
        match step {
            StepKind::Backup => Key::Backups(node),
            StepKind::Migrate => Key::Moves(node),
            StepKind::Shutdown | StepKind::Reboot => Key::Shutdowns(node),
            _ => Key::Node(node),
        }
    }

    /// Where the limit starts, and how far it may rise.
    fn range(&self) -> (f64, f64) {
        match self {
            Key::Node(_) => (4.0, 12.0),
            Key::Moves(_) => (2.0, 4.0),
            Key::Shutdowns(_) => (24.0, 96.0),
            Key::Storage(_) | Key::Template(_) => (6.0, 24.0),
            Key::Backups(_) | Key::Alone(_) => (1.0, 1.0),
        }
    }

    /// Whether it takes a place in the cluster as a whole, too.
    fn is_of_the_whole(&self) -> bool {
        !matches!(self, Key::Backups(_) | Key::Moves(_) | Key::Shutdowns(_))
    }
}

/// Whether work with these keys takes a place in the cluster as a whole.
fn are_of_the_whole(keys: &[Key]) -> bool {
    keys.iter().any(Key::is_of_the_whole)
}

/// The same for the cluster as a whole.
const WHOLE: (f64, f64) = (24.0, 96.0);

#[derive(Debug, Clone)]
struct Limit {
    allowed: f64,
    most: f64,
    busy: u32,
}

impl Limit {
    fn new((start, most): (f64, f64)) -> Self {
        Self {
            allowed: start,
            most,
            busy: 0,
        }
    }

    /// Whether one more fits in beside so many who were promised a place.
    fn has_room(&self, promised: usize) -> bool {
        let promised = u32::try_from(promised).unwrap_or(u32::MAX);
        f64::from(self.busy) + f64::from(promised) + 1.0 <= self.allowed.floor()
    }

    fn ended(&mut self, end: End) {
        self.busy = self.busy.saturating_sub(1);
        match end {
            End::Well => self.allowed = (self.allowed + 1.0 / self.allowed).min(self.most),
            End::Slow => self.allowed = (self.allowed * SLOWER).max(1.0),
            End::Congested => self.allowed = (self.allowed / 2.0).max(1.0),
            End::Other => {}
        }
    }
}

#[derive(Debug, Clone)]
struct Place {
    owner: Owner,
    keys: Vec<Key>,
    turn: u64,
    /// When it was called to come in; who does not come loses its place.
    called: Option<Instant>,
}

/// What is left of a limit after work that was slow.
const SLOWER: f64 = 0.9;

/// How long somebody who was called may take to come.
const PATIENCE: Duration = Duration::from_mins(1);

/// The doorkeeper of one cluster.
#[derive(Debug)]
pub(crate) struct Gate {
    whole: Limit,
    limits: BTreeMap<Key, Limit>,
    inside: BTreeMap<Owner, Vec<Key>>,
    /// In the order of turns.
    line: Vec<Place>,
    /// The turn of whoever was let in last.
    turn: u64,
    /// The next turn of each party that has had some in advance of that.
    next: BTreeMap<String, u64>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            whole: Limit::new(WHOLE),
            limits: BTreeMap::new(),
            inside: BTreeMap::new(),
            line: Vec::new(),
            turn: 0,
            next: BTreeMap::new(),
        }
    }
}

impl Gate {
    /// Lets the owner in, or puts it in line.
    pub(crate) fn enter(&mut self, owner: &Owner, keys: Vec<Key>, now: Instant) -> bool {
        self.leave_line_of_the_late(now);
        if self.inside.contains_key(owner) {
            return true;
        }
        let position = self.line.iter().position(|place| &place.owner == owner);
        let turn = match position {
            Some(at) => self.line[at].turn,
            None => self.take_turn(owner),
        };
        let place = Place {
            owner: owner.clone(),
            keys: keys.clone(),
            turn,
            called: None,
        };
        let at = position.unwrap_or_else(|| self.line.partition_point(|place| place.turn <= turn));
        match position {
            Some(_) => self.line[at] = place,
            None => self.line.insert(at, place),
        }
        if !self.fitting(at + 1).contains(&at) {
            return false;
        }
        self.line.remove(at);
        self.turn = self.turn.max(turn);
        self.next.retain(|_, next| *next > self.turn);
        self.take(owner, keys);
        true
    }

    /// Counts work that is already under way, whatever the limits say.
    pub(crate) fn count(&mut self, owner: &Owner, keys: Vec<Key>) {
        if !self.inside.contains_key(owner) {
            self.take(owner, keys);
        }
    }

    /// The owner's work has ended. Returns who may come in now.
    pub(crate) fn exit(&mut self, owner: &Owner, end: End, now: Instant) -> Vec<Owner> {
        let Some(keys) = self.inside.remove(owner) else {
            return Vec::new();
        };
        if are_of_the_whole(&keys) {
            self.whole.ended(end);
        }
        for key in &keys {
            self.limit(key).ended(end);
        }
        self.call(now)
    }

    /// The owner no longer wants to come in.
    pub(crate) fn forget(&mut self, owner: &Owner, now: Instant) -> Vec<Owner> {
        self.line.retain(|place| &place.owner != owner);
        self.exit(owner, End::Other, now)
    }

    /// How many stand in line.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// The turn of somebody who comes now: after those its party has had or waits for, and not before what was let in.
    fn take_turn(&mut self, owner: &Owner) -> u64 {
        let next = self.next.get(owner.party()).copied().unwrap_or_default();
        let turn = next.max(self.turn);
        self.next.insert(owner.party().to_owned(), turn + 1);
        turn
    }

    /// Calls everybody for whom there is room.
    fn call(&mut self, now: Instant) -> Vec<Owner> {
        let fitting = self.fitting(self.line.len());
        let call = |at: usize| {
            self.line[at].called = Some(now);
            self.line[at].owner.clone()
        };
        fitting.into_iter().map(call).collect()
    }

    /// For whom there is room among the first so many in line: beside all who were called, and everybody ahead who fits.
    /// Who does not fit keeps a place only where there is none, and so is in nobody's way elsewhere; the first of them keeps
    /// all its places, so that it need not wait for ever for two to be free at once.
    fn fitting(&self, among: usize) -> BTreeSet<usize> {
        let mut promised: BTreeMap<&Key, usize> = BTreeMap::new();
        let mut called = 0;
        for place in self.line.iter().filter(|place| place.called.is_some()) {
            place
                .keys
                .iter()
                .for_each(|key| *promised.entry(key).or_default() += 1);
            called += usize::from(are_of_the_whole(&place.keys));
        }
        let mut fitting = BTreeSet::new();
        let mut first = true;
        for (at, place) in self.line.iter().enumerate().take(among) {
            let of_the_whole = are_of_the_whole(&place.keys);
            if place.called.is_some() || of_the_whole && !self.whole.has_room(called) {
                continue;
            }
            let is_full = |key: &&Key| {
                let promised = promised.get(key).copied().unwrap_or_default();
                match self.limits.get(key) {
                    Some(limit) => !limit.has_room(promised),
                    None => !Limit::new(key.range()).has_room(promised),
                }
            };
            let full: Vec<&Key> = place.keys.iter().filter(is_full).collect();
            let kept = if full.is_empty() {
                fitting.insert(at);
                called += usize::from(of_the_whole);
                place.keys.iter().collect()
            } else if std::mem::take(&mut first) {
                place.keys.iter().collect()
            } else {
                full
            };
            for key in kept {
                *promised.entry(key).or_default() += 1;
            }
        }
        fitting
    }

    fn leave_line_of_the_late(&mut self, now: Instant) {
        self.line
            .retain(|place| place.called.is_none_or(|called| now - called < PATIENCE));
    }

    fn take(&mut self, owner: &Owner, keys: Vec<Key>) {
        self.whole.busy += u32::from(are_of_the_whole(&keys));
        for key in &keys {
            self.limit(key).busy += 1;
        }
        self.inside.insert(owner.clone(), keys);
    }

    fn limit(&mut self, key: &Key) -> &mut Limit {
        self.limits
            .entry(key.clone())
            .or_insert_with(|| Limit::new(key.range()))
    }
}

/// How work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Well.
    Well,
    /// Well, but it took several times as long as on a quiet host.
    Slow,
    /// On a lock somebody else held too long.
    Congested,
    /// In another way, which says nothing about load.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: usize) -> Owner {
        Owner::new(format!("o{n}")).unwrap()
    }

    fn node(name: &str) -> Vec<Key> {
        vec![Key::Node(NodeName::new(name).unwrap())]
    }

    #[test]
    fn a_busy_node_makes_wait_and_the_first_in_line_comes_first() {
        let now = Instant::now();
        let mut gate = Gate::default();
        for n in 0..4 {
            assert!(gate.enter(&owner(n), node("a"), now));
        }
        assert!(!gate.enter(&owner(4), node("a"), now));
        assert!(!gate.enter(&owner(5), node("a"), now));
        assert!(
            gate.enter(&owner(6), node("b"), now),
            "another node has room"
        );
        assert_eq!(gate.exit(&owner(0), End::Other, now), vec![owner(4)]);
        assert!(
            !gate.enter(&owner(5), node("a"), now),
            "the place belongs to who came first"
        );
        assert!(gate.enter(&owner(4), node("a"), now));
    }

    #[test]
    fn parties_take_turns_however_many_each_of_them_sends() {
        let now = Instant::now();
        let mut gate = Gate::default();
        let of = |party: &str, n: usize| Owner::new(format!("vm/{party}/{n}/uid")).unwrap();
        let large: Vec<_> = (0..20).map(|n| of("large", n)).collect();
        let small: Vec<_> = (0..2).map(|n| of("small", n)).collect();
        for owner in large.iter().chain(&small) {
            gate.enter(owner, node("a"), now);
        }
        let mut inside: Vec<Owner> = large[..4].to_vec();
        let mut order = Vec::new();
        while let Some(owner) = inside.pop() {
            for next in gate.exit(&owner, End::Other, now) {
                assert!(gate.enter(&next, node("a"), now), "{next} was called");
                inside.insert(0, next.clone());
                order.push(next);
            }
        }
        assert_eq!(order.len(), 18, "everybody had a turn");
        let turn = |owner: &Owner| order.iter().position(|other| other == owner).unwrap();
        assert!(turn(&small[0]) <= 1 && turn(&small[1]) <= 3, "{order:?}");
        let of_large: Vec<_> = large[4..].iter().map(turn).collect();
        assert!(of_large.is_sorted(), "who came first is first: {order:?}");
    }

    #[test]
    fn however_many_wait_for_one_node_another_node_has_room() {
        let now = Instant::now();
        let mut gate = Gate::default();
        let inside = (0..100).filter(|n| gate.enter(&owner(*n), node("a"), now));
        assert_eq!(inside.count(), 4);
        let inside = (100..200).filter(|n| gate.enter(&owner(*n), node("b"), now));
        assert_eq!(inside.count(), 4);
        assert_eq!(gate.exit(&owner(100), End::Other, now), vec![owner(104)]);
    }

    #[test]
    fn who_waits_for_a_node_does_not_keep_the_template_from_others() {
        let now = Instant::now();
        let mut gate = Gate::default();
        let copy = |name| [node(name), vec![Key::Template(Vmid::new(9000).unwrap())]].concat();
        let inside = (0..100).filter(|n| gate.enter(&owner(*n), copy("a"), now));
        assert_eq!(inside.count(), 4, "as many as the node allows");
        assert!(gate.enter(&owner(100), copy("b"), now));
        assert!(
            !gate.enter(&owner(101), copy("b"), now),
            "the last place at the template is kept for the first in line"
        );
    }

    #[test]
    fn what_takes_long_keeps_nothing_else_out() {
        let now = Instant::now();
        let mut gate = Gate::default();
        let mut next = 0;
        let mut let_in = |gate: &mut Gate, step: StepKind, node: &str| {
            let node = NodeName::new(node).unwrap();
            let many = (next..next + 100).map(owner);
            next += 100;
            many.filter(|who| gate.enter(who, vec![Key::of(step, &node)], now))
                .count()
        };
        for n in 0..30 {
            let node = format!("n{n}");
            assert_eq!(let_in(&mut gate, StepKind::Backup, &node), 1);
            assert_eq!(let_in(&mut gate, StepKind::Migrate, &node), 2);
            assert_eq!(let_in(&mut gate, StepKind::Shutdown, &node), 24);
        }
        assert_eq!(gate.whole.busy, 0);
        assert_eq!(let_in(&mut gate, StepKind::Start, "n0"), 4);
        assert_eq!(let_in(&mut gate, StepKind::Clone, "n1"), 4);
        assert_eq!(gate.whole.busy, 8);
        let backup = gate
            .inside
            .iter()
            .find(|(_, keys)| matches!(&keys[..], [Key::Backups(node)] if node.as_str() == "n0"));
        let backup = backup.unwrap().0.clone();
        assert_eq!(gate.exit(&backup, End::Well, now).len(), 1, "one by one");
    }

    #[test]
    fn who_does_not_come_when_called_loses_the_place() {
        let now = Instant::now();
        let mut gate = Gate::default();
        for n in 0..4 {
            gate.enter(&owner(n), node("a"), now);
        }
        gate.enter(&owner(4), node("a"), now);
        gate.exit(&owner(0), End::Other, now);
        assert!(gate.enter(&owner(5), node("a"), now + PATIENCE * 2));
    }

    #[test]
    fn a_lock_timeout_halves_the_limit_and_good_ends_raise_it() {
        let now = Instant::now();
        let mut gate = Gate::default();
        gate.enter(&owner(0), node("a"), now);
        gate.exit(&owner(0), End::Congested, now);
        let admitted = (10..20)
            .filter(|n| gate.enter(&owner(*n), node("a"), now))
            .count();
        assert_eq!(admitted, 2);
        for round in 0..40 {
            let who = owner(100 + round);
            gate.forget(&owner(10), now);
            gate.enter(&who, node("b"), now);
            gate.exit(&who, End::Well, now);
        }
        let admitted = (200..230)
            .filter(|n| gate.enter(&owner(*n), node("b"), now))
            .count();
        assert!(admitted > 4 && admitted <= 12, "{admitted}");
    }

    #[test]
    fn work_that_is_slow_lowers_the_limit_step_by_step_and_never_to_nothing() {
        let now = Instant::now();
        let mut gate = Gate::default();
        let admitted = |gate: &mut Gate| {
            let all: Vec<_> = (100..120).map(owner).collect();
            let inside = all
                .iter()
                .filter(|who| gate.enter(who, node("a"), now))
                .count();
            for who in &all {
                gate.forget(who, now);
            }
            inside
        };
        assert_eq!(admitted(&mut gate), 4);
        for round in 0..2 {
            gate.enter(&owner(round), node("a"), now);
            gate.exit(&owner(round), End::Slow, now);
        }
        assert_eq!(admitted(&mut gate), 3);
        for round in 0..50 {
            gate.enter(&owner(round), node("a"), now);
            gate.exit(&owner(round), End::Slow, now);
        }
        assert_eq!(admitted(&mut gate), 1);
    }

    #[test]
    fn nothing_is_counted_after_everybody_has_left() {
        let now = Instant::now();
        let mut gate = Gate::default();
        for n in 0..50 {
            gate.enter(&owner(n), node("a"), now);
        }
        for n in 0..50 {
            gate.forget(&owner(n), now);
        }
        assert_eq!(gate.waiting(), 0);
        assert_eq!(gate.whole.busy, 0);
        assert!(gate.limits.values().all(|limit| limit.busy == 0));
    }
}
