//! Oxmox: everything Kubernetes needs on Proxmox VE, in one binary.
//!
//! This crate holds the command line and the wiring, nothing else: a subcommand is one module with a clap `Args` struct and a
//! `run` function. Data goes to stdout, everything meant for a person's eye to stderr, both through [`output`].

mod access;
mod bench;
mod cli;
mod console;
mod crds;
mod doctor;
mod listener;
mod machines;
mod operator;
mod output;
mod signals;
mod sim;
mod up;
mod webhook;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = if is_called(machines::SnapshotPlugin::NAME) {
        machines::SnapshotPlugin::parse().run()
    } else {
        let cli = cli::Cli::parse();
        output::init_logging(&cli.logging);
        cli.command.run()
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Whether this program was started under that name, through a link: how kubectl finds its plugins.
fn is_called(name: &str) -> bool {
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    called
        .and_then(|path| Some(path.file_stem()? == name))
        .unwrap_or(false)
}
