//! Guests: single operations, many at once, and what they cost at rest.

mod burst;
mod operations;
mod rest;

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::sheet::Sheet;
use super::system::{Setting, System, basis};

/// Machines: create, power, describe, reconfigure, snapshot, clone; many at once; at rest.
#[derive(Args)]
pub(super) struct Guests {
    /// How often each operation is measured.
    #[arg(long, default_value_t = 50, value_name = "N")]
    samples: u32,
    /// How many machines are made at once; may be given several times.
    #[arg(long, default_values_t = [100, 1000], value_name = "N", value_delimiter = ',')]
    at_once: Vec<u32>,
    /// How many machines are watched at rest, in processes of their own; may be given several times.
    #[arg(long, default_values_t = [100, 1000, 10_000], value_name = "N", value_delimiter = ',')]
    at_rest: Vec<u32>,
    /// How many seconds they are watched.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    watched: u64,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Operations,
    AtOnce,
    AtRest,
}

impl Guests {
    pub(super) fn measure(&self, setting: &Setting) -> Result<Vec<Sheet>> {
        let asked = |part| self.only.is_empty() || self.only.contains(&part);
        let mut sheets = Vec::new();
        if asked(Part::Operations) {
            let measured = operations::measure(setting, self.samples);
            sheets.push(super::on_jumping_clock(measured)?);
        }
        if asked(Part::AtOnce) {
            let mut sheet = burst::sheet();
            for machines in &self.at_once {
                super::on_jumping_clock(burst::measure(setting, *machines, &mut sheet))?;
            }
            sheets.push(sheet);
        }
        if asked(Part::AtRest) {
            let mut sheet = rest::sheet();
            let span = Duration::from_secs(self.watched.max(1));
            let runtime = tokio::runtime::Runtime::new()?;
            for machines in &self.at_rest {
                runtime.block_on(rest::measure(*machines, span, &mut sheet))?;
            }
            sheets.push(sheet);
        }
        Ok(sheets)
    }
}

/// A system with everything machines refer to.
async fn system(setting: &Setting) -> Result<System> {
    let system = System::start(setting, api::crds()).await?;
    for object in basis() {
        system.apply(object).await?;
    }
    Ok(system)
}

/// A machine that is ready as soon as it runs: how long its operating system boots is not ours to measure.
fn machine(name: &str, first_boot_data: bool) -> Value {
    let mut machine = json!({
        "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {
            "providerRef": {"name": "bench"}, "classRef": {"name": "bench"}, "imageRef": {"name": "bench"},
            "powerState": "On", "readiness": "Running",
            "networks": [{"name": "lan"}], "disks": [{"name": "root", "size": "20Gi"}],
        },
    });
    if first_boot_data {
        let text = format!("#cloud-config\nhostname: {name}\n");
        machine["spec"]["userData"] = json!({"cloudInit": {"inline": text}});
    }
    machine
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of requests are far below 2^52"
)]
pub(super) fn count(number: u64) -> f64 {
    number as f64
}
