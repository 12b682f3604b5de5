//! `oxmox vm`: machines for people without kubectl, and the `kubectl create vmsnapshot` plugin.
//!
//! Every command is a change of an object, as kubectl would make it; nothing here speaks to Proxmox VE. With `--wait` it stays
//! until the object says that the change has happened. `console` alone goes elsewhere: to the operator's own server of consoles.

mod act;
mod answer;
mod console;
mod place;
mod show;
mod snapshot;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use act::Act;
use place::Place;
pub(crate) use snapshot::SnapshotPlugin;

/// Looks at machines, and starts and stops them.
#[derive(Args)]
#[command(after_help = "Examples:
  oxmox vm list -A
  oxmox vm describe web-server
  oxmox vm stop web-server --wait
  oxmox vm move web-server --to pve2 --wait
  oxmox vm snapshot before-upgrade --vm web-server --include-memory
  oxmox vm console web-server")]
pub(crate) struct Machines {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists machines.
    #[command(visible_alias = "ls")]
    List {
        /// Those of all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows everything known about a machine, and what happened to it.
    Describe {
        /// Its name.
        name: String,
    },
    /// Attaches this terminal to a machine's serial line; Ctrl-] leaves.
    Console(console::Console),
    /// Shows a machine's screen to a VNC viewer on this computer.
    Vnc(console::Vnc),
    /// Starts a machine.
    Start(Act),
    /// Shuts a machine down.
    Stop {
        #[command(flatten)]
        act: Act,
        /// Cut it off at once.
        #[arg(long)]
        hard: bool,
    },
    /// Restarts a running machine.
    Restart(Act),
    /// Freezes a running machine; `start` lets it go on.
    Pause(Act),
    /// Moves a machine to another node, while it runs.
    #[command(visible_alias = "migrate")]
    Move {
        #[command(flatten)]
        act: Act,
        /// The node; it stays pinned to it.
        #[arg(long, value_name = "NODE")]
        to: String,
    },
    /// Deletes a machine, as its deletion policy says.
    #[command(visible_alias = "rm")]
    Delete(Act),
    /// Takes a snapshot of a machine.
    ///
    /// Through a link named kubectl-create-vmsnapshot on the PATH, this program is a plugin of kubectl, from 1.31 on:
    /// `kubectl create vmsnapshot NAME --vm NAME`.
    #[command(after_help = "Examples:
  oxmox vm snapshot before-upgrade --vm web-server --include-memory --wait
  ln -s \"$(command -v oxmox)\" ~/.local/bin/kubectl-create-vmsnapshot
  kubectl create vmsnapshot before-upgrade --vm=web-server")]
    Snapshot {
        /// Name of the snapshot.
        name: String,
        #[command(flatten)]
        options: snapshot::Options,
    },
}

impl Machines {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        runtime.block_on(self.act())
    }

    async fn act(self) -> Result<ExitCode> {
        let there = self.place.connect().await?;
        match self.command {
            Command::List {
                all_namespaces,
                json,
            } => show::list(&there, all_namespaces, json).await?,
            Command::Describe { name } => show::describe(&there, &name).await?,
            Command::Console(console) => console::open(&there, &console).await?,
            Command::Vnc(vnc) => console::show(&there, &vnc).await?,
            Command::Start(act) => {
                there
                    .change(&act, json!({ "powerState": "On" }), "started")
                    .await?;
            }
            Command::Stop { act, hard } => {
                let state = if hard { "OffHard" } else { "Off" };
                there
                    .change(&act, json!({ "powerState": state }), "stopped")
                    .await?;
            }
            Command::Pause(act) => {
                there
                    .change(&act, json!({ "powerState": "Paused" }), "paused")
                    .await?;
            }
            Command::Restart(act) => {
                let machine = there.kept(&act.name, "restarted").await?;
                let power = machine.status.as_ref();
                let power = power.and_then(|status| status.power_state.as_deref());
                if power == Some("Off") {
                    bail!("{0} is off: start it with `oxmox vm start {0}`", act.name);
                }
                let count = machine.spec.restarts.unwrap_or_default() + 1;
                there
                    .change(&act, json!({ "restarts": count }), "restarted")
                    .await?;
            }
            Command::Move { act, to } => {
                there.change(&act, json!({ "node": to }), "moved").await?;
            }
            Command::Delete(act) => there.delete(&act).await?,
            Command::Snapshot { name, options } => {
                snapshot::take(&there, name, options).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
