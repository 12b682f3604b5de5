//! `oxmox bench`: what things cost and how long they take, measured on a simulated Proxmox VE.
//!
//! The whole system (API server, controllers, Proxmox VE with life-like latencies) runs in this process on a clock that jumps
//! from event to event, so a thousand machines take seconds and the same seed gives the same figures on every computer. What
//! such a clock cannot show, the work of our own processor, is measured beside it with a stopwatch.
//!
//! A subject is one module with a clap `Args` struct and a `measure` function that answers with [`Sheet`]s; [`System`] is what it
//! measures on. `guests` and `capi` are those there are.

mod capi;
mod guests;
mod meter;
mod sheet;
mod stopwatch;
mod system;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};

use crate::output;
use sheet::Sheet;

/// Measures requests, times and overhead on a simulated Proxmox VE.
#[derive(Args)]
#[command(after_help = "Examples:
  oxmox bench guests
  oxmox bench guests --json --seed 7 > figures.json
  oxmox bench capi --latency none")]
pub(crate) struct Bench {
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    json: bool,
    /// How long Proxmox VE takes: `real`, `none`, or a file with a model of your own (YAML).
    #[arg(
        long,
        default_value = "real",
        value_name = "real|none|FILE",
        global = true
    )]
    latency: String,
    /// Where randomness comes from: the same seed gives the same figures.
    #[arg(long, default_value_t = 0, value_name = "N", global = true)]
    seed: u64,
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Subcommand)]
enum Subject {
    Guests(guests::Guests),
    Capi(capi::Capi),
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let setting = system::Setting {
            latency: crate::sim::latency(&self.latency)?,
            seed: self.seed,
        };
        let (name, sheets) = match self.subject {
            Subject::Guests(guests) => ("guests", guests.measure(&setting)?),
            Subject::Capi(capi) => ("capi", capi.measure(&setting)?),
        };
        output::data(&if self.json {
            json(name, &sheets)?
        } else {
            tables(&sheets)
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn tables(sheets: &[Sheet]) -> String {
    let tables: Vec<String> = sheets.iter().map(ToString::to_string).collect();
    tables.join("\n")
}

fn json(name: &str, sheets: &[Sheet]) -> Result<String> {
    let sheets: serde_json::Map<String, serde_json::Value> = sheets
        .iter()
        .map(|sheet| (sheet.name.to_owned(), sheet.to_json()))
        .collect();
    let whole = serde_json::json!({ "subject": name, "figures": sheets });
    let text = serde_json::to_string_pretty(&whole).context("the figures cannot be written")?;
    Ok(text + "\n")
}

/// Runs a measurement on a clock that jumps.
fn on_jumping_clock<T>(measure: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .context("cannot start the async runtime")?
        .block_on(measure)
}
