//! Runs simulations by seed (`simulate --seeds 100 --from 0`), or crashes at every call (`simulate --crashes`).

#![expect(clippy::print_stdout, reason = "this program's output is its result")]
#![expect(
    clippy::disallowed_methods,
    reason = "how long a run took is told in real seconds"
)]

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use scenarios::Flow;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok())
            .unwrap_or(default)
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = number("--threads", cores as u64).max(1);
    let asked_for = |name: &str| arguments.iter().any(|argument| argument == name);
    let sound = if asked_for("--twice") {
        twice(number("--from", 0), number("--seeds", 100))
    } else if asked_for("--crashes") {
        let only = arguments.iter().position(|argument| argument == "--flow");
        let only = only
            .and_then(|at| arguments.get(at + 1))
            .map(String::as_str);
        crashes(only, number("--stride", 1), threads)
    } else {
        let tell = asked_for("--tell");
        seeds(number("--from", 0), number("--seeds", 100), threads, tell)
    };
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn seeds(from: u64, seeds: u64, threads: u64, tell: bool) -> bool {
    let begun = Instant::now();
    let next = AtomicU64::new(from);
    let (failed, calls, crashed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= from + seeds {
                        return;
                    }
                    let story = scenarios::simulate(seed);
                    calls.fetch_add(story.calls, Ordering::SeqCst);
                    crashed.fetch_add(u64::from(story.crashes), Ordering::SeqCst);
                    if tell {
                        println!("{}", story.trace.join("\n"));
                    }
                    if !story.wrong.is_empty() {
                        failed.fetch_add(1, Ordering::SeqCst);
                    }
                    if tell || !story.wrong.is_empty() {
                        println!("{}", story.tell());
                    }
                }
            });
        }
    });
    let (failed, calls) = (failed.into_inner(), calls.into_inner());
    let (crashed, seconds) = (crashed.into_inner(), begun.elapsed().as_secs());
    println!(
        "{seeds} seeds from {from}: {failed} failed; {calls} calls, {crashed} crashes, {seconds} s"
    );
    failed == 0
}

/// Runs each seed twice, and shows where the second run leaves the course of the first.
fn twice(from: u64, seeds: u64) -> bool {
    let mut sound = true;
    for seed in from..from + seeds {
        let (first, second) = (scenarios::simulate(seed), scenarios::simulate(seed));
        let course = |story: &scenarios::Story| [story.lines.clone(), story.trace.clone()].concat();
        let (first, second) = (course(&first), course(&second));
        let same = first.iter().zip(&second).take_while(|(a, b)| a == b);
        let same = same.count();
        if same == first.len().max(second.len()) {
            println!("seed {seed}: the same course twice, {same} lines");
            continue;
        }
        sound = false;
        let near = |lines: &[String]| {
            let from = same.saturating_sub(5);
            lines[from..lines.len().min(same + 5)].join("\n")
        };
        println!(
            "seed {seed} parts after {same} lines:\n{}\n-- or --\n{}",
            near(&first),
            near(&second)
        );
    }
    sound
}

fn crashes(only: Option<&str>, stride: u64, threads: u64) -> bool {
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let (mut points, mut wrong) = (0, 0);
    for flow in Flow::ALL {
        if only.is_some_and(|only| only != format!("{flow:?}")) {
            continue;
        }
        let begun = Instant::now();
        let crashes = flow.everywhere(count(stride), count(threads));
        let seconds = begun.elapsed().as_secs();
        println!(
            "{flow:?}: {} calls, crashed at {} points, {} wrong, {seconds} s",
            crashes.calls,
            crashes.points,
            crashes.wrong.len()
        );
        for text in &crashes.wrong {
            println!("{text}");
        }
        points += crashes.points;
        wrong += crashes.wrong.len();
    }
    println!("{points} crash points in all, {wrong} wrong");
    wrong == 0
}
