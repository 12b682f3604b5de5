//! Oxmox: everything Kubernetes needs on Proxmox VE, in one binary.
//!
//! This crate holds the command line and the wiring, nothing else: a subcommand is one module with a clap `Args` struct and a
//! `run` function. Data goes to stdout, everything meant for a person's eye to stderr, both through [`output`].

mod cli;
mod doctor;
mod output;
mod sim;
mod up;
mod webhook;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    output::init_logging(&cli.logging);
    match cli.command.run() {
        Ok(code) => code,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}
