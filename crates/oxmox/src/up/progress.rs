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
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use tokio::time::Instant;

use crate::output;

/// How it went with the machines that were followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Every one is ready.
    Ready,
    /// At least one can never be, as it is declared.
    Failed,
}

/// Follows the machines there are until each is ready or can never be. Others that come meanwhile are shown and not waited for:
/// somebody trying things out keeps nobody waiting. With `hasty` the first that can never be ready ends it.
pub(super) async fn follow(client: &Client, hasty: bool) -> Result<Ending> {
    let started = Instant::now();
    let machines: Api<VirtualMachine> = Api::all(client.clone());
    let there = machines.list(&ListParams::default()).await?.items;
    let mut awaited: BTreeMap<Key, VirtualMachine> = there
        .into_iter()
        .map(|machine| (key(&machine), machine))
        .collect();
    let mut view = View::new();
    let mut changes =
        std::pin::pin!(watcher::watcher(machines, watcher::Config::default()).default_backoff());
    while !awaited.values().all(has_ended) {
        let Some(change) = changes.try_next().await? else {
            break;
        };
        match change {
            watcher::Event::Apply(machine) | watcher::Event::InitApply(machine) => {
                view.show(&machine, started.elapsed());
                if let Some(known) = awaited.get_mut(&key(&machine)) {
                    *known = machine;
                }
            }
            watcher::Event::Delete(machine) => {
                view.forget(&machine);
                awaited.remove(&key(&machine));
            }
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
        if hasty && awaited.values().any(has_failed) {
            break;
        }
    }
    view.done();
    let ready = awaited.values().filter(|machine| is_ready(machine)).count();
    let all = ready == awaited.len();
    let of = if all {
        String::new()
    } else {
        format!(" of {}", awaited.len())
    };
    output::say(format_args!(
        "\n{ready}{of} machines ready after {:.1} s\n",
        started.elapsed().as_secs_f64()
    ));
    for failed in awaited.values().filter(|machine| has_failed(machine)) {
        output::say(format_args!(
            "{} cannot come up as declared: {}\n",
            failed.name_any(),
            message(failed)
        ));
    }
    output::data(&format!("{}\n", table(awaited.values())))?;
    Ok(if all { Ending::Ready } else { Ending::Failed })
}

/// Namespace and name.
type Key = (Option<String>, String);

fn key(machine: &VirtualMachine) -> Key {
    (machine.namespace(), machine.name_any())
}

/// Whether there is nothing to wait for any more.
fn has_ended(machine: &VirtualMachine) -> bool {
    is_ready(machine) || has_failed(machine)
}

fn has_failed(machine: &VirtualMachine) -> bool {
    let status = machine.status.as_ref();
    status.and_then(|status| status.phase) == Some(Phase::Failed)
}

fn is_ready(machine: &VirtualMachine) -> bool {
    let status = machine.status.as_ref();
    status
        .and_then(|status| condition(&status.conditions, "Ready"))
        .is_some_and(|ready| ready.status == "True")
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

    fn forget(&mut self, machine: &VirtualMachine) {
        let name = machine.name_any();
        match self {
            Self::Live { all, lines } => {
                if let Some(line) = lines.remove(&name) {
                    all.remove(&line);
                }
            }
            Self::Plain { said } => {
                said.remove(&name);
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
