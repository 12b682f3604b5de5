//! Many lives at once: each seed on a clock and a thread of its own.

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{Story, Tally};

/// What came of many lives.
#[derive(Debug, Default)]
pub struct Lives {
    /// How many there were.
    pub lived: u64,
    /// Calls of the controllers.
    pub calls: u64,
    /// How often the controllers crashed.
    pub crashes: u64,
    /// What they were made of.
    pub tally: Tally,
    /// Those that did not end well, by seed.
    pub failed: Vec<Story>,
}

/// Lives the lives of these seeds on so many threads; `tell` hears of each when it has ended.
pub fn lives(
    seeds: Range<u64>,
    threads: usize,
    live: fn(u64) -> Story,
    tell: impl Fn(&Story) + Sync,
) -> Lives {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new(Lives::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds.end {
                        return;
                    }
                    let story = live(seed);
                    tell(&story);
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.lived += 1;
                    all.calls += story.calls;
                    all.tally.join(&story.tally);
                    all.crashes += u64::from(story.crashes);
                    if !story.wrong.is_empty() {
                        all.failed.push(story);
                    }
                }
            });
        }
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.failed.sort_by_key(|story| story.seed);
    all
}
