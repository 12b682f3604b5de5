//! Runs simulations by seed: `simulate --seeds 100 --from 0`.

#![expect(clippy::print_stdout, reason = "this program's output is its result")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok())
            .unwrap_or(default)
    };
    let (from, seeds) = (number("--from", 0), number("--seeds", 100));
    let (mut failed, mut calls, mut crashes) = (0u64, 0u64, 0u64);
    for seed in from..from + seeds {
        let story = scenarios::simulate(seed);
        calls += story.calls;
        crashes += u64::from(story.crashes);
        if !story.wrong.is_empty() {
            failed += 1;
            println!("{}", story.tell());
        }
    }
    println!("{seeds} seeds from {from}: {failed} failed; {calls} calls, {crashes} crashes");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
