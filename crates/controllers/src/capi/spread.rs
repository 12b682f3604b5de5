//! Which Proxmox VE cluster the next machine goes to.
//!
//! Evenly by weight: the instance that would be the least full for its weight takes the next machine. It is a function of what is there
//! now, so a restart changes nothing; and an instance that does not answer takes none, while its machines are left alone.
//! An instance with no node that has room is passed over for as long as another has one.
//!
//! Many machines are chosen for at once, and a choice shows in the watch only later. So choosing is done by one at a time, who
//! also counts what others have chosen and the watch does not show yet ([`Chosen`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The instances that were chosen and may not be seen in the watch yet, by the machine's UID.
#[derive(Default)]
pub(crate) struct Chosen(Mutex<BTreeMap<String, String>>);

impl Chosen {
    /// Keeps everybody else from choosing meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An instance that may take a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Candidate<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its share; 0 takes machines only when asked for by name.
    pub(crate) weight: u32,
    /// Machines of the same role it holds already, those being made included.
    pub(crate) machines: u32,
    /// It answers.
    pub(crate) ready: bool,
    /// One of its nodes has room for the machine.
    pub(crate) fits: bool,
    /// Memory that is free on its nodes, in bytes.
    pub(crate) free_memory: u64,
}

/// The instance for one more machine, or nothing when none can take it now.
pub(crate) fn choose<'a>(candidates: &[Candidate<'a>]) -> Option<&'a str> {
    candidates
        .iter()
        .filter(|candidate| candidate.ready && candidate.weight > 0)
        .min_by(|a, b| {
            // (machines + 1) / weight, compared without division.
            let a_load = u64::from(a.machines + 1) * u64::from(b.weight);
            let b_load = u64::from(b.machines + 1) * u64::from(a.weight);
            b.fits
                .cmp(&a.fits)
                .then(a_load.cmp(&b_load))
                .then(b.free_memory.cmp(&a.free_memory))
        })
        .map(|candidate| candidate.name)
}

/// The instance that mode SingleInstance picks for a cluster: any that answers, the same one for the same cluster while that set lasts.
pub(crate) fn pick_one<'a>(candidates: &[Candidate<'a>], cluster_uid: &str) -> Option<&'a str> {
    let ready: Vec<_> = candidates
        .iter()
        .filter(|candidate| candidate.ready)
        .collect();
    // A UID is random already: its digits are as good as a die, and fall the same way every time.
    let throw: usize = cluster_uid.bytes().map(usize::from).sum();
    ready
        .get(throw.checked_rem(ready.len())?)
        .map(|candidate| candidate.name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(name: &str, weight: u32) -> Candidate<'_> {
        Candidate {
            name,
            weight,
            ready: true,
            fits: true,
            ..Candidate::default()
        }
    }

    fn spread(mut candidates: Vec<Candidate<'_>>, machines: u32) -> Vec<u32> {
        for _ in 0..machines {
            let chosen = choose(&candidates).unwrap();
            candidates
                .iter_mut()
                .find(|c| c.name == chosen)
                .unwrap()
                .machines += 1;
        }
        candidates.iter().map(|c| c.machines).collect()
    }

    #[test]
    fn equal_weights_share_equally() {
        assert_eq!(
            spread(vec![candidate("a", 1), candidate("b", 1)], 10),
            [5, 5]
        );
    }

    #[test]
    fn weights_are_proportions() {
        assert_eq!(
            spread(vec![candidate("a", 3), candidate("b", 1)], 12),
            [9, 3]
        );
    }

    #[test]
    fn an_instance_that_is_down_takes_nothing() {
        let down = Candidate {
            ready: false,
            ..candidate("a", 1)
        };
        assert_eq!(spread(vec![down.clone(), candidate("b", 1)], 4), [0, 4]);
        assert_eq!(choose(&[down]), None);
    }

    #[test]
    fn more_free_memory_breaks_a_tie() {
        let roomy = Candidate {
            free_memory: 1,
            ..candidate("b", 1)
        };
        assert_eq!(choose(&[candidate("a", 1), roomy]), Some("b"));
    }

    #[test]
    fn a_full_instance_is_passed_over_until_all_are_full() {
        let full = |name| Candidate {
            fits: false,
            ..candidate(name, 1)
        };
        let busy = Candidate {
            machines: 9,
            ..candidate("b", 1)
        };
        assert_eq!(choose(&[full("a"), busy]), Some("b"));
        assert_eq!(choose(&[full("a"), full("b")]), Some("a"));
    }

    #[test]
    fn the_single_instance_of_a_cluster_does_not_change() {
        let candidates = [candidate("a", 1), candidate("b", 1), candidate("c", 1)];
        let first = pick_one(&candidates, "7d1c");
        assert!(first.is_some());
        assert_eq!(pick_one(&candidates, "7d1c"), first);
        assert_eq!(pick_one(&[], "7d1c"), None);
    }

    proptest! {
        #[test]
        fn no_instance_would_rather_have_anothers_load(
            weights in prop::collection::vec(1..9_u32, 1..5), machines in 0..60_u32,
        ) {
            let names = ["a", "b", "c", "d"];
            let candidates: Vec<_> =
                weights.iter().zip(names).map(|(weight, name)| candidate(name, *weight)).collect();
            let held = spread(candidates, machines);
            for (mine, my_weight) in held.iter().zip(&weights) {
                for (other, other_weight) in held.iter().zip(&weights) {
                    prop_assert!(mine * other_weight <= (other + 1) * my_weight);
                }
            }
        }
    }
}
