//! How much may go on at once.
//!
//! PVE has no queue: whoever sends a hundred clones gets a hundred, and most of them fail on a lock.
//! So work is let in by node, by storage, by template and for the cluster as a whole. The limits start
//! low and feel their way: a lock timeout halves the limits concerned, work that takes several times as
//! long as it does on a quiet host lowers them by a tenth, work that ends well raises them by a little. Whoever finds no room stands in one line; who is next is who came first, except
//! that nobody waits for a place somebody else needs elsewhere.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{NodeName, Owner, StorageId, Vmid};

/// Something that can be busy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Cluster,
    Node(NodeName),
    Storage(StorageId),
    Template(Vmid),
}

impl Key {
    /// Where the limit starts, and how far it may rise.
    fn range(&self) -> (f64, f64) {
        match self {
            Key::Cluster => (24.0, 96.0),
            Key::Node(_) => (4.0, 12.0),
            Key::Storage(_) | Key::Template(_) => (6.0, 24.0),
        }
    }
}

#[derive(Debug, Clone)]
struct Limit {
    allowed: f64,
    busy: u32,
}

#[derive(Debug, Clone)]
struct Place {
    owner: Owner,
    keys: Vec<Key>,
    /// When it was called to come in; who does not come loses its place.
    called: Option<Instant>,
}

/// What is left of a limit after work that was slow.
const SLOWER: f64 = 0.9;

/// How long somebody who was called may take to come.
const PATIENCE: Duration = Duration::from_mins(1);

/// The doorkeeper of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    limits: BTreeMap<Key, Limit>,
    inside: BTreeMap<Owner, Vec<Key>>,
    line: VecDeque<Place>,
}

impl Gate {
    /// Lets the owner in, or puts it in line.
    pub(crate) fn enter(&mut self, owner: &Owner, keys: Vec<Key>, now: Instant) -> bool {
        self.leave_line_of_the_late(now);
        if self.inside.contains_key(owner) {
            return true;
        }
        let position = self.line.iter().position(|place| &place.owner == owner);
        let ahead = position.unwrap_or(self.line.len());
        if self.fits(&keys, ahead) {
            if let Some(position) = position {
                self.line.remove(position);
            }
            self.take(owner, keys);
            return true;
        }
        match position {
            Some(position) => {
                self.line[position].keys = keys;
                self.line[position].called = None;
            }
            None => self.line.push_back(Place {
                owner: owner.clone(),
                keys,
                called: None,
            }),
        }
        false
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
        for key in &keys {
            let (_, most) = key.range();
            let limit = self.limit(key);
            limit.busy = limit.busy.saturating_sub(1);
            match end {
                End::Well => limit.allowed = (limit.allowed + 1.0 / limit.allowed).min(most),
                End::Slow => limit.allowed = (limit.allowed * SLOWER).max(1.0),
                End::Congested => limit.allowed = (limit.allowed / 2.0).max(1.0),
                End::Other => {}
            }
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

    fn call(&mut self, now: Instant) -> Vec<Owner> {
        let mut called = Vec::new();
        for at in 0..self.line.len() {
            if self.line[at].called.is_some() {
                continue;
            }
            let keys = self.line[at].keys.clone();
            if self.fits(&keys, at) {
                self.line[at].called = Some(now);
                called.push(self.line[at].owner.clone());
            }
        }
        called
    }

    fn leave_line_of_the_late(&mut self, now: Instant) {
        self.line
            .retain(|place| place.called.is_none_or(|called| now - called < PATIENCE));
    }

    fn take(&mut self, owner: &Owner, keys: Vec<Key>) {
        for key in &keys {
            self.limit(key).busy += 1;
        }
        self.inside.insert(owner.clone(), keys);
    }

    /// Whether there is room, with everybody ahead in line already let in.
    fn fits(&mut self, keys: &[Key], ahead: usize) -> bool {
        keys.iter().all(|key| {
            let waiting = self
                .line
                .iter()
                .take(ahead)
                .filter(|p| p.keys.contains(key))
                .count();
            let limit = self.limit(key);
            let busy =
                f64::from(limit.busy) + f64::from(u32::try_from(waiting).unwrap_or(u32::MAX));
            busy + 1.0 <= limit.allowed.floor()
        })
    }

    fn limit(&mut self, key: &Key) -> &mut Limit {
        let (start, _) = key.range();
        self.limits.entry(key.clone()).or_insert(Limit {
            allowed: start,
            busy: 0,
        })
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
        vec![Key::Cluster, Key::Node(NodeName::new(name).unwrap())]
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
        assert!(gate.limits.values().all(|limit| limit.busy == 0));
    }
}
