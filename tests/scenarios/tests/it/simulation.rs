//! Random lives, and crashes at every single call.
//!
//! These are the small change: `cargo xtask simulate` runs them by the hundred, and crashes at every call instead of
//! some, in a faster build. They are ignored because they do not hold yet: a seed does not take the same course
//! twice, and not every seed ends well.

use scenarios::{Flow, simulate};

#[test]
#[ignore = "not every seed ends well yet: `cargo xtask simulate`"]
fn random_lives_under_faults_and_crashes_end_well() {
    for seed in 0..4 {
        let story = simulate(seed);
        assert!(story.wrong.is_empty(), "{}", story.tell());
    }
}

#[test]
fn the_same_seed_takes_the_same_course() {
    for seed in [3, 11] {
        let (first, second) = (simulate(seed), simulate(seed));
        assert_eq!(first.lines, second.lines);
        let mut both = first.trace.iter().zip(&second.trace);
        assert_eq!(both.find(|(first, second)| first != second), None);
        assert_eq!(first.trace.len(), second.trace.len());
    }
}

#[test]
#[ignore = "not seen to pass yet: `cargo xtask simulate --crashes`"]
fn a_crash_at_some_calls_of_any_flow_is_survived() {
    for flow in Flow::ALL {
        let crashes = flow.everywhere(29, 1);
        assert!(crashes.calls > 5, "{crashes:?}");
        assert_eq!(crashes.wrong, Vec::<String>::new());
    }
}
