//! Random lives by seed, and crashes at every call: what `cargo xtask simulate` runs.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this program's output is its result, and how far it has come is told beside it"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "how long a run took is told in real seconds"
)]

use std::{
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use scenarios::{Flow, Story};

/// One life of a seed.
type Live = fn(u64) -> Story;

/// How often it is told how far a run has come.
const TELL: Duration = Duration::from_secs(30);

/// Random lives of machines under faults and crashes, one for each seed; a failing seed prints its story.
///
/// A seed takes the same course every time, so a failure is looked at by its number.
#[derive(Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed; with `--seeds 1` only this one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The lives of Kubernetes clusters instead of virtual machines.
    #[arg(long)]
    clusters: bool,
    /// Print every call of a life.
    #[arg(long)]
    tell: bool,
    /// Live each life twice and show where the second leaves the course of the first.
    #[arg(long, conflicts_with = "tell")]
    twice: bool,
    /// Crash at every single call of each flow instead, and say how many points there were.
    #[arg(long, conflicts_with_all = ["seeds", "from", "clusters", "tell", "twice"])]
    crashes: bool,
    /// With `--crashes`: only every so many-th point.
    #[arg(long, default_value_t = 1, requires = "crashes")]
    stride: usize,
    /// With `--crashes`: only this flow, such as `Migrate`.
    #[arg(long, requires = "crashes", value_parser = flow)]
    flow: Option<Flow>,
    /// How many at the same time; otherwise one for each core.
    #[arg(long)]
    threads: Option<usize>,
}

fn flow(name: &str) -> Result<Flow, String> {
    let all = Flow::ALL.iter();
    let found = all.copied().find(|flow| format!("{flow:?}") == name);
    found.ok_or_else(|| format!("there are {:?}", Flow::ALL))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cores = || thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = arguments.threads.unwrap_or_else(cores);
    let live: Live = if arguments.clusters {
        scenarios::simulate_clusters
    } else {
        scenarios::simulate
    };
    let (from, many) = (arguments.from, arguments.seeds);
    let sound = if arguments.twice {
        twice(from, many, live)
    } else if arguments.crashes {
        crashes(arguments.flow, arguments.stride, threads)
    } else {
        seeds(from, many, threads, live, arguments.tell)
    };
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn seeds(from: u64, seeds: u64, threads: usize, live: Live, tell: bool) -> bool {
    let begun = Instant::now();
    let told = Mutex::new((begun, 0, 0));
    let lives = scenarios::lives(from..from + seeds, threads, live, |story| {
        let mut so_far = told.lock().unwrap_or_else(PoisonError::into_inner);
        so_far.1 += 1;
        so_far.2 += u64::from(!story.wrong.is_empty());
        if so_far.0.elapsed() >= TELL {
            so_far.0 = Instant::now();
            eprintln!("{} of {seeds} lived, {} failed", so_far.1, so_far.2);
        }
        drop(so_far);
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
    print!("{}", lives.tally);
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

fn crashes(only: Option<Flow>, stride: usize, threads: usize) -> bool {
    let (mut points, mut wrong) = (0, 0);
    for flow in Flow::ALL {
        if only.is_some_and(|only| only != flow) {
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
