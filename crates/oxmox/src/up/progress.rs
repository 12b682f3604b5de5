//! Machines coming up, shown as it happens.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Result;
use api::vm::{Phase, VirtualMachine, condition};
use comfy_table::Table;
use futures::TryStreamExt as _;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::Instant;

use crate::output;

/// Follows all machines until each is ready, or one can never be. Says which.
pub(super) async fn until_ready(client: &Client) -> Result<bool> {
    let started = Instant::now();
    let machines: Api<VirtualMachine> = Api::all(client.clone());
    let expected = machines
        .list(&kube::api::ListParams::default())
        .await?
        .items
        .len();
    let mut known: BTreeMap<String, VirtualMachine> = BTreeMap::new();
    let mut view = View::new();
    let mut changes = std::pin::pin!(
        watcher::watcher(machines, watcher::Config::default())
            .default_backoff()
            .applied_objects()
    );
    while let Some(machine) = changes.try_next().await? {
        view.show(&machine, started.elapsed());
        known.insert(machine.name_any(), machine);
        if let Some(failed) = known
            .values()
            .find(|machine| phase(machine) == Phase::Failed)
        {
            view.done();
            output::say(format_args!(
                "{} cannot come up: {}",
                failed.name_any(),
                message(failed)
            ));
            return Ok(false);
        }
        if known.len() >= expected && known.values().all(is_ready) {
            break;
        }
    }
    view.done();
    output::say(format_args!(
        "\n{} machines ready after {:.1} s\n",
        known.len(),
        started.elapsed().as_secs_f64()
    ));
    output::data(&format!("{}\n", table(known.values())))?;
    Ok(true)
}

fn is_ready(machine: &VirtualMachine) -> bool {
    let status = machine.status.as_ref();
    status
        .and_then(|status| condition(&status.conditions, "Ready"))
        .is_some_and(|ready| ready.status == "True")
}

fn phase(machine: &VirtualMachine) -> Phase {
    machine
        .status
        .as_ref()
        .and_then(|status| status.phase)
        .unwrap_or_default()
}

/// What is being done to a machine, or what it waits for.
fn message(machine: &VirtualMachine) -> String {
    let Some(status) = &machine.status else {
        return "waiting".into();
    };
    if is_ready(machine) {
        return format!("ready on {}", status.node.as_deref().unwrap_or("its node"));
    }
    if let Some(step) = &status.current_step {
        return step.step.clone();
    }
    match condition(&status.conditions, "Ready") {
        Some(ready) if !ready.message.is_empty() => ready.message.clone(),
        Some(ready) => ready.reason.clone(),
        None => "waiting".into(),
    }
}

fn table<'a>(machines: impl Iterator<Item = &'a VirtualMachine>) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["NAME", "PHASE", "NODE", "VMID", "ADDRESSES"]);
    for machine in machines {
        let status = machine.status.clone().unwrap_or_default();
        table.add_row([
            machine.name_any(),
            format!("{:?}", status.phase.unwrap_or_default()),
            status.node.unwrap_or_default(),
            status.vmid.map(|vmid| vmid.to_string()).unwrap_or_default(),
            status.ips.join(", "),
        ]);
    }
    table
}

/// A line per machine that changes in place on a terminal; elsewhere a new line per change.
enum View {
    Live {
        all: MultiProgress,
        lines: BTreeMap<String, ProgressBar>,
    },
    Plain {
        said: BTreeMap<String, String>,
    },
}

impl View {
    fn new() -> Self {
        if std::io::stderr().is_terminal() {
            Self::Live {
                all: MultiProgress::new(),
                lines: BTreeMap::new(),
            }
        } else {
            Self::Plain {
                said: BTreeMap::new(),
            }
        }
    }

    fn show(&mut self, machine: &VirtualMachine, elapsed: Duration) {
        let (name, text) = (machine.name_any(), message(machine));
        match self {
            Self::Live { all, lines } => {
                let line = lines.entry(name.clone()).or_insert_with(|| {
                    let line = all.add(ProgressBar::new_spinner());
                    line.set_style(style());
                    line.set_prefix(name);
                    line.enable_steady_tick(Duration::from_millis(100));
                    line
                });
                if is_ready(machine) {
                    line.finish_with_message(text);
                } else {
                    line.set_message(text);
                }
            }
            Self::Plain { said } => {
                if said.get(&name) != Some(&text) {
                    output::say(format_args!(
                        "{:>6.1}s  {name:<12} {text}",
                        elapsed.as_secs_f64()
                    ));
                    said.insert(name, text);
                }
            }
        }
    }

    fn done(&mut self) {
        if let Self::Live { lines, .. } = self {
            for line in lines.values() {
                line.abandon();
            }
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix:12} {elapsed:>4} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏✔")
}
