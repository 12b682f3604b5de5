//! What the engine says, as status.

use api::vm::{
    Bytes, FleetRecord, GuestRef, LARGER_DISKS, NetworkStatus, Phase, StepView, VirtualMachine,
    VirtualMachineStatus, condition,
};
use fleet::{
    Failure, GuestFacts, GuestIntent, GuestProgress, Outcome, PowerFact, StepKind, Waiting,
    facts::Larger, intent::Power, record::Stage,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::super::{follow, refs::Missing, snapshot};
use crate::{
    conditions::Conditions,
    context::{Context, namespace},
};

fn begin(context: &Context, machine: &VirtualMachine, before: &[Condition]) -> Conditions {
    Conditions::new(before, context.clock.time(), machine.metadata.generation)
}

/// Something a machine refers to is missing.
pub(super) fn unresolved(
    context: &Context,
    machine: &VirtualMachine,
    before: &VirtualMachineStatus,
    missing: &Missing,
) -> VirtualMachineStatus {
    let mut now = begin(context, machine, &before.conditions);
    now.set("Ready", false, missing.reason, &missing.message);
    now.keep("Provisioned");
    VirtualMachineStatus {
        conditions: now.done(),
        observed_generation: machine.metadata.generation,
        phase: Some(match (missing.invalid, before.vmid) {
            (true, _) => Phase::Failed,
            (false, Some(_)) => before.phase.unwrap_or_default(),
            (false, None) => Phase::Pending,
        }),
        current_step: None,
        ..before.clone()
    }
}

/// Where the engine has come to.
pub(super) fn status(
    context: &Context,
    machine: &VirtualMachine,
    before: &VirtualMachineStatus,
    intent: &GuestIntent,
    progress: GuestProgress,
) -> VirtualMachineStatus {
    let GuestProgress {
        record,
        outcome,
        facts,
        events: _,
    } = progress;
    let mut now = begin(context, machine, &before.conditions);
    let was_settled = record.stage >= Stage::Settled;
    ready(&mut now, &outcome, intent, &facts, before);
    // What was said before was said of the spec of then.
    let holds = outcome == Outcome::Persist && condition(&before.conditions, "Ready").is_some();
    let seen = if holds {
        before.observed_generation
    } else {
        machine.metadata.generation
    };
    if let (Outcome::Settled, Some(node)) = (&outcome, &facts.node)
        && let Some((reason, message)) = follow::elsewhere(
            context,
            machine,
            machine.spec.node.as_deref(),
            node.as_str(),
        )
    {
        now.set("Ready", false, reason, message);
    }
    let awaited = snapshot::awaited(
        context,
        &namespace(machine),
        &GuestRef::machine(machine.name_any()),
        before.revert.as_ref(),
        before.reverted_to.as_deref(),
    );
    if let Some((reason, message)) = awaited.filter(|_| outcome == Outcome::Settled) {
        now.set("Ready", false, reason, message);
    }
    let lost = record.lost || is_lost(&outcome);
    let made = record.stage >= Stage::Made && !lost;
    match (made, &record.identity) {
        _ if lost => now.set("Provisioned", false, "GuestLost", "the guest is gone"),
        (true, Some(id)) => {
            now.set(
                "Provisioned",
                true,
                "Made",
                format!("guest {} exists on {}", id.vmid, id.cluster),
            );
        }
        _ => now.set(
            "Provisioned",
            false,
            "NotMade",
            "the guest does not exist yet",
        ),
    }
    differences(&mut now, &facts, was_settled);
    if facts.stale_first_boot {
        now.set(
            "FirstBootDataCurrent",
            false,
            "ChangedAfterBoot",
            "spec.userData or spec.networks were changed after the guest had read its first-boot data; \
             it keeps what it was told: delete the machine and make it anew to have it read again",
        );
    }
    let task = record.in_flight.first().map(|task| task.upid.to_string());
    let current_step = match &outcome {
        Outcome::Working { message, .. } | Outcome::Waiting { message, .. } => Some(StepView {
            step: message.clone(),
            task,
        }),
        _ => None,
    };
    let identity = record.identity.as_ref();
    let console = identity.filter(|_| made).and_then(|identity| {
        if let Some(base) = &context.console {
            let place = namespace(machine);
            return Some(format!("{base}/console/{place}/{}", machine.name_any()));
        }
        let node = facts.node.as_ref().unwrap_or(&identity.node);
        context
            .providers
            .console_url(&identity.cluster, node.as_str(), identity.vmid.get())
    });
    VirtualMachineStatus {
        conditions: now.done(),
        observed_generation: seen,
        phase: Some(phase(&outcome, &facts, record.stage)),
        power_state: match facts.power {
            _ if lost => None,
            PowerFact::Unknown => before.power_state.clone(),
            power => power_word(power),
        },
        vmid: identity.map(|identity| identity.vmid.get()),
        node: facts
            .node
            .as_ref()
            .map(ToString::to_string)
            .or_else(|| {
                identity
                    .filter(|_| !made)
                    .map(|identity| identity.node.to_string())
            })
            .or_else(|| before.node.clone()),
        uuid: identity.map(|identity| identity.uuid.to_string()),
        cluster: identity.map(|identity| identity.cluster.to_string()),
        ips: if lost {
            Vec::new()
        } else {
            addresses(&facts, &before.ips)
        },
        networks: if lost {
            Vec::new()
        } else {
            networks(intent, &facts, &record, before)
        },
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of processors, given as a float"
        )]
        cpus: facts.cpus.map(|cpus| cpus as u32).or(before.cpus),
        memory: facts
            .memory
            .map(|memory| Bytes(memory.as_bytes()))
            .or(before.memory),
        pending_changes: facts.pending.clone(),
        drift: facts.drift.iter().map(|drift| drift.key.clone()).collect(),
        placement: facts.placement.clone().or_else(|| before.placement.clone()),
        current_step,
        console_url: console.or_else(|| before.console_url.clone().filter(|_| !lost)),
        revert: before.revert.clone(),
        reverted_to: before.reverted_to.clone(),
        record: FleetRecord::of(&record),
    }
}

/// Whether somebody removed the guest: then nothing is true of it any more.
pub(crate) fn is_lost(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Failed {
            why: Failure::Lost,
            ..
        }
    )
}

/// Says what a guest has that is not declared, and what waits for its restart.
pub(crate) fn differences(now: &mut Conditions, facts: &GuestFacts, was_settled: bool) {
    if facts.pending.is_empty() {
        if was_settled {
            now.set("RestartRequired", false, "NothingPending", "");
        }
    } else {
        let keys = facts.pending.join(", ");
        let message = format!("{keys} will change when the guest is restarted");
        now.set("RestartRequired", true, "PendingChanges", message);
    }
    if !facts.drift.is_empty() {
        let keys: Vec<&str> = facts.drift.iter().map(|drift| drift.key.as_str()).collect();
        now.set(
            "Drifted",
            true,
            "ChangedElsewhere",
            format!("{} differ from what is declared", keys.join(", ")),
        );
    }
    larger(now, &facts.larger);
}

/// A disk that cannot be as small as it is declared does no harm, and is told for as long as it is so.
fn larger(now: &mut Conditions, disks: &[Larger]) {
    if disks.is_empty() {
        return;
    }
    let each: Vec<String> = disks
        .iter()
        .map(|Larger { disk, has, declared }| {
            format!("disk {disk:?} is as large as its source, {has}, though {declared} is declared: declare {has}")
        })
        .collect();
    now.set(LARGER_DISKS, true, "LargerThanDeclared", each.join("; "));
}

fn ready(
    now: &mut Conditions,
    outcome: &Outcome,
    intent: &GuestIntent,
    facts: &GuestFacts,
    before: &VirtualMachineStatus,
) {
    match outcome {
        // Only a choice was made; what was said before still holds, if anything was said.
        Outcome::Persist => {
            if condition(&before.conditions, "Ready").is_some() {
                now.keep("Ready");
            } else {
                now.set(
                    "Ready",
                    false,
                    "Preparing",
                    "choosing a place and an identity",
                );
            }
        }
        Outcome::Working { step, message } => now.set("Ready", false, doing(*step), message),
        // The guest runs as far as it can; what waits for a restart has its own condition.
        Outcome::Waiting {
            what: Waiting::Restart,
            ..
        }
        | Outcome::Settled => {
            let (reason, message) = match facts.power {
                PowerFact::Running => ("Running", "the guest runs"),
                PowerFact::Stopped => ("Stopped", "the guest is off"),
                PowerFact::Paused => ("Paused", "the guest is paused"),
                PowerFact::Suspended => ("Suspended", "the guest is suspended"),
                PowerFact::Unknown => ("Settled", "the guest is as declared"),
            };
            // Whose power is nobody's matter, or is only looked at, may be in any state.
            let declared = !matches!(intent.power, Power::Unmanaged { .. })
                && !matches!(facts.power, PowerFact::Running | PowerFact::Unknown)
                && intent.power.is_met(facts.power);
            let tail = if declared { ", as declared" } else { "" };
            now.set("Ready", true, reason, format!("{message}{tail}"));
        }
        Outcome::Waiting { what, message, .. } => now.set("Ready", false, what.as_str(), message),
        Outcome::Gone => now.set("Ready", false, "Gone", "the guest is gone"),
        Outcome::Failed { why, message } => now.set("Ready", false, why.as_str(), message),
    }
}

fn phase(outcome: &Outcome, facts: &GuestFacts, stage: Stage) -> Phase {
    let resting = match facts.power {
        PowerFact::Stopped | PowerFact::Suspended => Phase::Stopped,
        PowerFact::Paused => Phase::Paused,
        PowerFact::Running | PowerFact::Unknown => Phase::Running,
    };
    match outcome {
        Outcome::Failed { .. } => Phase::Failed,
        Outcome::Gone => Phase::Deleting,
        Outcome::Settled
        | Outcome::Waiting {
            what: Waiting::Restart,
            ..
        } => resting,
        _ if stage >= Stage::Settled => Phase::Updating,
        Outcome::Waiting { .. } if stage < Stage::Making => Phase::Pending,
        _ => Phase::Provisioning,
    }
}

fn power_word(power: PowerFact) -> Option<String> {
    let word = match power {
        PowerFact::Running => "On",
        PowerFact::Stopped => "Off",
        PowerFact::Paused => "Paused",
        PowerFact::Suspended => "Suspended",
        PowerFact::Unknown => return None,
    };
    Some(word.to_owned())
}

/// The addresses of a guest that had these `before`. One that is off has none; one we know nothing about keeps its last ones.
pub(crate) fn addresses(facts: &GuestFacts, before: &[String]) -> Vec<String> {
    let now: Vec<String> = facts.addresses().iter().map(ToString::to_string).collect();
    let off = matches!(facts.power, PowerFact::Stopped | PowerFact::Suspended);
    if now.is_empty() && !off {
        before.to_vec()
    } else {
        now
    }
}

fn networks(
    intent: &GuestIntent,
    facts: &GuestFacts,
    record: &fleet::GuestRecord,
    before: &VirtualMachineStatus,
) -> Vec<NetworkStatus> {
    let Some(identity) = &record.identity else {
        return before.networks.clone();
    };
    let mut shown = Vec::new();
    for nic in &intent.nics {
        let Some(id) = identity.nics.get(&nic.name) else {
            continue;
        };
        let seen = facts.nics.iter().find(|seen| seen.mac == id.mac);
        let last = before
            .networks
            .iter()
            .find(|last| last.name.as_deref() == Some(nic.name.as_str()));
        let ips = match seen {
            Some(seen) => seen.addresses.iter().map(ToString::to_string).collect(),
            None => last.map(|last| last.ips.clone()).unwrap_or_default(),
        };
        shown.push(NetworkStatus {
            name: Some(nic.name.clone()),
            mac: id.mac.to_string(),
            bridge: Some(nic.bridge.clone()),
            ips,
        });
    }
    for seen in &facts.nics {
        if !shown.iter().any(|known| known.mac == seen.mac.to_string()) {
            shown.push(NetworkStatus {
                name: None,
                mac: seen.mac.to_string(),
                bridge: None,
                ips: seen.addresses.iter().map(ToString::to_string).collect(),
            });
        }
    }
    shown
}

/// What a step is called while it is done; the stable reasons of `Ready`.
pub(crate) fn doing(step: StepKind) -> &'static str {
    match step {
        StepKind::UploadSeed => "UploadingSeed",
        StepKind::Clone => "Cloning",
        StepKind::Create => "Creating",
        StepKind::Restore => "Restoring",
        StepKind::Configure => "Configuring",
        StepKind::MoveDisk => "MovingDisk",
        StepKind::Resize => "Resizing",
        StepKind::Start => "Starting",
        StepKind::Shutdown => "ShuttingDown",
        StepKind::Stop => "Stopping",
        StepKind::Reboot => "Restarting",
        StepKind::Pause => "Pausing",
        StepKind::Resume => "Resuming",
        StepKind::Suspend => "Suspending",
        StepKind::Migrate => "Migrating",
        StepKind::RemoveSeed => "RemovingSeed",
        StepKind::Destroy => "Destroying",
        StepKind::Snapshot => "Snapshotting",
        StepKind::DeleteSnapshot => "DeletingSnapshot",
        StepKind::Rollback => "RollingBack",
        StepKind::Backup => "BackingUp",
        StepKind::Download => "Downloading",
        StepKind::MakeTemplate => "MakingTemplate",
        StepKind::RemoveVolume => "RemovingVolume",
    }
}

/// Says it when a machine has become ready.
pub(super) async fn announce(
    context: &Context,
    machine: &VirtualMachine,
    before: &VirtualMachineStatus,
    status: &VirtualMachineStatus,
) {
    let sentence = |status: &VirtualMachineStatus| {
        let ready = condition(&status.conditions, "Ready")?;
        (ready.status == "True").then(|| match status.ips.as_slice() {
            [] => ready.message.clone(),
            ips => format!("{} at {}", ready.message, ips.join(", ")),
        })
    };
    let said = sentence(before);
    if let Some(message) = sentence(status).filter(|now| said.as_ref() != Some(now)) {
        context.normal(machine, "Ready", &message).await;
    }
    if status.phase == Some(Phase::Failed) {
        let (before, now) = (&before.conditions, &status.conditions);
        context.complain(machine, before, now).await;
    }
}
