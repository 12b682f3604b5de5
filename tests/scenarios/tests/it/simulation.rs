//! Random lives, and crashes at some calls of every flow.
//!
//! `cargo xtask simulate` lives by the thousand, and crashes at every call instead of some.

use scenarios::{Flow, Lives, MUST_HAPPEN, Story, lives, simulate, simulate_clusters};

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

type Live = fn(u64) -> Story;

fn end_well(seeds: std::ops::Range<u64>, live: Live) -> Lives {
    let many = seeds.end - seeds.start;
    let all = lives(seeds, threads(), live, |_| {});
    let stories: String = all.failed.iter().map(Story::tell).collect();
    assert!(all.failed.is_empty(), "{stories}");
    assert_eq!(all.lived, many);
    assert!(all.crashes > 0, "nothing was put to the test");
    all
}

#[test]
fn random_lives_under_faults_and_crashes_end_well() {
    let tally = end_well(0..200, simulate).tally;
    let never: Vec<_> = MUST_HAPPEN.iter().filter(|it| tally.of(it) == 0).collect();
    assert!(never.is_empty(), "never happened: {never:?}\n{tally}");
}

#[test]
fn random_lives_of_clusters_end_well() {
    end_well(0..40, simulate_clusters);
}

#[test]
fn the_same_seed_takes_the_same_course() {
    let lives: [(u64, Live); 2] = [(3, simulate), (1, simulate_clusters)];
    for (seed, live) in lives {
        let (first, second) = (live(seed), live(seed));
        assert_eq!(first.lines, second.lines);
        let mut both = first.trace.iter().zip(&second.trace);
        assert_eq!(both.find(|(first, second)| first != second), None);
        assert_eq!(first.trace.len(), second.trace.len());
    }
}

#[test]
fn a_crash_at_some_calls_of_any_flow_is_survived() {
    for flow in Flow::ALL {
        let crashes = flow.everywhere(29, threads());
        assert!(crashes.calls > 5, "{crashes:?}");
        assert_eq!(crashes.wrong, Vec::<String>::new());
    }
}
