//! The front door for people and CI: `cargo xtask …`.

mod audit;
mod clusterctl;
mod fuzz;
mod generate;
mod run;
mod suites;
mod testbed;

use anyhow::Result;
use clap::{Parser, Subcommand};

use run::cargo;

/// Builds, checks, generates and measures Oxmox.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI runs: formatting, lints and all tests.
    Test,
    /// Generates the files made from published facts (Kubernetes' types).
    Gen,
    /// The fast part: formatting and lints.
    Check,
    /// Licences, sources, banned crates and known holes of what we depend on.
    ///
    /// Not part of `test`: its tool takes minutes to build, once per machine, and known holes need the network.
    Audit,
    /// Feeds the client's readers with texts that coverage finds interesting; needs a nightly compiler.
    Fuzz {
        /// For how long.
        #[arg(long, default_value_t = 300)]
        seconds: u64,
    },
    /// Random lives of machines under faults and crashes, one for each seed; a failing seed prints its story.
    ///
    /// A seed takes the same course every time, so a failure is looked at by its number. `test` lives some of them, in a
    /// slower build.
    Simulate {
        /// Options of the simulation, such as `--seeds 200 --from 0`; `cargo xtask simulate -- --help` tells them all.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures, in release mode: `bench apiserver` compares the embedded API server with the real one.
    Bench {
        /// What to measure, and its options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Writes a repository that the real clusterctl installs the Cluster API provider from.
    ///
    /// The last line printed is the file to name as the provider's `url` in clusterctl's configuration.
    Clusterctl(clusterctl::Args),
    /// Lets a peer and Oxmox do the same work on the same simulated Proxmox VE, under the real Cluster API.
    BenchPeer {
        /// Whom: capmox.
        #[arg(value_parser = ["capmox"])]
        peer: String,
        /// How many machines at once; several are measured one after the other.
        #[arg(long, default_values_t = [10, 100], value_delimiter = ',', value_name = "N")]
        machines: Vec<usize>,
        /// Where the figures are written, from cargo's target directory on, besides the table that is printed.
        #[arg(long, default_value = "bench-peer.json", value_name = "FILE")]
        json: std::path::PathBuf,
    },
    /// Builds the real Kubernetes components that the suites compare with.
    ///
    /// The last line printed is the directory of the programs.
    Testbed(testbed::Args),
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Test => {
            check()?;
            prepare_testbed()?;
            suites::test()
        }
        Command::Check => check(),
        Command::Audit => audit::audit(),
        Command::Fuzz { seconds } => fuzz::fuzz(seconds),
        Command::Simulate { arguments } => simulate(&arguments),
        Command::Bench { arguments } => {
            prepare_testbed()?;
            let mut command = vec!["run", "--release", "--package", "bench", "--"];
            command.extend(arguments.iter().map(String::as_str));
            cargo(&command)
        }
        Command::BenchPeer {
            peer,
            machines,
            json,
        } => bench_peer(&peer, &machines, &run::target().join(json)),
        Command::Gen => generate::generate(),
        Command::Clusterctl(args) => clusterctl::write(&args),
        Command::Testbed(args) => {
            let dir = testbed::build(&args)?;
            anstream::println!("{}", dir.display());
            Ok(())
        }
    }
}

/// Lets a peer and us do the same work, one after the other.
fn bench_peer(peer: &str, machines: &[usize], json: &std::path::Path) -> Result<()> {
    testbed::build(&testbed::Args::default())?;
    // Both in one build, or what they share would be built twice with different features; so what was built is run itself.
    cargo(&[
        "build",
        "--release",
        "--package",
        "oxmox",
        "--package",
        "cluster-api",
        "--bins",
    ])?;
    let machines: Vec<String> = machines.iter().map(ToString::to_string).collect();
    let mut beside = std::process::Command::new(run::target().join("release/beside"));
    beside.args([peer, &machines.join(",")]).arg(json);
    // A peer that takes an hour is a figure too.
    beside.env("CLUSTER_API_PATIENCE", "3600");
    run::run(
        &mut beside,
        &format!("beside {peer} {}", machines.join(",")),
    )
}

/// Builds what the suites need. Without it they skip themselves, which only CI takes as a failure.
fn prepare_testbed() -> Result<()> {
    match testbed::build(&testbed::Args::default()) {
        Err(error) if !std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1") => {
            anstream::eprintln!("suites against the real Kubernetes will be skipped: {error:#}");
            Ok(())
        }
        result => result.map(drop),
    }
}

/// Runs the simulation as the tests are built, and with them: too slow unoptimised, and what is shared is built once.
fn simulate(arguments: &[String]) -> Result<()> {
    suites::build()?;
    let mut simulate = std::process::Command::new(run::target().join("debug/simulate"));
    let shown = format!("simulate {}", arguments.join(" "));
    run::run(simulate.args(arguments), &shown)
}

fn check() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])
}
