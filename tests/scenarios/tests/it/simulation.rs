//! Random lives, and crashes at every single call.
//!
//! These are the small change: `cargo xtask simulate` runs them by the hundred, and crashes at every call instead of
//! some, in a faster build.

use scenarios::{Flow, simulate};

#[test]
#[ignore = "takes minutes unoptimized: `cargo xtask simulate` runs it by the hundred"]
fn random_lives_under_faults_and_crashes_end_well() {
    for seed in 0..4 {
        let story = simulate(seed);
        assert!(story.wrong.is_empty(), "{}", story.tell());
    }
}

#[test]
#[ignore = "takes minutes unoptimized"]
fn the_same_seed_takes_the_same_course() {
    let (first, second) = (simulate(11), simulate(11));
    assert_eq!(first.lines, second.lines);
    assert_eq!(first.calls, second.calls);
}

#[test]
#[ignore = "takes minutes unoptimized: `cargo xtask simulate --crashes` crashes at every call"]
fn a_crash_at_some_calls_of_any_flow_is_survived() {
    for flow in Flow::ALL {
        let crashes = flow.everywhere(29, 1);
        assert!(crashes.calls > 5, "{crashes:?}");
        assert_eq!(crashes.wrong, Vec::<String>::new());
    }
}
