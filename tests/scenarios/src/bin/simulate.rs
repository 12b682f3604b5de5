//! Runs simulations by seed (`simulate --seeds 100 --from 0`), or crashes at every call (`simulate --crashes`).
//!
//! With `--clusters` the lives are those of Kubernetes clusters instead of virtual machines; `--tell` prints every call of a
//! life, and `--twice` lives each one twice and shows where the second leaves the course of the first.

#![expect(clippy::print_stdout, reason = "this program's output is its result")]
#![expect(
    clippy::disallowed_methods,
    reason = "how long a run took is told in real seconds"
)]

use std::{process::ExitCode, time::Instant};

use scenarios::{Flow, Story};

/// One life of a seed.
type Live = fn(u64) -> Story;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok())
            .unwrap_or(default)
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let threads = count(number("--threads", cores as u64));
    let asked_for = |name: &str| arguments.iter().any(|argument| argument == name);
    let live: Live = if asked_for("--clusters") {
        scenarios::simulate_clusters
    } else {
        scenarios::simulate
    };
    let (from, many) = (number("--from", 0), number("--seeds", 100));
    let sound = if asked_for("--twice") {
        twice(from, many, live)
    } else if asked_for("--crashes") {
        let only = arguments.iter().position(|argument| argument == "--flow");
        let only = only
            .and_then(|at| arguments.get(at + 1))
            .map(String::as_str);
        crashes(only, count(number("--stride", 1)), threads)
    } else {
        seeds(from, many, threads, live, asked_for("--tell"))
    };
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn seeds(from: u64, seeds: u64, threads: usize, live: Live, tell: bool) -> bool {
    let begun = Instant::now();
    let lives = scenarios::lives(from..from + seeds, threads, live, |story| {
        if tell {
            println!("{}", story.trace.join("\n"));
        }
        if tell || !story.wrong.is_empty() {
            println!("{}", story.tell());
        }
    });
    let failed: Vec<u64> = lives.failed.iter().map(|story| story.seed).collect();
    println!(
        "{} seeds from {from}: {} failed {:?}; {} calls, {} crashes, {} s",
        lives.lived,
        failed.len(),
        failed,
        lives.calls,
        lives.crashes,
        begun.elapsed().as_secs()
    );
    failed.is_empty()
}

/// Runs each seed twice, and shows where the second run leaves the course of the first.
fn twice(from: u64, seeds: u64, live: Live) -> bool {
    let mut sound = true;
    for seed in from..from + seeds {
        let (first, second) = (live(seed), live(seed));
        let course = |story: &Story| [story.lines.clone(), story.trace.clone()].concat();
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

fn crashes(only: Option<&str>, stride: usize, threads: usize) -> bool {
    let (mut points, mut wrong) = (0, 0);
    for flow in Flow::ALL {
        if only.is_some_and(|only| only != format!("{flow:?}")) {
            continue;
        }
        let begun = Instant::now();
        let crashes = flow.everywhere(stride, threads);
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
