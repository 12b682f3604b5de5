//! What the engine says about a machine, as status.

use api::infrastructure::v1beta1::{
    Initialization, IpAddresses, MachineAddress, ProxmoxMachine, ProxmoxMachineStatus,
};
use api::vm::{FleetRecord, condition};
use fleet::record::{SeedState, Stage};
use fleet::{Event, GuestFacts, GuestProgress, GuestRecord, NodeName, Outcome, StepKind};
use kube::ResourceExt as _;

use super::super::Wait;
use super::super::address::Given;
use super::Subject;
use crate::conditions::Conditions;
use crate::context::Context;

const PROVISIONED: &str = "VirtualMachineProvisioned";

fn begin(context: &Context, object: &ProxmoxMachine, before: &ProxmoxMachineStatus) -> Conditions {
    Conditions::new(
        &before.conditions,
        context.clock.time(),
        object.metadata.generation,
    )
}

/// It is left alone.
pub(super) fn paused(
    context: &Context,
    object: &ProxmoxMachine,
    before: &ProxmoxMachineStatus,
) -> ProxmoxMachineStatus {
    let mut now = begin(context, object, before);
    now.keep(PROVISIONED);
    now.keep("Ready");
    now.set(
        "Paused",
        true,
        "Paused",
        "the Cluster or this object is paused",
    );
    ProxmoxMachineStatus {
        conditions: now.done(),
        ..before.clone()
    }
}

/// Something is missing.
pub(super) fn waiting(
    context: &Context,
    object: &ProxmoxMachine,
    before: &ProxmoxMachineStatus,
    wait: &Wait,
) -> ProxmoxMachineStatus {
    let mut now = begin(context, object, before);
    let provisioned = before.initialization.as_ref().and_then(|i| i.provisioned) == Some(true);
    if provisioned {
        now.keep(PROVISIONED);
    } else {
        now.set(PROVISIONED, false, wait.reason, &wait.message);
    }
    now.set("Ready", false, wait.reason, &wait.message);
    now.set("Paused", false, "NotPaused", "");
    ProxmoxMachineStatus {
        conditions: now.done(),
        vm_status: Some(before.vm_status.clone().unwrap_or_else(|| "pending".into())),
        ..before.clone()
    }
}

/// Where the engine has come to.
pub(super) fn status(
    context: &Context,
    subject: &Subject<'_>,
    before: &ProxmoxMachineStatus,
    progress: GuestProgress,
    given: &[Given],
) -> ProxmoxMachineStatus {
    let GuestProgress {
        record,
        outcome,
        facts,
        events: _,
    } = progress;
    let mut now = begin(context, subject.object, before);
    let (ready, reason, message) = words(&outcome);
    // Cluster API takes "provisioned" as said once and for all.
    let was = before.initialization.as_ref().and_then(|i| i.provisioned) == Some(true);
    let provisioned = was || outcome == Outcome::Settled;
    if provisioned {
        now.set(PROVISIONED, true, "Provisioned", "");
    } else {
        now.set(PROVISIONED, false, reason, &message);
    }
    now.set("Ready", ready, reason, &message);
    now.set("Paused", false, "NotPaused", "");
    let told = record
        .seed
        .as_ref()
        .is_some_and(|seed| seed.state >= SeedState::Uploaded);
    ProxmoxMachineStatus {
        initialization: Some(Initialization {
            provisioned: Some(provisioned),
        }),
        ready: Some(provisioned),
        conditions: now.done(),
        addresses: addresses(subject.object, given, &facts),
        failure_domain: subject.failure_domain(),
        proxmox_node: node(&record, &facts).map(ToString::to_string),
        vm_status: Some(if provisioned { "ready" } else { "pending" }.to_owned()),
        bootstrap_data_provided: Some(
            before.bootstrap_data_provided == Some(true) || told || record.stage >= Stage::Started,
        ),
        ip_addresses: by_interface(given),
        network: Vec::new(),
        task_ref: record.in_flight.first().map(|task| task.upid.to_string()),
        retry_after: None,
        record: FleetRecord::of(&record),
        deprecated: before.deprecated.clone(),
    }
}

/// The node a machine is on. A clone is listed on its template's node until it is whole: that is not where it will be.
fn node<'a>(record: &'a GuestRecord, facts: &'a GuestFacts) -> Option<&'a NodeName> {
    let chosen = record.identity.as_ref().map(|identity| &identity.node);
    let seen = facts.node.as_ref();
    if record.stage < Stage::Made {
        chosen.or(seen)
    } else {
        seen.or(chosen)
    }
}

/// Whether it is ready, a word for it, and a sentence.
pub(super) fn words(outcome: &Outcome) -> (bool, &'static str, String) {
    match outcome {
        Outcome::Persist => (false, "Cloning", "its identity has been chosen".to_owned()),
        Outcome::Working { step, message } => (false, doing(*step), message.clone()),
        Outcome::Waiting { what, message, .. } => (false, what.as_str(), message.clone()),
        Outcome::Settled => (true, "Provisioned", String::new()),
        Outcome::Gone => (false, "NotFound", "the guest is gone".to_owned()),
        Outcome::Failed { why, message } => (false, why.as_str(), message.clone()),
    }
}

/// The step, in the words that users of this API know.
fn doing(step: StepKind) -> &'static str {
    match step {
        StepKind::UploadSeed => "WaitingForBootstrapDataReconciliation",
        StepKind::Clone | StepKind::Create | StepKind::Restore => "Cloning",
        StepKind::Resize | StepKind::MoveDisk => "WaitingForDiskReconciliation",
        StepKind::Start => "WaitingForVMPowerUp",
        StepKind::Stop | StepKind::Shutdown | StepKind::Destroy => "Deleting",
        _ => "Configuring",
    }
}

fn addresses(object: &ProxmoxMachine, given: &[Given], facts: &GuestFacts) -> Vec<MachineAddress> {
    let address = |kind: &str, address: String| MachineAddress {
        kind: kind.to_owned(),
        address,
    };
    let mut fixed: Vec<_> = given.iter().map(|given| given.address.addr()).collect();
    if fixed.is_empty() {
        fixed = facts.addresses();
    }
    let host = address("Hostname", object.name_any());
    let rest = fixed
        .into_iter()
        .map(|ip| address("InternalIP", ip.to_string()));
    std::iter::once(host).chain(rest).collect()
}

/// The addresses of each interface, and once more as `default` those by which the machine is reached.
fn by_interface(given: &[Given]) -> Vec<IpAddresses> {
    let mut all: Vec<IpAddresses> = Vec::new();
    let defaults = given.iter().filter(|given| given.gateway.is_some());
    let defaults = defaults.map(|given| ("default", given));
    let named = given.iter().map(|given| (given.device.as_str(), given));
    for (net, one) in defaults.chain(named) {
        let at = all
            .iter()
            .position(|known| known.net == net)
            .unwrap_or_else(|| {
                all.push(IpAddresses {
                    net: net.to_owned(),
                    ..IpAddresses::default()
                });
                all.len() - 1
            });
        let ip = one.address.addr();
        if ip.is_ipv4() {
            all[at].ipv4.push(ip.to_string());
        } else {
            all[at].ipv6.push(ip.to_string());
        }
    }
    all
}

/// What is worth an event of its own. A machine's steps are in its status; hundreds of machines would only bury the rest.
pub(super) fn notable(events: &[Event]) -> Vec<Event> {
    let said = ["Placed", "Found", "Adopted"];
    let worth = |event: &&Event| event.warning || said.contains(&event.reason);
    events.iter().filter(worth).cloned().collect()
}

/// Whether a status only says that work has gone a step further: nothing that another object waits for, and nothing that must
/// be known after a crash.
pub(super) fn is_only_a_step(
    outcome: &Outcome,
    before: &ProxmoxMachineStatus,
    now: &ProxmoxMachineStatus,
) -> bool {
    let working = matches!(outcome, Outcome::Working { .. } | Outcome::Waiting { .. });
    let kept = |status: &ProxmoxMachineStatus| {
        let record = super::record(status);
        (record.identity, record.attempts, record.leftovers)
    };
    let ready = |status: &ProxmoxMachineStatus| {
        condition(&status.conditions, "Ready").map(|ready| ready.status.clone())
    };
    working
        && kept(before) == kept(now)
        && ready(before) == ready(now)
        && before.initialization == now.initialization
        && before.addresses == now.addresses
        && before.proxmox_node == now.proxmox_node
}

/// Says what has changed, for people.
pub(super) async fn announce(
    context: &Context,
    object: &ProxmoxMachine,
    before: &ProxmoxMachineStatus,
    now: &ProxmoxMachineStatus,
) {
    let state = |status: &ProxmoxMachineStatus| {
        condition(&status.conditions, "Ready").map(|c| (c.status.clone(), c.reason.clone()))
    };
    if state(before) == state(now) {
        return;
    }
    if let Some(ready) = condition(&now.conditions, "Ready")
        && ready.status == "True"
    {
        context
            .normal(object, "Provisioned", "the machine is ready")
            .await;
    }
}
