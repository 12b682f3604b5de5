//! The front door for people and CI: `cargo xtask …`.

mod run;

use anyhow::Result;
use clap::{Parser, Subcommand};

use run::cargo;

/// Builds, checks, generates and measures Oxmox.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything CI runs: formatting, lints and all tests.
    Test,
    /// The fast part: formatting and lints.
    Check,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Test => {
            check()?;
            cargo(&["test", "--workspace", "--all-targets"])
        }
        Command::Check => check(),
    }
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
