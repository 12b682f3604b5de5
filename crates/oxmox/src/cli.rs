//! The command line: what can be asked for, and who answers.

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::bench::Bench;
use crate::crds::Crds;
use crate::doctor::Doctor;
use crate::machines::Machines;
use crate::operator::Operator;
use crate::output::{self, Logging};
use crate::sim::Sim;
use crate::up::Up;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("OXMOX_COMMIT"), ")");

/// Everything Kubernetes needs on Proxmox VE, in one binary.
///
/// Start with `oxmox up --demo`: it brings simulated machines up on a simulated Proxmox VE and needs nothing else.
#[derive(Parser)]
#[command(name = "oxmox", version = VERSION, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Sim(Sim),
    Up(Up),
    Operator(Operator),
    #[command(name = "vm", visible_alias = "machine")]
    Machines(Machines),
    Crds(Crds),
    Bench(Bench),
    /// Say what is missing on a Proxmox VE, and the commands that fix it.
    ///
    /// Looks at one Proxmox VE (real or simulated) and changes nothing: reachability, certificate, release, quorum,
    /// clocks, privileges by feature, storages, templates and bridges. Ends with 1 if there is a problem.
    Doctor(Box<Doctor>),
    /// Print the completion script of a shell.
    ///
    /// For bash: `source <(oxmox completions bash)`.
    Completions {
        /// The shell to write for.
        shell: Shell,
    },
}

impl Command {
    /// Runs the command to its end.
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Sim(sim) => sim.run(),
            Self::Up(up) => up.run(),
            Self::Operator(operator) => operator.run(),
            Self::Machines(machines) => machines.run(),
            Self::Crds(crds) => crds.run(),
            Self::Bench(bench) => bench.run(),
            Self::Doctor(doctor) => doctor.run(),
            Self::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "oxmox", &mut script);
                output::data(&String::from_utf8_lossy(&script))?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
