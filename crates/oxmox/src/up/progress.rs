//! Machines coming up, shown as it happens.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Result;
use api::vm::{Phase, Provider, VirtualMachine, VirtualMachineStatus, condition};
use comfy_table::Table;
use fleet::{ClusterName, Fleet};
use futures::TryStreamExt as _;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use tokio::time::Instant;

use super::looks::{Looks, cluster_of};
use crate::output;

/// How often it is looked whether the clusters answer.
const LOOK: Duration = Duration::from_millis(500);

/// How it went with the machines that were followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Every one is ready.
    Ready,
    /// At least one can never be, as it is declared, or its Proxmox VE does not answer.
    Failed,
}

/// Follows the machines there are until each is ready or can never be. Others that come meanwhile are shown and not waited for:
/// somebody trying things out keeps nobody waiting. With `hasty` the first that can never be ready ends it, and so does a Proxmox VE
/// that does not answer.
pub(super) async fn follow(client: &Client, fleet: &Fleet, hasty: bool) -> Result<Ending> {
    let started = Instant::now();
    let machines: Api<VirtualMachine> = Api::all(client.clone());
    let there = machines.list(&ListParams::default()).await?.items;
    let mut awaited: BTreeMap<Key, VirtualMachine> = there
        .into_iter()
        .map(|machine| (key(&machine), machine))
        .collect();
    let mut looks = Looks::new(fleet.clone());
    for cluster in clusters(client).await? {
        looks.expect(cluster);
    }
    let mut view = View::new();
    let mut changes =
        std::pin::pin!(watcher::watcher(machines, watcher::Config::default()).default_backoff());
    let mut next_look = tokio::time::interval(LOOK);
    while !(looks.are_done() && awaited.values().all(|it| has_ended(it, &looks))) {
        let change = tokio::select! {
            change = changes.try_next() => match change? {
                Some(change) => Some(change),
                None => break,
            },
            _ = next_look.tick() => None,
        };
        match change {
            Some(watcher::Event::Apply(machine) | watcher::Event::InitApply(machine)) => {
                match awaited.get_mut(&key(&machine)) {
                    Some(known) => *known = machine,
                    None => view.show(&machine, &looks, started.elapsed()),
                }
            }
            Some(watcher::Event::Delete(machine)) => {
                view.forget(&machine);
                awaited.remove(&key(&machine));
            }
            Some(watcher::Event::Init | watcher::Event::InitDone) | None => {}
        }
        for cluster in awaited.values().filter_map(cluster_of) {
            looks.expect(cluster);
        }
        looks.refresh();
        for machine in awaited.values() {
            view.show(machine, &looks, started.elapsed());
        }
        if hasty && (awaited.values().any(has_failed) || !looks.silent().is_empty()) {
            break;
        }
    }
    view.done();
    let ready = awaited.values().filter(|machine| is_ready(machine, &looks));
    let ready = ready.count();
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
            message(failed, &looks)
        ));
    }
    let silent = looks.silent();
    for (cluster, why) in &silent {
        output::say(format_args!(
            "the Proxmox VE of Provider {cluster} does not answer: {why}\n"
        ));
    }
    output::data(&format!("{}\n", table(awaited.values())))?;
    Ok(if all && silent.is_empty() {
        Ending::Ready
    } else {
        Ending::Failed
    })
}

/// The clusters of all Providers.
async fn clusters(client: &Client) -> Result<Vec<ClusterName>> {
    let providers: Api<Provider> = Api::all(client.clone());
    let there = providers.list(&ListParams::default()).await?;
    let name = |provider: &Provider| {
        let namespace = provider.namespace().unwrap_or_default();
        ClusterName::new(format!("{namespace}/{}", provider.name_any())).ok()
    };
    Ok(there.iter().filter_map(name).collect())
}

/// Namespace and name.
type Key = (Option<String>, String);

fn key(machine: &VirtualMachine) -> Key {
    (machine.namespace(), machine.name_any())
}

/// Whether there is nothing to wait for any more.
fn has_ended(machine: &VirtualMachine, looks: &Looks) -> bool {
    is_ready(machine, looks) || has_failed(machine)
}

/// What is said of the machine as it is declared now, and not of how it was before.
fn current(machine: &VirtualMachine) -> Option<&VirtualMachineStatus> {
    let status = machine.status.as_ref();
    status.filter(|status| status.observed_generation == machine.metadata.generation)
}

fn has_failed(machine: &VirtualMachine) -> bool {
    current(machine).and_then(|status| status.phase) == Some(Phase::Failed)
}

/// Whether it was said to be ready, and this process has seen it.
fn is_ready(machine: &VirtualMachine, looks: &Looks) -> bool {
    said_ready(machine) && looks.have_seen(machine)
}

fn said_ready(machine: &VirtualMachine) -> bool {
    current(machine)
        .and_then(|status| condition(&status.conditions, "Ready"))
        .is_some_and(|ready| ready.status == "True")
}

/// What is being done to a machine, or what it waits for.
fn message(machine: &VirtualMachine, looks: &Looks) -> String {
    let Some(status) = &machine.status else {
        return "waiting".into();
    };
    if is_ready(machine, looks) {
        return format!("ready on {}", status.node.as_deref().unwrap_or("its node"));
    }
    if said_ready(machine) {
        return "was ready; waiting for Proxmox VE".into();
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

    fn show(&mut self, machine: &VirtualMachine, looks: &Looks, elapsed: Duration) {
        let (name, text) = (machine.name_any(), message(machine, looks));
        match self {
            Self::Live { all, lines } => {
                let line = lines.entry(name.clone()).or_insert_with(|| {
                    let line = all.add(ProgressBar::new_spinner());
                    line.set_style(style());
                    line.set_prefix(name);
                    line.enable_steady_tick(Duration::from_millis(100));
                    line
                });
                if is_ready(machine, looks) {
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

#[cfg(test)]
mod tests {
    use api::vm::VirtualMachineSpec;
    use serde_json::json;

    use super::*;

    fn machine(generation: i64, status: serde_json::Value) -> VirtualMachine {
        let mut machine = VirtualMachine::new("web", VirtualMachineSpec::default());
        machine.metadata.generation = Some(generation);
        machine.status = Some(serde_json::from_value(status).unwrap());
        machine
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_of_another_spec_or_by_another_process_does_not_count() {
        let ready = json!([{
            "type": "Ready", "status": "True", "reason": "Running", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let status =
            json!({ "observedGeneration": 1, "cluster": "default/pve", "conditions": ready });
        let mut looks = Looks::new(Fleet::new());
        assert!(!is_ready(&machine(1, status.clone()), &looks));
        looks.see("default/pve").await;
        assert!(is_ready(&machine(1, status.clone()), &looks));
        assert!(!is_ready(&machine(2, status), &looks), "it was changed");

        let failed = json!({ "observedGeneration": 1, "phase": "Failed" });
        assert!(has_failed(&machine(1, failed.clone())));
        assert!(!has_failed(&machine(2, failed)), "it was put right");
    }
}
